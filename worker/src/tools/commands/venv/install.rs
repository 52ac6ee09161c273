//! `venv_install`: installs packages into the environment, creating it if necessary.

use super::{
    super::shell_tool::{self, ShellToolCall, ShellToolEffect},
    environment::{COMPLETE_MARKER, FOLDER},
};
use crate::calls::join_quoted;
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::files::load_file,
};

pub(crate) use crate::calls::venv_install::{DESCRIPTION, NAME, VenvInstallArgs};

pub(crate) async fn run(context: ToolContext<'_>, args: VenvInstallArgs) -> ToolOutcome {
    match install_script(context, &args) {
        Ok(shell) => {
            let timeout_ms = context.settings.command_timeout_ms_max;
            let leaves = ShellToolEffect::MayChange;
            let running = ShellToolCall {
                tool: NAME,
                shell,
                cwd: None,
                timeout_ms,
                effect: leaves,
                nonzero_is_error: true,
            };
            shell_tool::run_shell_tool(context, running).await
        }
        Err(text) => ToolOutcome::error(NAME, text),
    }
}

fn install_script(context: ToolContext<'_>, args: &VenvInstallArgs) -> Result<String, String> {
    let words = args.pip_args()?;
    if let Some(file) = args.requirements_path()? {
        load_file(context.root, &file).map_err(|error| format!("`requirements`: {error}"))?;
    }
    let mut shell = format!(
        "set -e\n\
         if [ -L {FOLDER} ]; then echo '{FOLDER} is a link, and no environment is made behind one' >&2; exit 1; fi\n\
         if [ ! -f {FOLDER}/{COMPLETE_MARKER} ] && [ ! -x {FOLDER}/bin/pip ]; then rm -rf {FOLDER}; mkdir {FOLDER}; printf '*\\n' > {FOLDER}/.gitignore; \
         python3 -m venv {FOLDER}; : > {FOLDER}/{COMPLETE_MARKER}; echo 'made the environment {FOLDER}'; fi\n"
    );
    if !words.is_empty() {
        // A call with network access has a proxy in its environment; otherwise pip would wait for a connection that
        // cannot succeed.
        shell.push_str(&format!(
            "alone='--no-index --no-build-isolation'; if [ -n \"${{https_proxy:-}}\" ]; then alone=; fi\n\
             PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_CONFIG_FILE=/dev/null exec {FOLDER}/bin/python -m pip \
             install $alone {}\n",
            join_quoted(&words)
        ));
    }
    Ok(shell)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::{TestWorkspace, has_program};

    /// A handmade wheel, which pip installs without a build and without the network.
    pub(in super::super) fn build_wheel(w: &mut TestWorkspace) {
        let line = r#"mkdir -p wheels && python3 - <<'E'
import zipfile
with zipfile.ZipFile("wheels/greet-1.0-py3-none-any.whl", "w") as z:
    z.writestr("greet.py", "def hello(): return 'hello from the wheel'\n")
    z.writestr("greet-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n")
    z.writestr("greet-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("greet-1.0.dist-info/RECORD", "greet.py,,\ngreet-1.0.dist-info/METADATA,,\ngreet-1.0.dist-info/WHEEL,,\ngreet-1.0.dist-info/RECORD,,\n")
E"#;
        assert_eq!(w.call_tool("run_command", json!({"command": line})).facts.exit, Some(0));
    }

    #[test]
    fn environment_is_created_once_and_installs_a_local_file() {
        let mut w = TestWorkspace::new(&[]);
        if !has_program("ensurepip") {
            return;
        }
        let out = w.call_tool("venv_run", json!({"command": "true"}));
        assert!(out.is_error && out.text().contains("venv_install makes it"), "{}", out.text());
        let out = w.call_tool(NAME, json!({}));
        assert!(!out.is_error && out.text().contains("made the environment"), "{}", out.text());
        build_wheel(&mut w);
        let out = w.call_tool(NAME, json!({"packages": ["./wheels/greet-1.0-py3-none-any.whl"]}));
        assert!(out.text().contains("Successfully installed greet-1.0"), "{}", out.text());
        assert!(!out.text().contains("made the environment") && out.facts.may_have_changed_tree);
        w.write_file("sub/deep/x", "");
        let line = "python -c 'import greet, sys; print(greet.hello(), sys.prefix != sys.base_prefix)'";
        for cwd in ["", "sub/deep"] {
            let out = w.call_tool("venv_run", json!({"command": line, "cwd": cwd}));
            assert!(out.text().contains("hello from the wheel True"), "{}", out.text());
        }
        // git leaves it out without configuration.
        let told =
            w.call_tool("run_command", json!({"command": "git init -q . && git add -A && git ls-files"}));
        assert!(!told.text().contains(FOLDER), "{}", told.text());
        // Packages outside the workspace are unreachable, and the call does not wait for them.
        let out = w.call_tool(NAME, json!({"packages": ["surely-there-is-no-such-package"]}));
        assert!(out.is_error && out.text().contains("No matching distribution"), "{}", out.text());
    }

    /// The interpreter exists long before pip: if a worker died in between, the environment is recreated.
    #[test]
    fn incomplete_environment_is_recreated() {
        let mut w = TestWorkspace::new(&[]);
        if !has_program("ensurepip") {
            return;
        }
        let line = format!("mkdir -p {FOLDER}/bin && ln -s /usr/bin/python3 {FOLDER}/bin/python");
        assert_eq!(w.call_tool("run_command", json!({"command": line})).facts.exit, Some(0));
        assert!(w.call_tool("venv_run", json!({"command": "true"})).is_error, "it is none yet");
        build_wheel(&mut w);
        let out = w.call_tool(NAME, json!({"packages": ["./wheels/greet-1.0-py3-none-any.whl"]}));
        assert!(out.text().contains("made the environment") && !out.is_error, "{}", out.text());
        assert!(out.text().contains("Successfully installed greet-1.0"), "{}", out.text());
        assert_eq!(
            w.call_tool("venv_run", json!({"command": "python -c 'import greet'"})).facts.exit,
            Some(0)
        );
    }

    #[test]
    fn invalid_packages_are_rejected_before_anything_runs() {
        let mut w = TestWorkspace::new(&[]);
        w.create_link("out.txt", "/etc/passwd");
        w.create_link(FOLDER, "/tmp");
        for args in [
            json!({"packages": ["--index-url=http://x"]}),
            json!({"packages": ["-e", "."]}),
            json!({"packages": [""]}),
            json!({"packages": ["a\nb"]}),
            json!({"requirements": "../r.txt"}),
            json!({"requirements": "absent.txt"}),
            json!({"requirements": "out.txt"}),
            json!({"packages": vec!["a"; 101]}),
        ] {
            let out = w.call_tool(NAME, args.clone());
            assert!(out.is_error && !out.facts.may_have_changed_tree, "{args}: {}", out.text());
        }
        let out = w.call_tool(NAME, json!({}));
        assert!(out.is_error && out.text().contains("is a link"), "{}", out.text());
    }
}

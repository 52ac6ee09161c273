//! `venv_install`: packages into the environment, which is made where it is not there.

use super::{
    super::line::{self, Leaves, Running},
    place::{FOLDER, WHOLE},
};
use crate::calls::joined;
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::files::load,
};

pub(crate) use crate::calls::venv_install::{Args, DESCRIPTION, NAME};

pub(crate) async fn run(context: ToolContext<'_>, args: Args) -> ToolOutcome {
    match shell(context, &args) {
        Ok(shell) => {
            let timeout_ms = context.settings.command_timeout_ms_max;
            let leaves = Leaves::Changes;
            let running = Running { tool: NAME, shell, cwd: None, timeout_ms, leaves, must_end_well: true };
            line::run(context, running).await
        }
        Err(text) => ToolOutcome::error(NAME, text),
    }
}

fn shell(context: ToolContext<'_>, args: &Args) -> Result<String, String> {
    let words = args.words()?;
    if let Some(file) = args.requirements()? {
        load(context.root, &file).map_err(|error| format!("`requirements`: {error}"))?;
    }
    let mut shell = format!(
        "set -e\n\
         if [ -L {FOLDER} ]; then echo '{FOLDER} is a link, and no environment is made behind one' >&2; exit 1; fi\n\
         if [ ! -f {FOLDER}/{WHOLE} ] && [ ! -x {FOLDER}/bin/pip ]; then rm -rf {FOLDER}; mkdir {FOLDER}; printf '*\\n' > {FOLDER}/.gitignore; \
         python3 -m venv {FOLDER}; : > {FOLDER}/{WHOLE}; echo 'made the environment {FOLDER}'; fi\n"
    );
    if !words.is_empty() {
        // A call that policy gives the network finds a proxy in its environment; without, pip would wait for what
        // cannot come.
        shell.push_str(&format!(
            "alone='--no-index --no-build-isolation'; if [ -n \"${{https_proxy:-}}\" ]; then alone=; fi\n\
             PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_CONFIG_FILE=/dev/null exec {FOLDER}/bin/python -m pip \
             install $alone {}\n",
            joined(&words)
        ));
    }
    Ok(shell)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::{Workspace, has};

    /// A package that pip installs without building anything and without the network: a wheel, made by hand.
    pub(in super::super) fn wheel(w: &mut Workspace) {
        let line = r#"mkdir -p wheels && python3 - <<'E'
import zipfile
with zipfile.ZipFile("wheels/greet-1.0-py3-none-any.whl", "w") as z:
    z.writestr("greet.py", "def hello(): return 'hello from the wheel'\n")
    z.writestr("greet-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: greet\nVersion: 1.0\n")
    z.writestr("greet-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    z.writestr("greet-1.0.dist-info/RECORD", "greet.py,,\ngreet-1.0.dist-info/METADATA,,\ngreet-1.0.dist-info/WHEEL,,\ngreet-1.0.dist-info/RECORD,,\n")
E"#;
        assert_eq!(w.call("run_command", json!({"command": line})).facts.exit, Some(0));
    }

    #[test]
    fn the_environment_is_made_once_and_a_file_of_the_workspace_is_installed() {
        let mut w = Workspace::new(&[]);
        if !has("ensurepip") {
            return;
        }
        let out = w.call("venv_run", json!({"command": "true"}));
        assert!(out.is_error && out.text().contains("venv_install makes it"), "{}", out.text());
        let out = w.call(NAME, json!({}));
        assert!(!out.is_error && out.text().contains("made the environment"), "{}", out.text());
        wheel(&mut w);
        let out = w.call(NAME, json!({"packages": ["./wheels/greet-1.0-py3-none-any.whl"]}));
        assert!(out.text().contains("Successfully installed greet-1.0"), "{}", out.text());
        assert!(!out.text().contains("made the environment") && out.facts.may_have_changed_tree);
        w.write("sub/deep/x", "");
        let line = "python -c 'import greet, sys; print(greet.hello(), sys.prefix != sys.base_prefix)'";
        for cwd in ["", "sub/deep"] {
            let out = w.call("venv_run", json!({"command": line, "cwd": cwd}));
            assert!(out.text().contains("hello from the wheel True"), "{}", out.text());
        }
        // git leaves it out by itself.
        let told = w.call("run_command", json!({"command": "git init -q . && git add -A && git ls-files"}));
        assert!(!told.text().contains(FOLDER), "{}", told.text());
        // What is not of the workspace cannot come from anywhere, and nobody waits for it.
        let out = w.call(NAME, json!({"packages": ["surely-there-is-no-such-package"]}));
        assert!(out.is_error && out.text().contains("No matching distribution"), "{}", out.text());
    }

    /// An interpreter is there long before pip: where a worker died between them, it is made anew.
    #[test]
    fn a_half_made_environment_is_made_anew() {
        let mut w = Workspace::new(&[]);
        if !has("ensurepip") {
            return;
        }
        let line = format!("mkdir -p {FOLDER}/bin && ln -s /usr/bin/python3 {FOLDER}/bin/python");
        assert_eq!(w.call("run_command", json!({"command": line})).facts.exit, Some(0));
        assert!(w.call("venv_run", json!({"command": "true"})).is_error, "it is none yet");
        wheel(&mut w);
        let out = w.call(NAME, json!({"packages": ["./wheels/greet-1.0-py3-none-any.whl"]}));
        assert!(out.text().contains("made the environment") && !out.is_error, "{}", out.text());
        assert!(out.text().contains("Successfully installed greet-1.0"), "{}", out.text());
        assert_eq!(w.call("venv_run", json!({"command": "python -c 'import greet'"})).facts.exit, Some(0));
    }

    #[test]
    fn what_is_no_package_is_refused_before_anything_runs() {
        let mut w = Workspace::new(&[]);
        w.link("out.txt", "/etc/passwd");
        w.link(FOLDER, "/tmp");
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
            let out = w.call(NAME, args.clone());
            assert!(out.is_error && !out.facts.may_have_changed_tree, "{args}: {}", out.text());
        }
        let out = w.call(NAME, json!({}));
        assert!(out.is_error && out.text().contains("is a link"), "{}", out.text());
    }
}

//! Configuration files that a command names, looked at before and after it: what it replaced whole is put back, as
//! `create_file` and `edit_file` would have refused it.
//!
//! A courtesy, as all that is read from a command's text: a script that names no file is not seen through. Lock files
//! are made anew by their tools, and git puts back what was committed; neither is looked at.

use docket_schema::content::WorkPath;

use crate::calls::work_path;
use crate::{
    project::config_files::{is_config, is_replaced_whole},
    shell::commands,
    tools::{
        context::tool_context::ToolContext,
        file_access::files::{Loaded, load, replace},
    },
};

/// Files of one command that are looked at.
const FILES_MAX: usize = 8;

/// Configuration files as they were before a command.
pub(crate) struct Before(Vec<(WorkPath, Loaded)>);

/// Reads the configuration files that a shell line in `cwd` names.
pub(crate) fn before(context: ToolContext<'_>, line: &str, cwd: Option<&WorkPath>) -> Before {
    let own = cwd.map(ToString::to_string);
    let mut folders = vec![own.clone().unwrap_or_default()];
    let (mut names, mut files): (Vec<String>, Vec<(WorkPath, Loaded)>) = (Vec::new(), Vec::new());
    for command in commands(line) {
        match (command.program(), command.args()) {
            ("git", _) => continue,
            ("cd" | "pushd", [folder, ..]) => {
                folders.push(format!("{}/{folder}", own.as_deref().unwrap_or_default()));
            }
            _ => {}
        }
        let words = command.words.iter().chain(&command.writes_to);
        let parts =
            words.flat_map(|word| word.split(|c: char| !c.is_alphanumeric() && !"._-+@/".contains(c)));
        names.extend(parts.filter(|part| !part.is_empty()).map(str::to_owned));
    }
    names.sort_unstable();
    names.dedup();
    for name in &names {
        for folder in &folders {
            let path = format!("{folder}/{name}");
            let Ok(path) = work_path(path.trim_start_matches('/')) else { continue };
            let wanted = is_config(&path) && !is_lock(&path) && files.iter().all(|(known, _)| *known != path);
            if wanted
                && files.len() < FILES_MAX
                && let Ok(loaded) = load(context.root, &path)
            {
                files.push((path, loaded));
            }
        }
    }
    Before(files)
}

/// Made by a tool, as a whole.
fn is_lock(path: &WorkPath) -> bool {
    let name = path.to_string();
    name.ends_with(".lock") || name.contains("-lock.") || name.ends_with("go.sum")
}

impl Before {
    /// Puts back what was replaced whole, and says so to the model; nothing where nothing was. A file that is gone
    /// was removed, which may be the task.
    pub(crate) fn put_back(&self, context: ToolContext<'_>) -> String {
        let mut told = String::new();
        for (path, old) in &self.0 {
            let Ok(now) = load(context.root, path) else { continue };
            if !is_replaced_whole(&old.bytes, &now.bytes) {
                continue;
            }
            let how = "Change it with edit_file, which needs it read first, and keep what need not change.";
            told.push_str(&match replace(context.root, path, &now, &old.bytes) {
                Ok(()) => format!(
                    "`{path}` configures the project, and this command replaced it whole: it was put back as it was. {how}\n"
                ),
                Err(error) => format!(
                    "`{path}` configures the project, and this command replaced it whole; putting it back failed \
                     ({error}). {how}\n"
                ),
            });
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::tools::testing::Workspace;

    const TOML: &str =
        "[project]\nname = \"a\"\nversion = \"1\"\ndependencies = []\n\n[tool.ruff]\nline-length = 99\n";

    #[test]
    fn a_command_that_replaces_a_config_file_is_undone_and_told() {
        for (cwd, line) in [
            (None, "printf 'x = 1\\n' > sub/pyproject.toml"),
            (Some("sub"), "cat > pyproject.toml <<'EOF'\n[project]\nname = \"b\"\nEOF"),
            (None, "cd sub && echo > new && mv new pyproject.toml"),
            (None, "sh -c 'printf x > sub/pyproject.toml'"),
            (Some("sub"), "rm pyproject.toml; echo x | tee ./pyproject.toml"),
        ] {
            let mut w = Workspace::new(&[("sub/pyproject.toml", TOML)]);
            let out = w.call("run_command", json!({ "command": line, "cwd": cwd }));
            assert!(
                out.text().contains("`sub/pyproject.toml` configures the project"),
                "{line}: {}",
                out.text()
            );
            assert_eq!(w.read("sub/pyproject.toml"), TOML, "{line}");
        }
    }

    #[test]
    fn honest_changes_removals_and_lock_files_stay() {
        for (line, after) in [
            ("sed -i s/99/100/ pyproject.toml", TOML.replace("99", "100")),
            ("echo '# more' >> pyproject.toml", format!("{TOML}# more\n")),
            ("grep name pyproject.toml", TOML.to_owned()),
            ("echo all > uv.lock; cat pyproject.toml", TOML.to_owned()),
        ] {
            let mut w = Workspace::new(&[("pyproject.toml", TOML), ("uv.lock", TOML)]);
            let out = w.call("run_command", json!({ "command": line }));
            assert!(!out.text().contains("put back"), "{line}: {}", out.text());
            assert_eq!(w.read("pyproject.toml"), after, "{line}");
            assert_eq!(w.read("uv.lock") == "all\n", line.contains("uv.lock"));
        }
        let mut w = Workspace::new(&[("Dockerfile", TOML)]);
        let out = w.call("run_command", json!({ "command": "rm Dockerfile" }));
        assert!(!out.is_error && !out.text().contains("put back") && !w.path("Dockerfile").exists());
    }
}

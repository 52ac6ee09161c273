//! Configuration files that a command names, looked at before and after it: what it replaced whole is put back, as
//! `create_file` and `edit_file` would have refused it.
//!
//! A courtesy, as all that is read from a command's text: a script that names no file is not seen through. Lock files
//! are made anew by their tools, and git puts back what was committed; neither is looked at.

use docket_schema::content::WorkspacePath;

use crate::calls::parse_workspace_path;
use crate::{
    project::config_files::{is_config_file, is_full_replacement},
    shell::parse_commands,
    tools::{
        context::tool_context::ToolContext,
        file_access::files::{LoadedFile, load_file, replace_file},
    },
};

/// Files of one command that are looked at.
const FILES_MAX: usize = 8;

/// Configuration files as they were before a command.
pub(crate) struct ConfigBackup(Vec<(WorkspacePath, LoadedFile)>);

/// Reads the configuration files that a shell line in `cwd` names.
pub(crate) fn back_up_configs(
    context: ToolContext<'_>,
    line: &str,
    cwd: Option<&WorkspacePath>,
) -> ConfigBackup {
    let own = cwd.map(ToString::to_string);
    let mut folders = vec![own.clone().unwrap_or_default()];
    let (mut names, mut files): (Vec<String>, Vec<(WorkspacePath, LoadedFile)>) = (Vec::new(), Vec::new());
    for command in parse_commands(line) {
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
            let Ok(path) = parse_workspace_path(path.trim_start_matches('/')) else { continue };
            let wanted = is_config_file(&path)
                && !is_lock_file(&path)
                && files.iter().all(|(known, _)| *known != path);
            if wanted
                && files.len() < FILES_MAX
                && let Ok(loaded) = load_file(context.root, &path)
            {
                files.push((path, loaded));
            }
        }
    }
    ConfigBackup(files)
}

/// Made by a tool, as a whole.
fn is_lock_file(path: &WorkspacePath) -> bool {
    let name = path.to_string();
    name.ends_with(".lock") || name.contains("-lock.") || name.ends_with("go.sum")
}

impl ConfigBackup {
    /// Puts back what was replaced whole, and says so to the model; nothing where nothing was. A file that is gone
    /// was removed, which may be the task.
    pub(crate) fn restore_replaced(&self, context: ToolContext<'_>) -> String {
        let mut told = String::new();
        for (path, old) in &self.0 {
            let Ok(now) = load_file(context.root, path) else { continue };
            if !is_full_replacement(&old.bytes, &now.bytes) {
                continue;
            }
            let how = "Change it with edit_file, which needs it read first, and keep what need not change.";
            told.push_str(&match replace_file(context.root, path, &now, &old.bytes) {
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

    use crate::tools::testing::TestWorkspace;

    const PYPROJECT: &str =
        "[project]\nname = \"a\"\nversion = \"1\"\ndependencies = []\n\n[tool.ruff]\nline-length = 99\n";

    #[test]
    fn command_that_replaces_a_config_file_is_undone_and_reported() {
        for (cwd, line) in [
            (None, "printf 'x = 1\\n' > sub/pyproject.toml"),
            (Some("sub"), "cat > pyproject.toml <<'EOF'\n[project]\nname = \"b\"\nEOF"),
            (None, "cd sub && echo > new && mv new pyproject.toml"),
            (None, "sh -c 'printf x > sub/pyproject.toml'"),
            (Some("sub"), "rm pyproject.toml; echo x | tee ./pyproject.toml"),
        ] {
            let mut w = TestWorkspace::new(&[("sub/pyproject.toml", PYPROJECT)]);
            let out = w.call_tool("run_command", json!({ "command": line, "cwd": cwd }));
            assert!(
                out.text().contains("`sub/pyproject.toml` configures the project"),
                "{line}: {}",
                out.text()
            );
            assert_eq!(w.read_file("sub/pyproject.toml"), PYPROJECT, "{line}");
        }
    }

    #[test]
    fn edits_removals_and_lock_files_are_kept() {
        for (line, after) in [
            ("sed -i s/99/100/ pyproject.toml", PYPROJECT.replace("99", "100")),
            ("echo '# more' >> pyproject.toml", format!("{PYPROJECT}# more\n")),
            ("grep name pyproject.toml", PYPROJECT.to_owned()),
            ("echo all > uv.lock; cat pyproject.toml", PYPROJECT.to_owned()),
        ] {
            let mut w = TestWorkspace::new(&[("pyproject.toml", PYPROJECT), ("uv.lock", PYPROJECT)]);
            let out = w.call_tool("run_command", json!({ "command": line }));
            assert!(!out.text().contains("put back"), "{line}: {}", out.text());
            assert_eq!(w.read_file("pyproject.toml"), after, "{line}");
            assert_eq!(w.read_file("uv.lock") == "all\n", line.contains("uv.lock"));
        }
        let mut w = TestWorkspace::new(&[("Dockerfile", PYPROJECT)]);
        let out = w.call_tool("run_command", json!({ "command": "rm Dockerfile" }));
        assert!(!out.is_error && !out.text().contains("put back") && !w.full_path("Dockerfile").exists());
    }
}

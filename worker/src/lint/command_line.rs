//! Builds the shell line that runs a linter on given files.

use docket_schema::{content::WorkspacePath, run::LinterSpec};

use crate::shell::quote;

/// Placeholder for the files in a command template.
const FILES_PLACEHOLDER: &str = "{files}";

/// Whether `linter` handles files of this name.
#[must_use]
pub fn applies_to(linter: &LinterSpec, path: &WorkspacePath) -> bool {
    let name = path.components().last().unwrap_or_default();
    let end = name.rsplit(|byte| *byte == b'.').next().filter(|end| end.len() < name.len());
    // A shell line is text: a name that is not UTF-8 is left out.
    std::str::from_utf8(path.as_bytes()).is_ok()
        && end.is_some_and(|end| linter.extensions.iter().any(|extension| extension.as_bytes() == end))
}

/// Whether `linter` checks the whole project, whichever files it is given.
#[must_use]
pub fn checks_whole_project(linter: &LinterSpec) -> bool {
    !linter.check.contains(FILES_PLACEHOLDER)
}

/// Puts the quoted paths into `template`. A path that could be read as an option gets a leading `./`.
#[must_use]
pub fn render_command(template: &str, files: &[WorkspacePath]) -> String {
    let quoted = files
        .iter()
        .filter_map(|path| std::str::from_utf8(path.as_bytes()).ok())
        .map(|path| if path.starts_with('-') { quote(&format!("./{path}")) } else { quote(path) });
    template.replace(FILES_PLACEHOLDER, &quoted.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_and_never_read_as_options() {
        let files = ["a.py", "it's.py", "-x.py"].map(|path| WorkspacePath::new(path).expect("legal"));
        assert_eq!(
            render_command("ruff check {files} && true", &files),
            r"ruff check a.py 'it'\''s.py' ./-x.py && true"
        );
    }

    #[test]
    fn linter_applies_to_its_extensions() {
        let linter = LinterSpec {
            name: "ruff".into(),
            extensions: vec!["py".into()],
            check: String::new(),
            project: None,
            fix: None,
            gates: false,
        };
        for (path, is) in [("a.py", true), ("b/c.d.py", true), ("py", false), ("a.pyc", false), (".py", true)]
        {
            assert_eq!(applies_to(&linter, &WorkspacePath::new(path).expect("legal")), is, "{path}");
        }
    }
}

//! The shell line of a linter for some files.

use docket_schema::{content::WorkspacePath, run::LinterSpec};

use crate::shell::quote;

/// What stands for the files in a template.
const FILES_PLACEHOLDER: &str = "{files}";

/// Whether `linter` is for files of this name.
#[must_use]
pub fn applies_to(linter: &LinterSpec, path: &WorkspacePath) -> bool {
    let name = path.components().last().unwrap_or_default();
    let end = name.rsplit(|byte| *byte == b'.').next().filter(|end| end.len() < name.len());
    // A line of shell is text: a name that is none is left out.
    std::str::from_utf8(path.as_bytes()).is_ok()
        && end.is_some_and(|end| linter.extensions.iter().any(|extension| extension.as_bytes() == end))
}

/// Whether `linter` looks at the whole project, whatever files it is given.
#[must_use]
pub fn checks_whole_project(linter: &LinterSpec) -> bool {
    !linter.check.contains(FILES_PLACEHOLDER)
}

/// `template` with the quoted paths in it. Each begins with `./` where it could be read as an option.
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

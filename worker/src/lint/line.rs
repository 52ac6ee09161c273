//! The shell line of a linter for some files.

use docket_schema::{content::WorkPath, run::LinterSpec};

use crate::shell::quote;

/// What stands for the files in a template.
const FILES: &str = "{files}";

/// Whether `linter` is for files of this name.
#[must_use]
pub fn is_for(linter: &LinterSpec, path: &WorkPath) -> bool {
    let name = path.parts().last().unwrap_or_default();
    let end = name.rsplit(|byte| *byte == b'.').next().filter(|end| end.len() < name.len());
    // A line of shell is text: a name that is none is left out.
    std::str::from_utf8(path.as_bytes()).is_ok()
        && end.is_some_and(|end| linter.extensions.iter().any(|extension| extension.as_bytes() == end))
}

/// Whether `linter` looks at the whole project, whatever files it is given.
#[must_use]
pub fn is_of_project(linter: &LinterSpec) -> bool {
    !linter.check.contains(FILES)
}

/// `template` with the quoted paths in it. Each begins with `./` where it could be read as an option.
#[must_use]
pub fn line(template: &str, files: &[WorkPath]) -> String {
    let quoted = files
        .iter()
        .filter_map(|path| std::str::from_utf8(path.as_bytes()).ok())
        .map(|path| if path.starts_with('-') { quote(&format!("./{path}")) } else { quote(path) });
    template.replace(FILES, &quoted.collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_quoted_and_no_options() {
        let files = ["a.py", "it's.py", "-x.py"].map(|path| WorkPath::new(path).expect("legal"));
        assert_eq!(
            line("ruff check {files} && true", &files),
            r"ruff check a.py 'it'\''s.py' ./-x.py && true"
        );
    }

    #[test]
    fn a_linter_is_for_its_endings() {
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
            assert_eq!(is_for(&linter, &WorkPath::new(path).expect("legal")), is, "{path}");
        }
    }
}

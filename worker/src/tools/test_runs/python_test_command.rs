//! Builds the shell lines that run Python tests: with pytest if it is installed, otherwise with unittest.
//!
//! unittest finds tests only inside packages, so it is started once in each folder that contains tests and is not a
//! package.

use cap_std::fs::Dir;

use crate::calls::parse_workspace_path;
use crate::{
    shell::quote,
    tools::{file_access::files::load_file, text::output::printable_text},
};

/// Options for short pytest output. `--verbosity` overrides the project's own `-q` and `-v`; another `-q` would add
/// up with the project's, and the counts would no longer be printed.
const PYTEST_ARGS: &str = "--verbosity=-1 -p no:cacheprovider";

/// pytest and unittest both exit with 5 if they find no tests.
const NONE_COLLECTED: &str = "; s=$?; [ $s -eq 5 ] || exit $s";

/// Selects the interpreter.
const INTERPRETER: &str = "p=python3; [ ! -x .venv/bin/python ] || p=.venv/bin/python; ";

/// Files that mark a folder as a Python project.
const PROJECT_FILES: [&str; 6] =
    ["pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini", "requirements.txt"];

/// What to test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PythonTestTarget {
    All,
    /// A folder and, if it is a package, the folder in which its dotted name starts.
    Folder {
        folder: String,
        top_folder: Option<String>,
    },
    /// A module or something in it, and the folder in which its dotted name starts.
    Module {
        name: String,
        top_folder: String,
    },
}

impl PythonTestTarget {
    /// Resolves `path` in the project at `root`.
    pub(crate) fn from_path(root: &Dir, path: &str) -> Self {
        let (file, test) = path.split_once("::").map_or((path, None), |(file, test)| (file, Some(test)));
        if test.is_none() && root.metadata(file).is_ok_and(|meta| meta.is_dir()) {
            let from = is_package(root, file).then(|| folder_above_packages(root, file));
            return Self::Folder { folder: file.to_owned(), top_folder: from };
        }
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        let from =
            if root.metadata(file).is_ok() { folder_above_packages(root, folder) } else { String::new() };
        let inner = file.strip_prefix(&from).unwrap_or(file).trim_start_matches('/');
        let module = inner.strip_suffix(".py").unwrap_or(inner).replace('/', ".");
        let name = test.map_or(module.clone(), |test| format!("{module}.{}", test.replace("::", ".")));
        Self::Module { name, top_folder: from }
    }

    /// Builds the shell line to run in `folder`; `path` is in pytest's form.
    pub(crate) fn shell_line(&self, folder: &str, path: Option<&str>) -> String {
        let quoted = path.map(|path| format!(" {}", quote(path))).unwrap_or_default();
        // The root's environment is used if the folder has none, and the root's modules can still be imported.
        let there = if folder.is_empty() {
            INTERPRETER.to_owned()
        } else {
            format!(
                "export PYTHONPATH=\"$PWD${{PYTHONPATH:+:$PYTHONPATH}}\"; p=python3; [ ! -x .venv/bin/python ] || \
                 p=$PWD/.venv/bin/python; cd {} || exit 2; [ ! -x .venv/bin/python ] || p=.venv/bin/python; ",
                quote(folder)
            )
        };
        format!(
            "{there}if $p -c 'import pytest' 2>/dev/null; then $p -m pytest {PYTEST_ARGS}{quoted}; else {}; fi{}",
            self.unittest_command(),
            // If no tests were requested by name, having none is not a failure.
            if path.is_none() { NONE_COLLECTED } else { "" },
        )
    }

    fn unittest_command(&self) -> String {
        match self {
            Self::All => discover_below("."),
            Self::Folder { folder, top_folder: None } => discover_below(&quote(&format!("./{folder}"))),
            Self::Folder { folder, top_folder: Some(from) } => {
                let from = if from.is_empty() { "." } else { from };
                format!("$p -m unittest discover -v -s {} -t {}", quote(folder), quote(from))
            }
            Self::Module { name, top_folder: from } if from.is_empty() => {
                format!("$p -m unittest -v {}", quote(name))
            }
            Self::Module { name, top_folder: from } => format!(
                "PYTHONPATH={}${{PYTHONPATH:+:$PYTHONPATH}} $p -m unittest -v {}",
                quote(from),
                quote(name)
            ),
        }
    }
}

/// Runs discovery in each folder below that contains test files; for a package, in the nearest parent that is not one.
fn discover_below(folder: &str) -> String {
    format!(
        "(d=$(find {folder} -name 'test*.py' ! -path '*/.*' ! -path '*/node_modules/*' ! -path '*/fixtures/*' ! -path \
         '*/testdata/*' | while read -r f; do f=${{f%/*}}; while [ -e \"$f/__init__.py\" ] && [ \"$f\" != . ]; do \
         f=${{f%/*}}; done; echo \"$f\"; done | sort -u); s=0; for f in ${{d:-.}}; do $p -m unittest discover -v -s \
         \"$f\" || {{ r=$?; [ $r -eq 5 ] || s=$r; }}; done; exit $s)"
    )
}

/// The line for the whole project under rules version 0: older runs still decide by it.
pub(crate) fn legacy_line() -> String {
    format!(
        "{INTERPRETER}if $p -c 'import pytest' 2>/dev/null; then $p -m pytest {PYTEST_ARGS}; else $p -m unittest \
         discover -v; fi{NONE_COLLECTED}"
    )
}

fn is_package(root: &Dir, folder: &str) -> bool {
    !folder.is_empty() && root.metadata(format!("{folder}/__init__.py")).is_ok()
}

/// The nearest folder, itself included, that is not a package; empty for the root.
fn folder_above_packages(root: &Dir, folder: &str) -> String {
    let mut folder = folder;
    while is_package(root, folder) {
        folder = folder.rsplit_once('/').map_or("", |(above, _)| above);
    }
    folder.to_owned()
}

/// Whether a folder below the root is a separate project; not if only the root configures pytest.
pub(crate) fn is_own_project(root: &Dir, near: &Dir) -> bool {
    let is_project = PROJECT_FILES.iter().any(|name| near.metadata(name).is_ok_and(|meta| meta.is_file()));
    is_project && (configures_pytest(near) || !configures_pytest(root))
}

fn configures_pytest(folder: &Dir) -> bool {
    let says = |name: &str, head: &str| {
        let file = parse_workspace_path(name).ok().and_then(|path| load_file(folder, &path).ok());
        file.is_some_and(|file| printable_text(&file.bytes).lines().any(|line| line.trim().starts_with(head)))
    };
    folder.metadata("pytest.ini").is_ok()
        || says("pyproject.toml", "[tool.pytest")
        || says("tox.ini", "[pytest]")
        || says("setup.cfg", "[tool:pytest]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legacy_line_is_unchanged() {
        let old = "p=python3; [ ! -x .venv/bin/python ] || p=.venv/bin/python; if $p -c 'import pytest' 2>/dev/null; then $p \
                   -m pytest --verbosity=-1 -p no:cacheprovider; else $p -m unittest discover -v; fi; s=$?; [ $s -eq 5 ] || \
                   exit $s";
        assert_eq!(legacy_line(), old);
        let names = [b"test_a.py".as_slice()];
        assert_eq!(crate::tools::test_command_by_names(names.into_iter(), 0).as_deref(), Some(old));
        assert_ne!(crate::tools::test_command_by_names(names.into_iter(), 1).as_deref(), Some(old));
    }
}

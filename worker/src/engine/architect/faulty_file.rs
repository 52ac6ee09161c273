//! Attributes a failure to a single file that the run wrote, so that the coder can fix it (D5), based on the files
//! that the failure names. Pure.
//!
//! A failure that names several files the run did not touch concerns their interaction, and goes to the architect.
//! One such file is allowed: the test that detected it. Files outside the workspace (of an interpreter or a package)
//! do not count.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::{Content, WorkspacePath},
    run::RunState,
};

use super::super::roles::role_conversation;
use crate::tools;

/// Files that a failure may name in addition to written ones.
const UNWRITTEN_FILES_MAX: usize = 1;

/// Extensions of source files.
const SOURCE_EXTENSIONS: [&str; 36] = [
    "py", "pyi", "rs", "js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte", "go", "java",
    "kt", "scala", "c", "h", "cc", "cpp", "cxx", "hpp", "hh", "m", "swift", "cs", "rb", "php", "sh", "bash",
    "lua", "ex", "exs", "sql", "css",
];

/// Folders of installed packages, at any depth.
const INSTALLED_FOLDERS: [&str; 4] = ["site-packages", "node_modules", ".venv", "vendor"];

/// Returns the written file that a failure is about; `None` if it is not a single one.
pub(super) fn find_faulty_file(
    said: &[&Content],
    written: &BTreeSet<WorkspacePath>,
) -> Option<WorkspacePath> {
    let mut times: BTreeMap<&WorkspacePath, (usize, usize)> = BTreeMap::new();
    let mut others: BTreeSet<WorkspacePath> = BTreeSet::new();
    let named =
        said.iter().flat_map(|content| mentioned_files(role_conversation::inline_text(content))).enumerate();
    for (nth, path) in named {
        match written.get(&path) {
            Some(known) => {
                let (count, last) = times.entry(known).or_default();
                (*count, *last) = (*count + 1, nth);
            }
            None => drop(others.insert(path)),
        }
    }
    if others.len() > UNWRITTEN_FILES_MAX {
        return None;
    }
    // The file named most often; on a tie the last one, where a trace ends. A test is not blamed as long as another
    // file may be at fault: it would only be adapted to the bug.
    let most =
        times.into_iter().max_by_key(|(path, named)| (!is_test_file(path), *named)).map(|(path, _)| path);
    let only = || written.iter().next().filter(|_| written.len() == 1);
    most.or_else(only).cloned()
}

/// Returns the file that the failed final checks are about.
pub(super) fn faulty_file_of_checks(run: &RunState) -> Option<WorkspacePath> {
    let said: Vec<&Content> = run.engine_state.failed_checks.iter().map(|check| &check.content).collect();
    find_faulty_file(&said, &run.files_written)
}

/// Whether a file is a test, by its name.
fn is_test_file(path: &WorkspacePath) -> bool {
    let text = path.to_string();
    let (folders, name) = text.rsplit_once('/').unwrap_or(("", &text));
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let of_name = ["_test", ".test", "_spec", ".spec"].iter().any(|end| stem.ends_with(end));
    let of_folder =
        folders.split('/').any(|folder| matches!(folder, "test" | "tests" | "__tests__" | "spec"));
    of_name || of_folder || stem.starts_with("test_") || stem == "conftest"
}

/// Returns the files of the workspace that a text names, with repetitions.
fn mentioned_files(text: &str) -> impl Iterator<Item = WorkspacePath> {
    let is_part = |c: char| c.is_alphanumeric() || "_-./+@".contains(c);
    text.split(move |c| !is_part(c)).filter_map(|word| {
        let word = word.trim_end_matches('.');
        let (stem, ending) = word.rsplit_once('.')?;
        let is_source = SOURCE_EXTENSIONS.contains(&ending) && stem.chars().any(char::is_alphanumeric);
        let is_installed = word.split('/').any(|part| INSTALLED_FOLDERS.contains(&part));
        if !is_source || is_installed { None } else { tools::work_path_of(word) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> WorkspacePath {
        WorkspacePath::new(path).expect("a path")
    }

    #[test]
    fn failure_is_attributed_to_the_one_file_it_names() {
        let pytest =
            "tests/test_a.py:4: in test_f\n    assert f() == 2\na.py:2: in f\n    return g()\nE  NameError";
        for (said, written, whose) in [
            (pytest, vec!["a.py"], Some("a.py")),
            // Only the test detected it, and one file was written.
            ("FAILED tests/test_a.py::test_f - assert 1 == 2", vec!["a.py"], Some("a.py")),
            ("Traceback: AssertionError", vec!["a.py"], Some("a.py")),
            // Two files were written, and the failure names neither.
            ("FAILED tests/test_a.py::test_f - assert 1 == 2", vec!["a.py", "b.py"], None),
            ("Traceback: AssertionError", vec!["a.py", "b.py"], None),
            (
                "src/b.rs:3:5: error\nsrc/a.rs:1:1: note\nsrc/b.rs:9:2: error",
                vec!["src/a.rs", "src/b.rs"],
                Some("src/b.rs"),
            ),
            // A test that the run wrote is not adapted to the bug either.
            (pytest, vec!["a.py", "tests/test_a.py"], Some("a.py")),
            ("tests/test_a.py:4: NameError", vec!["a.py", "tests/test_a.py"], Some("tests/test_a.py")),
            // The trace passes through files that the run did not touch.
            ("x.py:1\ny.py:2\na.py:3", vec!["a.py"], None),
            ("tests/test_a.py:1\nconftest.py:2", vec!["a.py"], None),
            // Installed files, versions and calls are not files of the workspace.
            (
                "/usr/lib/python3.12/unittest/case.py\nlib/site-packages/x/y.py\nz.py in 0.01s a.f()",
                vec!["a.py"],
                Some("a.py"),
            ),
            ("/workspace/a.py:1: x\n/workspace/b.py", vec!["a.py"], Some("a.py")),
            ("make: *** [test] Error 1", vec![], None),
        ] {
            let written: BTreeSet<WorkspacePath> = written.into_iter().map(path).collect();
            let found = find_faulty_file(&[&said.into()], &written);
            assert_eq!(found, whose.map(path), "{said}");
        }
    }
}

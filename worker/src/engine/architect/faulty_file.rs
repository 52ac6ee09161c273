//! Whether a failure is that of one file which the run wrote, so that whoever writes can mend it (D5): by the files that
//! the failure names. Pure.
//!
//! A failure that names several files which the run did not touch is one of how things go together, and the architect's.
//! One such file may be there: the test that saw it. Files outside of the workspace (an interpreter's, a package's) say
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::{Content, WorkspacePath},
    run::RunState,
};

use super::super::roles::role_conversation;
use crate::tools;

/// Files that a failure may name beside those that were written.
const UNWRITTEN_FILES_MAX: usize = 1;

/// Endings of files that hold source text.
const SOURCE_EXTENSIONS: [&str; 36] = [
    "py", "pyi", "rs", "js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte", "go", "java",
    "kt", "scala", "c", "h", "cc", "cpp", "cxx", "hpp", "hh", "m", "swift", "cs", "rb", "php", "sh", "bash",
    "lua", "ex", "exs", "sql", "css",
];

/// Folders of what is installed, wherever they stand.
const INSTALLED_FOLDERS: [&str; 4] = ["site-packages", "node_modules", ".venv", "vendor"];

/// The written file that a failure is about; none where it is not one file's.
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
    // The one that is named most often; of those the last, where a trace ends. A test is not what is wrong, as long as
    // something else may be: it would only be made to agree.
    let most =
        times.into_iter().max_by_key(|(path, named)| (!is_test_file(path), *named)).map(|(path, _)| path);
    let only = || written.iter().next().filter(|_| written.len() == 1);
    most.or_else(only).cloned()
}

/// The file that the failed final checks are about.
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

/// The files of the workspace that a text names, each as often as it does.
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
            // The test alone saw it, and one file was written.
            ("FAILED tests/test_a.py::test_f - assert 1 == 2", vec!["a.py"], Some("a.py")),
            ("Traceback: AssertionError", vec!["a.py"], Some("a.py")),
            // Two were written, and none of them is named.
            ("FAILED tests/test_a.py::test_f - assert 1 == 2", vec!["a.py", "b.py"], None),
            ("Traceback: AssertionError", vec!["a.py", "b.py"], None),
            (
                "src/b.rs:3:5: error\nsrc/a.rs:1:1: note\nsrc/b.rs:9:2: error",
                vec!["src/a.rs", "src/b.rs"],
                Some("src/b.rs"),
            ),
            // A test that was written, too, is not made to agree.
            (pytest, vec!["a.py", "tests/test_a.py"], Some("a.py")),
            ("tests/test_a.py:4: NameError", vec!["a.py", "tests/test_a.py"], Some("tests/test_a.py")),
            // It goes through files that nobody touched.
            ("x.py:1\ny.py:2\na.py:3", vec!["a.py"], None),
            ("tests/test_a.py:1\nconftest.py:2", vec!["a.py"], None),
            // What is installed, and versions and calls, are no files of the workspace.
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

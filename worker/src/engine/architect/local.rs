//! Whether a failure is that of one file which the run wrote, so that whoever writes can mend it (D5): by the files that
//! the failure names. Pure.
//!
//! A failure that names several files which the run did not touch is one of how things go together, and the architect's.
//! One such file may be there: the test that saw it. Files outside of the workspace (an interpreter's, a package's) say
//! nothing.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::{Content, WorkPath},
    run::RunState,
};

use super::super::roles::seat;
use crate::tools;

/// Files that a failure may name beside those that were written.
const OTHERS_MAX: usize = 1;

/// Endings of files that hold source text.
const ENDINGS: [&str; 36] = [
    "py", "pyi", "rs", "js", "jsx", "mjs", "cjs", "ts", "tsx", "mts", "cts", "vue", "svelte", "go", "java",
    "kt", "scala", "c", "h", "cc", "cpp", "cxx", "hpp", "hh", "m", "swift", "cs", "rb", "php", "sh", "bash",
    "lua", "ex", "exs", "sql", "css",
];

/// Folders of what is installed, wherever they stand.
const INSTALLED: [&str; 4] = ["site-packages", "node_modules", ".venv", "vendor"];

/// The written file that a failure is about; none where it is not one file's.
pub(super) fn culprit(said: &[&Content], written: &BTreeSet<WorkPath>) -> Option<WorkPath> {
    let mut times: BTreeMap<&WorkPath, (usize, usize)> = BTreeMap::new();
    let mut others: BTreeSet<WorkPath> = BTreeSet::new();
    let named = said.iter().flat_map(|content| files(seat::words(content))).enumerate();
    for (nth, path) in named {
        match written.get(&path) {
            Some(known) => {
                let (count, last) = times.entry(known).or_default();
                (*count, *last) = (*count + 1, nth);
            }
            None => drop(others.insert(path)),
        }
    }
    if others.len() > OTHERS_MAX {
        return None;
    }
    // The one that is named most often; of those the last, where a trace ends. A test is not what is wrong, as long as
    // something else may be: it would only be made to agree.
    let most = times.into_iter().max_by_key(|(path, named)| (!is_test(path), *named)).map(|(path, _)| path);
    let only = || written.iter().next().filter(|_| written.len() == 1);
    most.or_else(only).cloned()
}

/// The file that the failed final checks are about.
pub(super) fn of_checks(run: &RunState) -> Option<WorkPath> {
    let said: Vec<&Content> = run.work.failed_checks.iter().map(|check| &check.content).collect();
    culprit(&said, &run.files_written)
}

/// Whether a file is a test, by its name.
fn is_test(path: &WorkPath) -> bool {
    let text = path.to_string();
    let (folders, name) = text.rsplit_once('/').unwrap_or(("", &text));
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let of_name = ["_test", ".test", "_spec", ".spec"].iter().any(|end| stem.ends_with(end));
    let of_folder =
        folders.split('/').any(|folder| matches!(folder, "test" | "tests" | "__tests__" | "spec"));
    of_name || of_folder || stem.starts_with("test_") || stem == "conftest"
}

/// The files of the workspace that a text names, each as often as it does.
fn files(text: &str) -> impl Iterator<Item = WorkPath> {
    let is_part = |c: char| c.is_alphanumeric() || "_-./+@".contains(c);
    text.split(move |c| !is_part(c)).filter_map(|word| {
        let word = word.trim_end_matches('.');
        let (stem, ending) = word.rsplit_once('.')?;
        let is_source = ENDINGS.contains(&ending) && stem.chars().any(char::is_alphanumeric);
        let is_installed = word.split('/').any(|part| INSTALLED.contains(&part));
        if !is_source || is_installed { None } else { tools::work_path_of(word) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(path: &str) -> WorkPath {
        WorkPath::new(path).expect("a path")
    }

    #[test]
    fn a_failure_is_a_files_where_it_names_it_and_little_else() {
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
            let written: BTreeSet<WorkPath> = written.into_iter().map(path).collect();
            let found = culprit(&[&said.into()], &written);
            assert_eq!(found, whose.map(path), "{said}");
        }
    }
}

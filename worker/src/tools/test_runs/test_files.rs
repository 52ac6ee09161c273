//! Finds files that contain tests, by their names and contents. A check that ran no tests is compared with them.

use cap_std::fs::Dir;
use docket_schema::content::WorkspacePath;

use crate::tools::file_access::{
    files::load_file,
    walk::{HiddenEntries, walk_folder},
};

/// Most names visited to find out whether a language has tests.
const VISITED_NAMES_MAX: usize = 5000;
/// Most test files named, and the largest that is read.
const NAMED_FILES_MAX: usize = 5;
const TEST_FILE_BYTES_MAX: usize = 512 * 1024;

/// Languages whose tests can be recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestLanguage {
    Python,
    Node,
    Go,
    Rust,
}

pub(crate) fn is_python_test(name: &[u8]) -> bool {
    name.ends_with(b".py") && (name.starts_with(b"test_") || name.ends_with(b"_test.py"))
}

pub(crate) fn is_node_test(name: &[u8]) -> bool {
    let name = String::from_utf8_lossy(name);
    let stem = [".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx"].iter().find_map(|end| name.strip_suffix(end));
    let marks = [".test", "-test", "_test", ".spec"];
    stem.is_some_and(|stem| {
        stem == "test" || stem.starts_with("test-") || marks.iter().any(|end| stem.ends_with(end))
    })
}

/// Whether there is a file with a matching name.
pub(crate) fn has_file_named(root: &Dir, folder: Option<&WorkspacePath>, is: impl Fn(&[u8]) -> bool) -> bool {
    let Ok(entries) = walk_folder(root, folder, Some(4), HiddenEntries::Skip) else { return false };
    let mut entries = entries.take(VISITED_NAMES_MAX);
    entries.any(|entry| !entry.is_dir && is(file_name(&entry.path)))
}

fn file_name(path: &WorkspacePath) -> &[u8] {
    path.components().last().unwrap_or_default()
}

/// The language whose tests a file of this name may contain; Rust files of any name may.
fn test_language(path: &WorkspacePath) -> Option<TestLanguage> {
    let name = file_name(path);
    match () {
        () if is_python_test(name) => Some(TestLanguage::Python),
        () if is_node_test(name) => Some(TestLanguage::Node),
        () if name.ends_with(b"_test.go") => Some(TestLanguage::Go),
        () if name.ends_with(b".rs") => Some(TestLanguage::Rust),
        () => None,
    }
}

impl TestLanguage {
    /// Whether the text contains a test, judged line by line: words within a line may be anything.
    fn contains_test(self, text: &str) -> bool {
        text.lines().any(|line| {
            let line = line.trim_start();
            let starts = |words: &[&str]| words.iter().any(|word| line.starts_with(word));
            match self {
                Self::Python => starts(&["def test", "async def test", "def runTest("]),
                Self::Node => starts(&["test(", "it(", "test.", "it.", "describe(", "await test("]),
                Self::Go => starts(&["func Test"]),
                Self::Rust => line.starts_with("#[") && line.contains("test]") || line.contains("::test("),
            }
        })
    }
}

/// Whether only pytest would find the tests, because they are not in a class.
fn needs_pytest(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("def test") || line.starts_with("async def test"))
}

/// Whether a file of this name may contain tests.
#[must_use]
pub fn may_hold_tests(path: &WorkspacePath) -> bool {
    test_language(path).is_some()
}

/// Usual names of folders for tests and test data.
const TEST_FOLDERS: [&str; 8] =
    ["test", "tests", "__tests__", "spec", "specs", "testdata", "fixtures", "e2e"];

/// Whether a path is only for tests: a test file by its name, or any file in a test folder. Rust files of any name
/// may contain tests, so for Rust only the folder counts.
#[must_use]
pub(crate) fn is_test_path(path: &WorkspacePath) -> bool {
    let folder = |part: &[u8]| TEST_FOLDERS.iter().any(|folder| folder.as_bytes() == part);
    path.components().any(folder)
        || file_name(path) == b"conftest.py"
        || matches!(test_language(path), Some(TestLanguage::Python | TestLanguage::Node | TestLanguage::Go))
}

/// Whether a file of this name and text contains tests.
#[must_use]
pub fn holds_tests(path: &WorkspacePath, bytes: &[u8]) -> bool {
    let Some(tongue) = test_language(path) else { return false };
    bytes.len() <= TEST_FILE_BYTES_MAX && tongue.contains_test(&String::from_utf8_lossy(bytes))
}

/// Whether a file contains tests in the workspace's current state.
#[must_use]
pub fn holds_tests_now(root: &Dir, path: &WorkspacePath) -> bool {
    load_file(root, path).is_ok_and(|file| holds_tests(path, &file.bytes))
}

/// Existing tests that a runner did not run.
pub(crate) struct UnrunTests {
    /// The first files that contain them.
    pub(crate) files: Vec<WorkspacePath>,
    /// Whether they need pytest but another runner was started.
    pub(crate) needs_pytest: bool,
}

impl UnrunTests {
    /// No tests were searched for, or none found.
    pub(crate) const fn empty() -> Self {
        Self { files: Vec::new(), needs_pytest: false }
    }
}

/// Finds test files that a shell line should have run, only for languages whose runners are known to miss some: cargo
/// and go find all tests and skip only what the project excludes.
pub(crate) fn find_unrun_tests(root: &Dir, line: &str, said: &str) -> UnrunTests {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    let wanted = match () {
        () if has(&["pytest", "unittest", "python"]) => TestLanguage::Python,
        () if has(&["node", "npm", "vitest", "jest", "mocha"]) => TestLanguage::Node,
        () => return UnrunTests::empty(),
    };
    let mut found = UnrunTests::empty();
    // Tests that the project deselects were found nevertheless.
    if said.contains(" deselected") {
        return found;
    }
    let Ok(entries) = walk_folder(root, None, None, HiddenEntries::Skip) else { return found };
    let others = |path: &WorkspacePath| path.components().any(|part| part == b"node_modules");
    let files = entries.take(VISITED_NAMES_MAX).filter(|entry| !entry.is_dir && !entry.is_link);
    for entry in files.filter(|entry| test_language(&entry.path) == Some(wanted) && !others(&entry.path)) {
        let Ok(file) = load_file(root, &entry.path) else { continue };
        if holds_tests(&entry.path, &file.bytes) {
            let by_unittest = wanted == TestLanguage::Python && said.contains("Ran 0 tests in");
            found.needs_pytest |= by_unittest && needs_pytest(&String::from_utf8_lossy(&file.bytes));
            found.files.push(entry.path);
        }
        if found.files.len() == NAMED_FILES_MAX {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_paths_are_recognized_by_name_or_folder() {
        for path in [
            "test_a.py",
            "a_test.py",
            "conftest.py",
            "a.spec.ts",
            "x_test.go",
            "tests/data.json",
            "a/fixtures/b.rs",
        ] {
            assert!(is_test_path(&WorkspacePath::new(path).expect("a path")), "{path}");
        }
        for path in ["a.py", "src/lib.rs", "contest.py", "testing/a.py", "mytests.txt", "src/test.rs"] {
            assert!(!is_test_path(&WorkspacePath::new(path).expect("a path")), "{path}");
        }
    }

    #[test]
    fn tests_are_recognized_by_name_and_text() {
        for (path, text, holds) in [
            ("test_a.py", "def test_a():\n", true),
            ("a_test.py", "class T:\n    def test_a(self): ...\n", true),
            ("test_a.py", "x = 1  # def test\n", false),
            ("a.py", "def test_a(): ...\n", false),
            ("t/a.test.js", "  it('adds', () => {})\n", true),
            ("t/a.test.js", "const items = 1;\n", false),
            ("a_test.go", "func TestA(t *testing.T) {\n", true),
            ("a_test.go", "func helper() {\n", false),
            ("src/lib.rs", "    #[test]\n    fn a() {}\n", true),
            ("src/lib.rs", "    #[tokio::test]\n    async fn a() {}\n", true),
            ("src/lib.rs", "#[cfg(unix)]\nfn a() {}\n", false),
        ] {
            assert_eq!(
                holds_tests(&WorkspacePath::new(path).expect("legal"), text.as_bytes()),
                holds,
                "{path}: {text}"
            );
        }
    }
}

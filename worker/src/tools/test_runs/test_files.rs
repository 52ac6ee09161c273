//! Which files hold tests: by their names, and by what is written in them. What a check of tests that ran none is
//! held against.

use cap_std::fs::Dir;
use docket_schema::content::WorkPath;

use crate::tools::file_access::{
    files::load,
    walk::{Hidden, walk},
};

/// Names looked at to find out whether there are tests of a language.
const LOOKED_AT_MAX: usize = 5000;
/// Files with tests that are named, and the longest that is read.
const NAMED_MAX: usize = 5;
const BYTES_MAX: usize = 512 * 1024;

/// Languages whose tests are known by sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tongue {
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

/// Whether there is a file with such a name.
pub(crate) fn has_file(root: &Dir, folder: Option<&WorkPath>, is: impl Fn(&[u8]) -> bool) -> bool {
    let Ok(entries) = walk(root, folder, Some(4), Hidden::Skip) else { return false };
    let mut entries = entries.take(LOOKED_AT_MAX);
    entries.any(|entry| !entry.is_dir && is(name_of(&entry.path)))
}

fn name_of(path: &WorkPath) -> &[u8] {
    path.parts().last().unwrap_or_default()
}

/// The language whose tests a file of this name may hold: Rust has them in any file.
fn tongue(path: &WorkPath) -> Option<Tongue> {
    let name = name_of(path);
    match () {
        () if is_python_test(name) => Some(Tongue::Python),
        () if is_node_test(name) => Some(Tongue::Node),
        () if name.ends_with(b"_test.go") => Some(Tongue::Go),
        () if name.ends_with(b".rs") => Some(Tongue::Rust),
        () => None,
    }
}

impl Tongue {
    /// Whether a test is written in the text: by lines, for words in the middle of one may be anything.
    fn has_test(self, text: &str) -> bool {
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

/// Whether pytest alone would find the tests: they stand in no class.
fn is_for_pytest(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("def test") || line.starts_with("async def test"))
}

/// Whether a file of this name may hold tests.
#[must_use]
pub fn may_hold_tests(path: &WorkPath) -> bool {
    tongue(path).is_some()
}

/// Folders of tests and of what they need, as projects call them.
const TEST_FOLDERS: [&str; 8] =
    ["test", "tests", "__tests__", "spec", "specs", "testdata", "fixtures", "e2e"];

/// Whether a path is of tests alone: a file of them by its name, or in a folder of them. Rust has tests in any file, and
/// only those in such a folder are nothing else.
#[must_use]
pub(crate) fn is_of_tests(path: &WorkPath) -> bool {
    let folder = |part: &[u8]| TEST_FOLDERS.iter().any(|folder| folder.as_bytes() == part);
    path.parts().any(folder)
        || name_of(path) == b"conftest.py"
        || matches!(tongue(path), Some(Tongue::Python | Tongue::Node | Tongue::Go))
}

/// Whether a file of this name and text holds tests.
#[must_use]
pub fn holds_tests(path: &WorkPath, bytes: &[u8]) -> bool {
    let Some(tongue) = tongue(path) else { return false };
    bytes.len() <= BYTES_MAX && tongue.has_test(&String::from_utf8_lossy(bytes))
}

/// The same of a file of the workspace as it is now.
#[must_use]
pub fn holds_tests_now(root: &Dir, path: &WorkPath) -> bool {
    load(root, path).is_ok_and(|file| holds_tests(path, &file.bytes))
}

/// Tests that are there where a runner ran none.
pub(crate) struct Unrun {
    /// Files that hold them, the first ones.
    pub(crate) files: Vec<WorkPath>,
    /// They are pytest's, and another runner was started in its place.
    pub(crate) want_pytest: bool,
}

impl Unrun {
    /// Nothing was looked for, or nothing found.
    pub(crate) const fn none() -> Self {
        Self { files: Vec::new(), want_pytest: false }
    }
}

/// Files with tests that a shell line would have been expected to run. Only of languages whose runners are known to
/// overlook some: cargo and go find all there are, and leave out what the project wants left out.
pub(crate) fn unrun(root: &Dir, line: &str, said: &str) -> Unrun {
    let has = |words: &[&str]| words.iter().any(|word| line.contains(word));
    let wanted = match () {
        () if has(&["pytest", "unittest", "python"]) => Tongue::Python,
        () if has(&["node", "npm", "vitest", "jest", "mocha"]) => Tongue::Node,
        () => return Unrun::none(),
    };
    let mut found = Unrun::none();
    // What the project leaves out by a mark was found all the same.
    if said.contains(" deselected") {
        return found;
    }
    let Ok(entries) = walk(root, None, None, Hidden::Skip) else { return found };
    let others = |path: &WorkPath| path.parts().any(|part| part == b"node_modules");
    let files = entries.take(LOOKED_AT_MAX).filter(|entry| !entry.is_dir && !entry.is_link);
    for entry in files.filter(|entry| tongue(&entry.path) == Some(wanted) && !others(&entry.path)) {
        let Ok(file) = load(root, &entry.path) else { continue };
        if holds_tests(&entry.path, &file.bytes) {
            let by_unittest = wanted == Tongue::Python && said.contains("Ran 0 tests in");
            found.want_pytest |= by_unittest && is_for_pytest(&String::from_utf8_lossy(&file.bytes));
            found.files.push(entry.path);
        }
        if found.files.len() == NAMED_MAX {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_tests_alone_is_known_by_its_name_or_its_folder() {
        for path in [
            "test_a.py",
            "a_test.py",
            "conftest.py",
            "a.spec.ts",
            "x_test.go",
            "tests/data.json",
            "a/fixtures/b.rs",
        ] {
            assert!(is_of_tests(&WorkPath::new(path).expect("a path")), "{path}");
        }
        for path in ["a.py", "src/lib.rs", "contest.py", "testing/a.py", "mytests.txt", "src/test.rs"] {
            assert!(!is_of_tests(&WorkPath::new(path).expect("a path")), "{path}");
        }
    }

    #[test]
    fn tests_are_known_by_name_and_text() {
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
                holds_tests(&WorkPath::new(path).expect("legal"), text.as_bytes()),
                holds,
                "{path}: {text}"
            );
        }
    }
}

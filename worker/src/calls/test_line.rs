//! The shell line that runs tests, as a project or a delegated piece of work names it. Pure.

/// What stands for the test path in it.
pub(crate) const TEST_PATH_PLACEHOLDER: &str = "{path}";

/// What the line comes to: without a path, and with one that whoever runs it names, which is not known yet.
pub(crate) fn expand_test_line(line: &str) -> Vec<String> {
    let with = |path: &str| line.replace(TEST_PATH_PLACEHOLDER, path);
    if line.contains(TEST_PATH_PLACEHOLDER) { vec![with(""), with("$path")] } else { vec![line.to_owned()] }
}

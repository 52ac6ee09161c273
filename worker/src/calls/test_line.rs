//! The shell line that runs tests, as a project or a delegated task names it. Pure.

/// Placeholder for the test path.
pub(crate) const TEST_PATH_PLACEHOLDER: &str = "{path}";

/// Expands the line: without a path, and with a path that the caller chooses and that is not known yet.
pub(crate) fn expand_test_line(line: &str) -> Vec<String> {
    let with = |path: &str| line.replace(TEST_PATH_PLACEHOLDER, path);
    if line.contains(TEST_PATH_PLACEHOLDER) { vec![with(""), with("$path")] } else { vec![line.to_owned()] }
}

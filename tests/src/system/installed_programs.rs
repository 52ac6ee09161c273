//! Checks for programs that a machine may lack. A test that needs a missing one prints a notice and is
//! skipped; in CI, it fails.
//!
//! `.ci/without-tools --bare` runs the tests as on a machine with only Rust, git and a C compiler.

use std::{os::unix::fs::PermissionsExt as _, path::Path};

use super::{
    process::{TestProgram, run_program},
    scenario_limit::print_notice,
};

/// Returns whether a program of this name is in the path.
pub fn is_installed(program: &str) -> bool {
    let is_program = |file: &Path| {
        file.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_program(&folder.join(program)))
}

/// Like [`is_installed`], and prints a notice if a test is skipped.
///
/// # Panics
/// Panics if `CI` is set and the program is not installed.
pub fn has_program(program: &str) -> bool {
    let is_there = is_installed(program);
    skip_unless(is_there, program);
    is_there
}

/// Returns whether Python can import these modules. A test that needs them is skipped without them,
/// with a notice.
///
/// # Panics
/// Panics if `CI` is set and Python or one of the modules is missing.
pub async fn has_python_modules(modules: &str) -> bool {
    let code = format!("import {modules}");
    let imported = run_program(TestProgram::Python, Path::new("/"), &[], &["-c", &code]).await;
    let are_there = imported.is_ok_and(|ended| ended.success());
    skip_unless(are_there, &format!("Python with {modules}"));
    are_there
}

fn skip_unless(is_there: bool, what: &str) {
    assert!(is_there || std::env::var_os("CI").is_none(), "CI needs {what}; .ci/run installs it");
    if !is_there {
        print_notice(&format!("skipped: {what} is not installed"));
    }
}

/// The first line of a test that needs a program: without it, the test ends here.
#[macro_export]
macro_rules! needs {
    ($program:literal) => {
        if !$crate::system::has_program($program) {
            return Ok(());
        }
    };
}

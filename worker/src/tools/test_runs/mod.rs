//! `run_tests`: finds a project's test runner, reads its output, and determines why tests did not run.

pub(super) mod missing_dependency;
pub(super) mod not_run;
pub(super) mod python_test_command;
pub(super) mod test_command;
pub(super) mod test_files;
pub(super) mod test_output;
pub(super) mod test_runner;

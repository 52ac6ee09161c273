//! The tools of a model, seven or the wide set: one file each with its arguments, limits, code and tests.
//!
//! Called by the driver, which gives the workspace as a directory handle, a runner for commands and
//! what the run has read. Invariants: no file access but through that handle; a bad argument, an
//! unknown tool or a refused call is an answer to the model, never an error of the program; `specs_of` is pure and
//! the same to the byte on any machine.

mod artifacts;
pub(crate) mod checks;
pub(crate) mod commands;
#[cfg(test)]
mod config_tests;
pub(crate) mod context;
pub(crate) mod file_access;
pub(crate) mod files;
mod git;
#[cfg(test)]
mod hostile_tests;
mod memory;
mod registry;
pub(crate) mod search;
mod set;
pub(crate) mod test_runs;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod text;

pub(crate) use super::shell::as_check;
pub use super::shell::quote;
pub use crate::calls::{
    DELEGATE, Delegate, Label, WholeOutputs, all_names, delegate_args, delegate_spec, has, is_beyond_run,
    labels, labels_in, recovery_class, recovery_class_in, waits, whole_output_note, whole_output_wanted,
};
pub(crate) use crate::calls::{
    RUN_COMMAND, acting, is_card, is_external, path_of as work_path_of, within, written_files,
};
pub use artifacts::{
    COMPLETE_TASK, DIFF_CARD, Implemented, PLAN_CARD, REVIEW_REPORT, completion, implemented, plan_card,
    review_report,
};
pub use checks::gate::{Others, check_syntax, is_syntax_check, says_worse, syntax_check};
pub use checks::lint::{Before, Changing, Edited, Linted, lint, lint_before};
pub use checks::mend::mend;
pub(crate) use commands::run_command::protected;
pub use context::base_view::{BaseView, Was};
pub use context::run_memory::{Memory, NoMemory};
pub use context::runner::{Captured, CommandOutput, CommandSpec, Ended, Runner, RunnerError, RunnerFault};
pub use context::tool_context::{
    ReadSet, TestRunnerConfig, TimeLimit, ToolContext, ToolOutcome, ToolSettings,
};
pub use files::read_file::NAME as READ_FILE;
pub use files::show_changes::NAME as SHOW_CHANGES;
pub use files::show_file::{NAME as SHOW_FILE, NOT_THERE};
pub use registry::{execute, meant_name, specs, unknown};
pub use search::search_codebase::NO_HITS;
pub use search::survey::NAME as SURVEY;
pub use set::{card_specs, specs_of};
pub use test_runs::missing::says_how_to_test;
pub(crate) use test_runs::test_command::NAME as RUN_TESTS;
pub(crate) use test_runs::test_files::is_of_tests;
pub use test_runs::test_files::{holds_tests, holds_tests_now, may_hold_tests};
pub use test_runs::test_output::{TestReport, parse_tests};
pub use test_runs::test_runner::{detect_tests, tests_by_names};
pub(crate) use text::encoding::decoded;
pub use text::output::{cut, printable};
pub use text::signature::error_signature;

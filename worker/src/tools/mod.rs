//! The model's tools, in the core and the wide set: one file each with its arguments, limits, code and tests.
//!
//! Called by the run loop, which passes the workspace as a directory handle, a command runner and the run's read set.
//! Invariants: files are accessed only through that handle; a bad argument, an unknown tool or a refused call is an
//! answer to the model, never an error of the program; `tool_specs` is pure and byte for byte the same on any
//! machine.

mod artifacts;
mod catalog;
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
pub(crate) mod test_runs;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod text;

pub use super::shell::quote;
pub(crate) use super::shell::with_pipefail;
pub use crate::calls::{
    CallLabel, DELEGATE, DelegateCall, FullOutputs, call_labels, call_labels_in_set, delegate_tool_spec,
    full_output_note, parse_delegate_args, recovery_class, recovery_class_in_set, requested_full_output,
    selectable_tool_names, set_has_tool, uses_external_state, waits_on_external_io,
};
pub(crate) use crate::calls::{
    RUN_COMMAND, is_artifact_tool, is_external, mutating_tool_names, strip_workspace_prefix,
    valid_workspace_path as work_path_of, written_files,
};
pub use artifacts::{
    COMPLETE_TASK, DIFF_CARD, DiffCard, PLAN_CARD, REVIEW_REPORT, parse_completion_summary, parse_diff_card,
    parse_plan_card, parse_review_report,
};
pub use catalog::{card_specs, tool_specs};
pub use checks::auto_fix::fix_failed_check;
pub use checks::lint::{BatchChanges, LintBaselineResult, LintBatch, LintReport, lint_baseline, lint_batch};
pub use checks::syntax_check::{
    OtherChecks, is_syntax_gate, reports_worse_syntax, run_syntax_gate, syntax_gate,
};
pub(crate) use commands::run_command::format_restored_paths;
pub use context::base_view::{BaseEntry, BaseView};
pub use context::memory_backend::{MemoryBackend, NoMemory};
pub use context::runner::{
    CapturedStream, CommandEnd, CommandOutput, CommandRunner, CommandSpec, RunnerError, RunnerFault,
};
pub use context::tool_context::{
    ReadSet, TestRunnerConfig, TimeLimit, ToolContext, ToolOutcome, ToolSettings,
};
pub use files::read_file::NAME as READ_FILE;
pub use files::show_changes::NAME as SHOW_CHANGES;
pub use files::show_file::{NAME as SHOW_FILE, NO_SUCH_FILE};
pub use registry::{canonical_tool_name, core_tool_specs, execute_tool, unknown_tool};
pub use search::search_codebase::NO_MATCHES;
pub use search::survey::NAME as SURVEY;
pub use test_runs::missing_dependency::is_test_config;
pub(crate) use test_runs::test_command::NAME as RUN_TESTS;
pub(crate) use test_runs::test_files::is_test_path;
pub use test_runs::test_files::{holds_tests, holds_tests_now, may_hold_tests};
pub use test_runs::test_output::{TestReport, parse_tests};
pub use test_runs::test_runner::{detect_test_command, test_command_by_names};
pub(crate) use text::encoding::decode_text;
pub use text::output::{cut_middle, printable_text};
pub use text::signature::error_signature;

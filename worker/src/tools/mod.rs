//! The tools of a model, seven or the wide set: one file each with its arguments, limits, code and tests.
//!
//! Called by the driver, which gives the workspace as a directory handle, a runner for commands and
//! what the run has read. Invariants: no file access but through that handle; a bad argument, an
//! unknown tool or a refused call is an answer to the model, never an error of the program; `specs_of` is pure and
//! the same to the byte on any machine.

pub(crate) mod args;
mod artifacts;
mod base_view;
#[cfg(test)]
mod config_tests;
mod contents;
mod create_file;
pub(crate) mod delegate;
mod edit_file;
mod encoding;
mod envelope;
mod files;
mod gate;
mod git;
pub(crate) mod guard;
#[cfg(test)]
mod hostile_tests;
mod huge;
mod ignore_files;
mod imports;
pub(crate) mod labels;
mod line;
mod lint;
mod list_files;
pub(crate) mod meant;
mod memory;
mod mend;
mod missing;
mod near;
mod not_run;
mod output;
mod parser;
mod paths;
mod put_back;
mod python_runner;
mod read_file;
mod read_output;
mod registry;
mod run_command;
mod run_memory;
mod runner;
mod search_codebase;
#[cfg(test)]
mod search_tests;
mod set;
pub(crate) mod shell;
mod show_changes;
mod show_file;
mod signature;
mod survey;
mod test_command;
mod test_files;
mod test_output;
mod test_runner;
#[cfg(test)]
pub(crate) mod testing;
mod tool_context;
mod venv;
mod walk;
pub(crate) mod whole;

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
pub use base_view::{BaseView, Was};
pub(crate) use encoding::decoded;
pub use gate::{Others, check_syntax, is_syntax_check, says_worse, syntax_check};
pub use lint::{Before, Changing, Edited, Linted, lint, lint_before};
pub use mend::mend;
pub use missing::says_how_to_test;
pub use output::{cut, printable};
pub use read_file::NAME as READ_FILE;
pub use registry::{execute, meant_name, specs, unknown};
pub(crate) use run_command::protected;
pub use run_memory::{Memory, NoMemory};
pub use runner::{Captured, CommandOutput, CommandSpec, Ended, Runner, RunnerError, RunnerFault};
pub use search_codebase::NO_HITS;
pub use set::{card_specs, specs_of};
pub(crate) use shell::as_check;
pub use shell::quote;
pub use show_changes::NAME as SHOW_CHANGES;
pub use show_file::{NAME as SHOW_FILE, NOT_THERE};
pub use signature::error_signature;
pub use survey::NAME as SURVEY;
pub(crate) use test_command::NAME as RUN_TESTS;
pub(crate) use test_files::is_of_tests;
pub use test_files::{holds_tests, holds_tests_now, may_hold_tests};
pub use test_output::{TestReport, parse_tests};
pub use test_runner::{detect_tests, tests_by_names};
pub use tool_context::{ReadSet, TestRunnerConfig, TimeLimit, ToolContext, ToolOutcome, ToolSettings};

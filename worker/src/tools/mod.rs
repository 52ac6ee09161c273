//! The tools of a model, seven or the wide set: one file each with its arguments, limits, code and tests.
//!
//! Called by the driver, which gives the workspace as a directory handle, a runner for commands and
//! what the run has read. Invariants: no file access but through that handle; a bad argument, an
//! unknown tool or a refused call is an answer to the model, never an error of the program; `specs_of`,
//! `recovery_class` and `labels` are pure and the same to the byte on any machine.

mod args;
mod base_view;
mod cards;
#[cfg(test)]
mod config_tests;
mod contents;
mod context;
mod create_file;
mod delegate;
mod edit_file;
mod encoding;
mod envelope;
mod files;
mod gate;
mod git;
mod guard;
#[cfg(test)]
mod hostile_tests;
mod huge;
mod ignore_files;
mod imports;
mod labels;
mod line;
mod lint;
mod list_files;
mod meant;
mod memory;
mod mend;
mod missing;
mod near;
mod not_run;
mod output;
mod parser;
mod paths;
mod put_back;
mod python_tests;
mod read_file;
mod read_output;
mod registry;
mod run_command;
mod run_tests;
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
mod test_files;
mod test_output;
mod test_runner;
#[cfg(test)]
pub(crate) mod testing;
mod venv;
mod walk;
mod whole;

pub use base_view::{BaseView, Was};
pub use cards::{
    COMPLETE_TASK, DIFF_CARD, Implemented, PLAN_CARD, REVIEW_REPORT, completion, implemented, plan_card,
    review_report,
};
pub use context::{ReadSet, TestRunnerConfig, TimeLimit, ToolContext, ToolOutcome, ToolSettings};
pub use delegate::{DELEGATE, Delegate, delegate_args, delegate_spec};
pub(crate) use encoding::decoded;
pub(crate) use files::{path_of as work_path_of, within};
pub use gate::{Others, check_syntax, is_syntax_check, says_worse, syntax_check};
pub(crate) use labels::labels_of;
pub use labels::{Label, labels, labels_in, recovery_class_in};
pub use lint::{Before, Changing, Edited, Linted, lint, lint_before};
pub use memory::{Memory, NoMemory};
pub use mend::mend;
pub use missing::says_how_to_test;
pub use output::{cut, printable};
pub use read_file::NAME as READ_FILE;
pub use registry::{execute, meant_name, recovery_class, specs, unknown};
pub(crate) use run_command::{NAME as RUN_COMMAND, protected};
pub(crate) use run_tests::{NAME as RUN_TESTS, as_run};
pub use runner::{Captured, CommandOutput, CommandSpec, Ended, Runner, RunnerError, RunnerFault};
pub use search_codebase::NO_HITS;
pub(crate) use set::{acting, acts_on_folders, is_card, is_external, named_files, shell_line, written_files};
pub use set::{all_names, card_specs, has, is_beyond_run, specs_of, waits};
pub use shell::quote;
pub(crate) use shell::{Simple, as_check, script, sets_git_alias, without_git_options};
pub use show_changes::NAME as SHOW_CHANGES;
pub use show_file::{NAME as SHOW_FILE, NOT_THERE};
pub use signature::error_signature;
pub use survey::NAME as SURVEY;
pub(crate) use test_files::is_of_tests;
pub use test_files::{holds_tests, holds_tests_now, may_hold_tests};
pub use test_output::{TestReport, parse_tests};
pub use test_runner::{detect_tests, tests_by_names};
pub(crate) use venv::RUN as VENV_RUN;
pub use whole::{WholeOutputs, whole_output_note, whole_output_wanted};

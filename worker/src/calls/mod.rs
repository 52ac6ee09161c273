//! Tool calls as models send them: their arguments, the path and shell line they translate to, and their effects in
//! terms of policy and recovery. Pure.
//!
//! Engines and policies use this to decide before a tool executes the call. Invariant: a call's effects follow from
//! its tool's name and its arguments alone.

pub(crate) mod args;
mod command;
pub(crate) mod delegate;
pub(crate) mod full_output;
pub(crate) mod git;
pub(crate) mod labels;
pub(crate) mod lenient_args;
mod path_argument;
mod shell_line;
mod test_line;
mod tool_effects;
mod tool_sets;
pub(crate) mod venv_install;

pub(crate) use crate::calls::{
    args::{argument_schema, parse_args},
    full_output::{parse_call_reference, parse_output_path},
    labels::command_labels,
};
pub use crate::calls::{
    delegate::{DELEGATE, DelegateCall, delegate_tool_spec, parse_delegate_args},
    full_output::{FullOutputs, full_output_note, requested_full_output},
    labels::{CallLabel, call_labels, call_labels_in_set, recovery_class, recovery_class_in_set},
};
pub(crate) use command::{CommandArgs, RUN_COMMAND, VENV_RUN};
pub(crate) use path_argument::{
    PathError, parse_folder_path, parse_workspace_path, strip_workspace_prefix, valid_workspace_path,
};
pub(crate) use shell_line::{ShellLine, join_quoted};
pub(crate) use test_line::{TEST_PATH_PLACEHOLDER, expand_test_line};
pub(crate) use tool_effects::{
    RecallSource, ToolEffect, affects_whole_folder, is_external, mutating_tool_names, named_files,
    shell_line, tool_effect, written_files,
};
pub use tool_effects::{uses_external_state, waits_on_external_io};
#[cfg(test)]
pub(crate) use tool_sets::RUNTIME_TOOLS;
pub(crate) use tool_sets::{ARTIFACT_TOOLS, is_artifact_tool, tool_names_in_set};
pub use tool_sets::{selectable_tool_names, set_has_tool};

//! Calls of tools as models send them: their arguments, the path and the shell line that these come to, and what a call
//! does in the words of policy and recovery. Pure.
//!
//! Engines and policies decide by it before a tool carries the call out. Invariant: what a call does follows from its
//! tool's name and its arguments alone.

mod acts;
pub(crate) mod args;
mod command;
pub(crate) mod delegate;
pub(crate) mod git;
pub(crate) mod labels;
mod line;
pub(crate) mod meant;
mod path_argument;
mod test_line;
mod tool_sets;
pub(crate) mod venv_install;
pub(crate) mod whole_output;

pub(crate) use crate::calls::{
    args::{parse, schema_of},
    labels::labels_of,
    whole_output::{bare_call, call_of},
};
pub use crate::calls::{
    delegate::{DELEGATE, Delegate, delegate_args, delegate_spec},
    labels::{Label, labels, labels_in, recovery_class, recovery_class_in},
    whole_output::{WholeOutputs, whole_output_note, whole_output_wanted},
};
pub(crate) use acts::{
    Acts, Where, acting, acts_of, acts_on_folders, is_external, named_files, shell_line, written_files,
};
pub use acts::{is_beyond_run, waits};
pub(crate) use command::{CommandArgs, RUN_COMMAND, VENV_RUN};
pub(crate) use line::{Line, joined};
pub(crate) use path_argument::{PathError, folder_path, path_of, within, work_path};
pub(crate) use test_line::{TEST_PATH, as_run};
#[cfg(test)]
pub(crate) use tool_sets::OWN;
pub(crate) use tool_sets::{CARDS, is_card, names_of};
pub use tool_sets::{all_names, has};

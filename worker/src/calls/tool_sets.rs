//! The tool sets that a run can have. Pure.
//!
//! The seven of `core` are few on purpose. The 26 of `wide`: eleven for files (read, write, append, edit, move, copy,
//! delete, make a folder, list, search, stat), eight for git (status, diff, log, show, add, commit, branch,
//! checkout), two for commands (run, tests), two for a virtual environment (install, which also creates it; run) and
//! three for memory (save; recall, which without a key lists; delete). `read_output` is one more.

use docket_schema::tool::ToolSet;

use super::tool_effects::all_tool_names;

/// Returns the names of a set, in the order in which they are offered to a model.
pub(crate) fn tool_names_in_set(set: ToolSet) -> &'static [&'static str] {
    match set {
        ToolSet::Core => &[
            "read_file",
            "edit_file",
            "create_file",
            "search_codebase",
            "list_files",
            "run_command",
            "run_tests",
        ],
        ToolSet::Wide => &[
            "read_file",
            "write_file",
            "append_file",
            "edit_file",
            "move_file",
            "copy_file",
            "delete_file",
            "make_folder",
            "list_files",
            "search_codebase",
            "stat_file",
            "git_status",
            "git_diff",
            "git_log",
            "git_show",
            "git_add",
            "git_commit",
            "git_branch",
            "git_checkout",
            "run_command",
            "run_tests",
            "venv_install",
            "venv_run",
            "memory_save",
            "memory_recall",
            "memory_delete",
            "read_output",
        ],
    }
}

/// Tools in no set, which engines give to roles.
pub(crate) const ARTIFACT_TOOLS: [&str; 4] = ["plan_card", "diff_card", "review_report", "complete_task"];
/// Tools that only the runtime calls.
pub(crate) const RUNTIME_TOOLS: [&str; 3] = ["show_file", "show_changes", "survey"];

/// Returns the names of all selectable tools, those of `core` first.
pub fn selectable_tool_names() -> impl Iterator<Item = &'static str> {
    all_tool_names().filter(|name| !RUNTIME_TOOLS.contains(name) && !ARTIFACT_TOOLS.contains(name))
}

/// Whether a set has a tool of this name.
#[must_use]
pub fn set_has_tool(set: ToolSet, name: &str) -> bool {
    tool_names_in_set(set).contains(&name)
}

/// Whether this is a tool by which a role hands a structured result to the runtime.
#[must_use]
pub(crate) fn is_artifact_tool(name: &str) -> bool {
    ARTIFACT_TOOLS.contains(&name)
}

//! Location of the virtual environment. Its contents can be recreated and are not part of the work: snapshots
//! (`workspace/snapshot/ignore_rules.rs`) and git leave it out.

use docket_schema::content::WorkspacePath;

pub(super) use crate::workspace::VENV_FOLDER as FOLDER;

/// Marker file created last: if it is missing, the environment is incomplete in an unknown way.
pub(super) const COMPLETE_MARKER: &str = ".docket-whole";

/// Whether a complete environment exists.
pub(super) fn has_environment(root: &cap_std::fs::Dir) -> bool {
    // Environments older than the marker have pip's program, which is created last.
    [COMPLETE_MARKER, "bin/pip"].iter().any(|name| root.symlink_metadata(format!("{FOLDER}/{name}")).is_ok())
}

/// Shell prefix that puts the environment's programs first for commands in `cwd`.
pub(super) fn activation_prefix(cwd: Option<&WorkspacePath>) -> String {
    let up = cwd.map_or(String::new(), |cwd| "../".repeat(cwd.components().count()));
    format!(
        "VIRTUAL_ENV=\"$(cd ./{up} && pwd -P)/{FOLDER}\"; PATH=\"$VIRTUAL_ENV/bin:$PATH\"; export VIRTUAL_ENV PATH; unset \
         PYTHONHOME\n"
    )
}

//! Where the environment is. What it holds can be made again and is nobody's work: snapshots leave it out
//! (`workspace/snapshot/ignored.rs`), and so does git.

use docket_schema::content::WorkspacePath;

pub(super) use crate::workspace::VENV_FOLDER as FOLDER;

/// The file that is made in it last: without it the making broke off, and nobody knows what is lacking.
pub(super) const COMPLETE_MARKER: &str = ".docket-whole";

/// Whether there is one.
pub(super) fn has_environment(root: &cap_std::fs::Dir) -> bool {
    // One of before the mark has pip's program, which is made last of all that is made by itself.
    [COMPLETE_MARKER, "bin/pip"].iter().any(|name| root.symlink_metadata(format!("{FOLDER}/{name}")).is_ok())
}

/// The words that make commands in `cwd` find its programs first.
pub(super) fn activation_prefix(cwd: Option<&WorkspacePath>) -> String {
    let up = cwd.map_or(String::new(), |cwd| "../".repeat(cwd.components().count()));
    format!(
        "VIRTUAL_ENV=\"$(cd ./{up} && pwd -P)/{FOLDER}\"; PATH=\"$VIRTUAL_ENV/bin:$PATH\"; export VIRTUAL_ENV PATH; unset \
         PYTHONHOME\n"
    )
}

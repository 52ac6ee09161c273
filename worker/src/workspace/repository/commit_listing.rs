//! Lists the contents of a commit as git reports them, and checks which paths docket may write.

use docket_schema::content::WorkspacePath;

use super::{
    dot_git::is_dot_git,
    git::{GitCallError, GitDir},
    pin_error::PinError,
};

/// One line of `ls-tree`.
#[derive(Debug)]
pub(crate) struct TreeListingEntry {
    pub(crate) mode: u32,
    pub(crate) oid: String,
    pub(crate) size: u64,
    pub(crate) path: Vec<u8>,
}

pub(crate) const MODE_TREE: u32 = 0o040_000;
pub(crate) const MODE_LINK: u32 = 0o120_000;
pub(crate) const MODE_GITLINK: u32 = 0o160_000;
pub(crate) const MODE_EXECUTABLE: u32 = 0o100_755;

/// Lists everything in `commit`, including folders and submodules.
pub(crate) async fn list_commit(own: &GitDir, commit: &str) -> Result<Vec<TreeListingEntry>, PinError> {
    let output = own.list_tree(commit).await?;
    let lines = output.split(|b| *b == 0).filter(|line| !line.is_empty());
    let listed: Option<Vec<TreeListingEntry>> = lines.map(parse_ls_tree_line).collect();
    Ok(listed.ok_or(GitCallError::UnexpectedOutput { verb: "ls-tree", what: "a malformed line" })?)
}

/// `<mode> <type> <oid> <padded size or ->\t<path>`
fn parse_ls_tree_line(line: &[u8]) -> Option<TreeListingEntry> {
    let tab = line.iter().position(|b| *b == b'\t')?;
    let head = std::str::from_utf8(&line[..tab]).ok()?;
    let mut words = head.split_ascii_whitespace();
    let mode = u32::from_str_radix(words.next()?, 8).ok()?;
    let oid = words.nth(1)?.to_owned();
    let size = words.next()?.parse().unwrap_or(0);
    Some(TreeListingEntry { mode, oid, size, path: line[tab + 1..].to_vec() })
}

/// Refuses paths that a crafted tree object may contain and a work tree must not.
pub(crate) fn parse_safe_path(bytes: &[u8]) -> Result<WorkspacePath, PinError> {
    let unsafe_path = |why| PinError::UnsafePath { path: String::from_utf8_lossy(bytes).into_owned(), why };
    let path = WorkspacePath::new(bytes).ok_or_else(|| unsafe_path("it could lead out of the workspace"))?;
    if path.components().any(is_dot_git) {
        return Err(unsafe_path("it would write into a git folder"));
    }
    Ok(path)
}

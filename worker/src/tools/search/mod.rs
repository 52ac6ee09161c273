//! The tools that search files and their contents, and the initial survey of a workspace.

pub(super) mod imports;
pub(super) mod list_files;
pub(super) mod search_codebase;
#[cfg(test)]
mod search_tests;
pub(super) mod survey;

//! The tools that find files and what is in them, and the first look at a workspace.

pub(super) mod imports;
pub(super) mod list_files;
pub(super) mod search_codebase;
#[cfg(test)]
mod search_tests;
pub(super) mod survey;

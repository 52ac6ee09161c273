//! Repositories on this machine: git calls, repository discovery, and detection of folders that git treats as
//! repositories.

pub(super) mod commit_listing;
pub(super) mod dot_git;
pub(super) mod git;
pub(super) mod hidden_repository;
pub(super) mod local_repo;
pub(super) mod pin_error;
pub(super) mod repo_safety;

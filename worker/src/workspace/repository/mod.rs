//! Repositories of this machine: git calls, where a repository lies, and what makes git take a folder for one.

pub(super) mod commit_listing;
pub(super) mod dot_git;
pub(super) mod git;
pub(super) mod hidden_repository;
pub(super) mod local_repo;
pub(super) mod pin_error;
pub(super) mod repo_safety;

//! Tests of the complete workspace code, on real repositories in temporary folders.

mod crash;
mod deliver;
mod hidden_repositories;
mod hostile_repositories;
mod modes;
mod races;
mod random_edits;
mod random_effects;
mod revert_changes;
mod round_trip;
mod submodules;
mod support;
mod tree_view;
mod unusual_trees;

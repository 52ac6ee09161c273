//! Planning: from a batch of commands to the rows it writes and the reply of each, and commands with a
//! separate transaction. Shared by both databases; all decisions are made here.

mod append;
mod archive;
mod batch;
mod blobs;
mod command;
mod delegate;
mod dependencies;
mod exclusive;
mod import;
mod inbox;
mod known_task;
mod lease;
mod submit;

pub(crate) use batch::plan_batch;
pub(crate) use exclusive::run_exclusive;

//! What each command means: from a batch of commands to the rows it writes and the reply of each, and the commands with a
//! transaction of their own. Shared by both databases: all that decides is here.

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

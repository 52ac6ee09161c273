//! From a batch of asks to what is written and what each is answered. Shared by both databases:
//! everything that decides is here, everything that is SQL of one of them is not.

mod append;
mod archive;
mod batch;
mod choose;
mod command;
mod delegate;
mod depend;
mod import;
mod inbox;
mod known_task;
mod lease;
mod running;
mod submit;

pub(super) use batch::plan_batch;
pub(super) use running::RunningTask;

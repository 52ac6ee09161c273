//! The one IO shell around the engines: decide, record, act, record.
//!
//! A run process runs one driver. It folds the run's log, makes or restores the workspace, and then
//! turns decisions into effects, each recorded before it begins and after it ends.
//!
//! Invariants: an intent is durable before its effect starts; nothing is written without the
//! lease's epoch; every choice is the engine's, the driver makes none.

mod act;
mod base;
mod before;
mod begin;
mod beyond;
mod causes;
mod checks;
mod context;
mod delegate;
mod failpoint;
mod faults;
mod granted;
mod held;
mod intent;
mod journal;
mod known;
mod linting;
mod material;
mod pace;
mod paid;
mod process;
mod redaction;
mod remember;
mod reread;
mod servers;
mod setup;
mod start;
mod together;
mod turn;
mod visit;
mod voices;
mod workbench;

pub use intent::{RequestProof, announce};
pub use journal::{Journal, JournalError, Outgoing};
pub use material::Material;
pub use process::{RunExit, run_process_main};
pub use reread::Rereads;
pub use start::StartError;
pub(crate) use turn::reopened;
pub use turn::{Driver, DriverError, model_request, rendered};
pub use visit::{Changed, Visit, VisitPlace};
pub(crate) use workbench::{Site, Workbench};

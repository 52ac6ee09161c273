//! The one IO shell around the engines: decide, record, act, record.
//!
//! A run process runs one driver. It folds the run's log, makes or restores the workspace, and then
//! turns decisions into effects, each recorded before it begins and after it ends.
//!
//! Invariants: an intent is durable before its effect starts; nothing is written without the
//! lease's epoch; every choice is the engine's, the driver makes none.

mod act;
mod base;
mod batch;
mod before;
mod begin;
mod beyond;
mod causes;
mod checks;
mod child_report;
mod child_start;
mod context;
mod delegate;
mod driver_error;
mod execution;
mod failpoint;
mod faults;
mod granted;
mod held;
mod host_faults;
mod intent;
mod journal;
mod known;
mod linting;
mod malformed;
mod material;
mod model_answer;
mod model_request;
mod outgoing;
mod pace;
mod paid;
mod process;
mod recovery;
mod redaction;
mod remember;
mod reread;
mod run_workspace;
mod sandbox_runner;
mod servers;
mod setup;
mod start;
mod start_error;
mod time_limits;
mod together;
mod turn;
mod visit;
mod voices;
mod workbench;

pub use self::driver_error::DriverError;
pub use self::intent::{RequestProof, announce};
pub use self::journal::{Journal, JournalError};
pub use self::material::Material;
pub(crate) use self::model_request::reopened;
pub use self::model_request::{model_request, rendered};
pub use self::outgoing::Outgoing;
pub use self::process::run_process_main;
pub use self::reread::Rereads;
pub use self::start_error::StartError;
pub use self::turn::{Driver, RunExit};
pub use self::visit::{Changed, Visit, VisitPlace};
pub(crate) use self::workbench::{Site, Workbench};

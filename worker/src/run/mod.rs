//! The one IO shell around the engines: decide, record, act, record.
//!
//! A run process runs one driver. It folds the run's log, makes or restores the workspace, and then
//! turns decisions into effects, each recorded before it begins and after it ends.
//!
//! Invariants: an intent is durable before its effect starts; nothing is written without the
//! lease's epoch; every choice is the engine's, the driver makes none.

pub(crate) mod delegation;
pub(crate) mod environment;
pub(crate) mod errors;
pub(crate) mod log;
pub(crate) mod model_calls;
pub(crate) mod permits;
mod process;
pub(crate) mod run_loop;
pub(crate) mod startup;
mod time_limits;
pub(crate) mod tool_calls;
mod visit;

pub use self::errors::driver_error::DriverError;
pub use self::errors::start_error::StartError;
pub use self::log::journal::{Journal, JournalError};
pub use self::log::material::Material;
pub use self::log::outgoing::Outgoing;
pub(crate) use self::model_calls::model_request::reopened;
pub use self::model_calls::model_request::{model_request, rendered};
pub use self::process::run_process_main;
pub use self::run_loop::intent::{RequestProof, announce};
pub use self::run_loop::turn::{Driver, RunExit};
pub use self::tool_calls::reread::Rereads;
pub(crate) use self::tool_calls::workbench::{Site, Workbench};
pub use self::visit::{Changed, Visit, VisitPlace};

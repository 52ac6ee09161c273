//! Executes runs: the single I/O shell around the engines. Decide, record, act, record.
//!
//! A run process executes one run. It folds the run's log, creates or restores the workspace, and then turns
//! decisions into effects, each recorded before it begins and after it ends.
//!
//! Invariants: an intent is durable before its effect starts; nothing is written without the lease's epoch; every
//! choice is made by the engine, never by the executor.

pub(crate) mod delegation;
pub(crate) mod environment;
pub(crate) mod errors;
pub(crate) mod log;
pub(crate) mod model_calls;
pub(crate) mod permits;
mod process;
pub(crate) mod run_loop;
mod shell_session;
pub(crate) mod startup;
mod time_limits;
pub(crate) mod tool_calls;

pub use self::errors::executor_error::RunExecutorError;
pub use self::errors::start_error::StartError;
pub use self::log::blob_cache::BlobCache;
pub use self::log::journal::{Journal, JournalError};
pub use self::log::pending_append::PendingAppend;
pub(crate) use self::model_calls::model_request::rebuild_open_call;
pub use self::model_calls::model_request::{build_model_request, render_call};
pub use self::process::run_process_main;
pub use self::run_loop::intents::{RequestProof, intent_events};
pub use self::run_loop::run_executor::{RunExecutor, RunExit};
pub use self::shell_session::{SessionChanges, ShellSession, ShellSessionConfig};
pub use self::tool_calls::read_cache::ReadCache;
pub(crate) use self::tool_calls::tool_executor::{ExecutorConfig, ToolExecutor};

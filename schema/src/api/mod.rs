//! HTTP bodies. Coordinator, worker and CLI share these and nothing else.

pub(crate) mod admin;
mod log;
mod problem;
mod request_limits;
pub(crate) mod tasks;
pub(crate) mod views;

pub use crate::problem_code::ProblemCode;
pub use admin::*;
pub use log::*;
pub use problem::*;
pub use request_limits::*;
pub use tasks::*;
pub use views::*;

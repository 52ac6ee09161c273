//! Request and response bodies of the HTTP API. They are all that coordinator, worker and CLI share.

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

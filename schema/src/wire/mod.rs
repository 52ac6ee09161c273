//! HTTP bodies. Coordinator, worker and CLI share these and nothing else.

pub(crate) mod admin;
mod limits;
mod log;
mod problem;
pub(crate) mod tasks;
pub(crate) mod views;

pub use crate::problem_code::ProblemCode;
pub use admin::*;
pub use limits::*;
pub use log::*;
pub use problem::*;
pub use tasks::*;
pub use views::*;

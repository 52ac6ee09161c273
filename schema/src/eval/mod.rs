//! Results of evaluations: outcomes per task and engine, checks, totals, and comparisons of two reports.
//! Pure.
//!
//! Turns, tokens, money and metrics come from [`report`](crate::report) and the run's fold; nothing is
//! counted a second way here.

mod comparison;
mod outcome;
mod result;

#[cfg(test)]
mod tests;

pub use comparison::*;
pub use outcome::*;
pub use result::*;

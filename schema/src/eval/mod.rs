//! What an evaluation came to: how each task of a suite ended with each engine, what was checked afterwards, sums, and
//! two such reports compared. Pure.
//!
//! Turns, tokens, money and metrics are those of [`report`](crate::report) and of the run's own fold; nothing is
//! counted a second way here.

mod comparison;
mod outcome;
mod result;

#[cfg(test)]
mod tests;

pub use comparison::*;
pub use outcome::*;
pub use result::*;

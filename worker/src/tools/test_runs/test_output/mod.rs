//! Reads what test runners print: counts and the first failure. Never says whether tests passed:
//! that is the exit status's word.
//!
//! A file per family of runners; `captured/` holds what real runners printed, for the tests. Pure.

mod go;
mod javascript;
mod python;
mod report;
mod rust;
mod tap;
#[cfg(test)]
mod tests;
mod text;

pub use report::{TestReport, parse_tests};

//! Parses the output of test runners: counts and the first failure. It never decides whether tests passed: only the
//! exit status does.
//!
//! One file per family of runners; `captured/` contains output of real runners for the tests. Pure.

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

//! The measured groups: each module measures one part and adds its figures to the report.

mod coordinator;
mod dispatch;
mod parts;
mod runs;
mod stores;

pub(crate) use dispatch::{BenchSetup, measure_group};

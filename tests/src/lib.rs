//! Support for the whole-system suites: the stores' conformance suite and the servers it needs.

pub mod conformance;
pub mod pg_cluster;

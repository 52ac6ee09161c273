//! Support for whole-system tests, and the suites themselves.

pub mod chaos;
pub mod conformance;
pub mod docs;
pub mod fuzz;
pub mod json_schema;
pub mod model_server;
pub mod pg_cluster;
pub mod pooler;
pub mod scripted_talks;
pub mod served_suite;
pub mod source_structure;
pub mod system;

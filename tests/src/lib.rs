//! Support for whole-system tests, and the suites themselves.

pub mod chaos;
pub mod conformance;
pub mod docs;
pub mod fuzz;
pub mod json_schema;
pub mod model_server;
pub mod pg_cluster;
pub mod pooler;
pub mod served;
pub mod structure;
pub mod system;
pub mod talks;

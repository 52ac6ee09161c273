//! Support for whole-system tests, and the suites themselves.

pub mod model_server;

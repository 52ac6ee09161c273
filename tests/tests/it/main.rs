//! The one integration test binary.

mod conformance;
mod tidy;

//! The one integration test binary.

mod conformance;
mod crash;
mod tidy;

//! The one integration test binary.

mod bad_input;
mod conformance;
mod crash;
mod demo;
mod many;
mod storage;
mod tidy;
mod wide;

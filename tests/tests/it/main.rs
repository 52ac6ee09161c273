//! The one integration test binary.

mod bad_input;
mod bitflip;
mod carry;
mod checks;
mod conformance;
mod crash;
mod demo;
mod fork;
mod golden;
mod hang;
mod lost_blob;
mod many;
mod past;
mod replay;
mod resume;
mod step;
mod storage;
mod tidy;
mod travel;
mod up;
mod wide;

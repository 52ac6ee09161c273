//! The one integration test binary.

mod bad_input;
mod bench;
mod bitflip;
mod carry;
mod checks;
mod conformance;
mod crash;
mod demo;
mod edit_tool;
mod fork;
mod golden;
mod hang;
mod lost_blob;
mod many;
mod newer;
mod past;
mod pause;
mod provider;
mod replay;
mod resume;
mod step;
mod storage;
mod tidy;
mod travel;
mod up;
mod wide;

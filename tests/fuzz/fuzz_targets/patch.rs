//! See `tests/src/fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| docket_tests::fuzz::run("patch", input));

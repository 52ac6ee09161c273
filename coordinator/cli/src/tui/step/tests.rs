//! Tests of the state by its keys and of the view by its screens, on a synthetic run that reads, edits, fails
//! its tests and ends with a failed check. Its untrusted texts are hostile.

mod fixtures;
mod state;
mod view;

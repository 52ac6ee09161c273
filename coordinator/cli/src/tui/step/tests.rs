//! The model by its keys, the view by its screens: on a made-up run that reads, edits, fails its tests and
//! ends with a failed check; texts of strangers in it are hostile.

mod fixtures;
mod state;
mod view;

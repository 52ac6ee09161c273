//! The tools of the wide set for a virtual environment of Python: one, in a folder that no snapshot holds.
//!
//! There is no tool to make one: `venv_install` does where it is not there, with or without packages.

mod environment;

pub(crate) mod install;
pub(crate) mod run;

//! Tools of the wide set for a Python virtual environment: a single one, in a folder that is in no snapshot.
//!
//! There is no tool to create it: `venv_install` does so if necessary, with or without packages.

mod environment;

pub(crate) mod install;
pub(crate) mod run;

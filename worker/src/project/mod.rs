//! What configures a project. Its own settings are `docket.toml` in the root of its repository, read once, when a run
//! starts, and pinned in its log: what the file says later changes no run that began before. Pure.

pub(crate) mod config_files;
mod settings;

pub use settings::{ProjectSettings, ProjectSettingsError, SETTINGS_FILE};

//! Project configuration. A project's own settings are in `docket.toml` in the root of its repository. They are read
//! once when a run starts and pinned in its log, so later changes of the file do not affect that run. Pure.

pub(crate) mod config_files;
mod settings;

pub use settings::{ProjectSettings, ProjectSettingsError, SETTINGS_FILE};

//! A project's own settings: `docket.toml` in the root of its repository. Read once, when a run starts, and
//! pinned in its log: what the file says later changes no run that began before. Pure.

mod settings;

pub use settings::{FILE, ProjectError, ProjectSettings};

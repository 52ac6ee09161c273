//! A run's history: its events, turns and contents, and its export formats.

pub(crate) mod blobs;
pub(crate) mod children;
pub(crate) mod file_view;
pub(crate) mod lineage;
pub(crate) mod recorded_output;
pub(crate) mod recorded_run;
pub(crate) mod run_export;
pub(crate) mod run_history;
pub(crate) mod spans;
pub(crate) mod turns;

//! Tool calls and final checks, carried out on the workbench, and what they leave behind as events.

pub(super) mod batch;
pub(super) mod before;
pub(super) mod beyond;
pub(super) mod checks;
pub(super) mod execution;
pub(super) mod held;
pub(super) mod known;
pub(super) mod linting;
pub(super) mod malformed;
pub(super) mod redaction;
pub(super) mod remember;
pub(super) mod reread;
pub(super) mod together;
pub(super) mod workbench;

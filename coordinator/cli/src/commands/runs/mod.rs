//! Commands that inspect a run or continue from it.

pub(crate) mod blame;
pub(crate) mod cat;
pub(crate) mod checkout;
pub(crate) mod diff;
pub(crate) mod export;
pub(crate) mod follow;
pub(crate) mod fork;
pub(crate) mod import;
pub(crate) mod logs;
pub(crate) mod replay;
pub(crate) mod replay_text;
pub(crate) mod rerun_tools;
pub(crate) mod resume;
pub(crate) mod shell;
pub(crate) mod verify;

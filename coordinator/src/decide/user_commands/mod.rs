//! Commands issued by people: answer, cancel, pause, retry, resume, fork, review a result.

pub(super) mod answer;
pub(super) mod cancel;
pub(super) mod fork;
pub(super) mod pause;
pub(super) mod reprioritize;
pub(super) mod resume;
pub(super) mod retry;
pub(super) mod review;

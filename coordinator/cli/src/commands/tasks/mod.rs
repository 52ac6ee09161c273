//! Commands that create, list and manage tasks.

pub(crate) mod answer;
pub(crate) mod batch;
pub(crate) mod bulk;
pub(crate) mod cancel;
pub(crate) mod mcp;
pub(crate) mod pause;
pub(crate) mod ps;
pub(crate) mod reprioritize;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod schedule;
pub(crate) mod show;
pub(crate) mod submit;
pub(crate) mod tell;
pub(crate) mod why;

//! Where notifications are delivered: webhooks and commands.

pub(crate) mod command;
pub(crate) mod targets;
pub(crate) mod webhook;

//! Where notifications are delivered: webhooks and commands.

pub(in crate::commands::admin::notify) mod command;
pub(in crate::commands::admin::notify) mod targets;
pub(in crate::commands::admin::notify) mod webhook;

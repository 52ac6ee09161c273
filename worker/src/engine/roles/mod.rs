//! Shared parts of role-based engines: role conversations, structured replies, and changing one file by a patch.

pub(super) mod file_patch;
pub(super) mod json_reply;
pub(super) mod role_conversation;

//! What engines with roles share: how a role is taken up, asked and heard, how its answer is read, how one file is changed by a patch.

pub(super) mod file_patch;
pub(super) mod json_reply;
pub(super) mod role_conversation;

//! What engines with roles share: how a role is taken up, asked and heard, how its answer is read, how one file is changed by a patch.

pub(super) mod answer;
pub(super) mod patching;
pub(super) mod seat;

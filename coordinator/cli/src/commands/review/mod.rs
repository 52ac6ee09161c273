//! Commands for reviewing a result: accept, reject, apply, push.

pub(crate) mod accept;
pub(crate) mod apply;
pub(crate) mod push;
pub(crate) mod reject;

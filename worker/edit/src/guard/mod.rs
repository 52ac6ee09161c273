//! Refuses what must not be applied: another statement than is meant, text that no file holds.

pub(crate) mod copied_markup;
pub(crate) mod crooked;
pub(crate) mod elision;
pub(crate) mod escapes;
pub(crate) mod frame;
pub(crate) mod framed;
pub(crate) mod grown;
pub(crate) mod opposites;
pub(crate) mod placeholder;
pub(crate) mod statement;

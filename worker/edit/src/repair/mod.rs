//! Brings what a model wrote to the file's form: no copied numbers or fences, its own indentation.

pub(crate) mod depth;
pub(crate) mod indent;
pub(crate) mod numbers;
pub(crate) mod reindent;
pub(crate) mod sanitize;
pub(crate) mod signed;

//! Adapts what a model wrote to the file's form: strips copied numbers and fences, adjusts
//! indentation.

pub(crate) mod block_depth;
pub(crate) mod indent_map;
pub(crate) mod indent_style;
pub(crate) mod inline_diff;
pub(crate) mod line_numbers;
pub(crate) mod sanitize;

//! What is checked of a file that was changed: that it parses, and what linters say. What they find is mended where a pattern fits.

pub(super) mod auto_fix;
pub(super) mod lint;
pub(super) mod native_parser;
pub(super) mod syntax_check;

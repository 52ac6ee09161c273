//! What is checked of a file that was changed: that it parses, and what linters say. What they find is mended where a pattern fits.

pub(super) mod gate;
pub(super) mod lint;
pub(super) mod mend;
pub(super) mod parser;

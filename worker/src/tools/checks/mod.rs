//! Checks of changed files: that they parse, and what linters find. Findings with a known pattern are fixed.

pub(super) mod auto_fix;
pub(super) mod lint;
pub(super) mod native_parser;
pub(super) mod syntax_check;

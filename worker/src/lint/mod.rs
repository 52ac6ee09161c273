//! Linters: detection, command lines, parsing of findings and pattern-based fixes. Pure: the run loop executes them
//! (`tools/checks/lint.rs`), the engine decides when.
//!
//! Invariants: a command line is made of a pinned template and quoted paths only. A pattern is a function of a
//! file's bytes and its findings, and leaves alone what it does not fully understand.

mod auto_fix;
mod command_line;
mod detect;
mod file_lines;
mod finding;
mod imports;
mod python_imports;
mod statement_fixes;

pub use auto_fix::{FixedFile, fix_findings, fix_missing_imports};
pub use command_line::{applies_to, checks_whole_project, render_command};
pub use detect::{LinterSettings, ProjectFiles, resolve_linters};
pub use finding::{LintFinding, parse_findings};
pub use imports::can_add_imports;

//! Linters: which a project has, how their lines are made, what they found, and what of it is mended by
//! pattern. Pure: the driver runs them (`tools/checks/lint.rs`), the engine decides when.
//!
//! Invariants: a line is made of a pinned template and quoted paths, nothing else; a pattern is a function
//! of a file's bytes and the findings in it, and leaves alone what it does not wholly understand.

mod detect;
mod finding;
mod imports;
mod line;
mod lines;
mod mend;
mod python;
mod statements;

pub use detect::{LinterSettings, Project, linters};
pub use finding::{Finding, findings};
pub use imports::may_lack_imports;
pub use line::{is_for, is_of_project, line};
pub use mend::{Mended, mend, mend_imports};

//! Tests of the documentation: pages are parsed into the commands a reader runs and played in a shell on the
//! real binary, and links must resolve.
//!
//! The commands of a page run exactly as written. The test sets up the page's surroundings (a repository, a
//! model provider, a database).

mod docs_page;
mod links;
mod page_runner;

pub use docs_page::{BlockAction, DocsPage, PageBlock, PageError};
pub use links::{MarkdownPages, broken_links};
pub use page_runner::{PageEnvironment, run_page};

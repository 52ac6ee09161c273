//! The documentation as a test sees it: pages taken apart into what a reader runs, played in a shell on the real binary,
//! and links that must lead somewhere.
//!
//! What stands in a page is what runs, to the byte. What a page needs around it (a repository, a model's provider, a
//! database) is the test's to set up.

mod docs_page;
mod links;
mod page_runner;

pub use docs_page::{BlockAction, DocsPage, PageBlock, PageError};
pub use links::{MarkdownPages, broken_links};
pub use page_runner::{PageEnvironment, run_page};

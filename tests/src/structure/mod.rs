//! The structure of the product's source: which file imports from which, where imports run in a circle, and which
//! matches name every run event. Read from the source by its syntax, without a build.
//!
//! The tidy tests hold the figures as limits; `cargo run -p docket-tests --bin structure` prints them. Code that only
//! tests compile is left out. Macros are read token by token, so a path inside one counts as well.

mod circles;
mod events;
mod modules;
mod paths;
mod size;

pub use circles::{Circle, file_circles, folder_circles};
pub use events::{exhaustive_matches, variants};
pub use modules::{Crate, product_crates};
pub use size::{FileSize, Sizes, is_test, sizes};

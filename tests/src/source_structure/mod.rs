//! The structure of the product's source: which file imports from which, where imports run in a circle, and which
//! matches name every run event. Read from the source by its syntax, without a build.
//!
//! The tidy tests hold the figures as limits; `cargo run -p docket-tests --bin structure` prints them. Code that only
//! tests compile is left out. Macros are read token by token, so a path inside one counts as well.

mod crate_modules;
mod enum_matches;
mod import_cycles;
mod paths;
mod source_size;

pub use crate_modules::{ProductCrate, product_crates};
pub use enum_matches::{enum_variants, exhaustive_matches};
pub use import_cycles::{ImportCycle, file_cycles, folder_cycles};
pub use source_size::{FileSize, SourceSizes, is_test_file, measure_sizes};

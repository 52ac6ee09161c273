//! The structure of the product's source: imports between files, import cycles, and matches that name every
//! run event. Read from the syntax, without a build.
//!
//! The tidy tests enforce limits on the figures; `cargo run -p docket-tests --bin structure` prints them.
//! Code compiled only for tests is excluded. Macros are read token by token, so paths inside them count as
//! well.

mod crate_modules;
mod enum_matches;
mod import_cycles;
mod paths;
mod source_size;

pub use crate_modules::{ProductCrate, product_crates};
pub use enum_matches::{enum_variants, exhaustive_matches};
pub use import_cycles::{ImportCycle, file_cycles, folder_cycles};
pub use source_size::{FileSize, SourceSizes, is_test_file, measure_sizes};

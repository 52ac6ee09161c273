//! Prints the structure of the workspace: sizes, import cycles, exhaustive matches over the run's events.
#![expect(clippy::print_stdout, reason = "it is a program that prints")]

use std::path::Path;

use anyhow::{Context as _, Result};
use docket_tests::source_structure;

fn main() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace's root")?;
    let sizes = source_structure::measure_sizes(root)?;
    println!("product code {} lines, test code {}", sizes.product_code(), sizes.test_code());
    for (folder, files) in sizes.folder_file_counts().iter().filter(|(_, files)| **files > 15) {
        println!("folder of {files} files: {folder}");
    }
    println!("functions over 70 lines: {}", sizes.long_functions(70).len());
    let product = source_structure::product_crates(root)?;
    for circle in source_structure::folder_cycles(&product) {
        println!("circle across folders: {}", circle.join(" "));
    }
    for circle in source_structure::file_cycles(&product) {
        println!("circle of {} files: {}", circle.len(), circle.join(" "));
    }
    let variants = source_structure::enum_variants(root, &product, "RunEvent")?;
    let matches = source_structure::exhaustive_matches(root, &product, "RunEvent", &variants)?;
    println!(
        "matches over all {} run events: {}",
        variants.len(),
        matches.iter().map(|(_, n)| n).sum::<usize>()
    );
    matches.iter().for_each(|(file, n)| println!("  {n} {file}"));
    Ok(())
}

//! Sizes: lines of code, crowded folders, long functions.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Result;
use syn::{ImplItemFn, ItemFn, ItemMod, spanned::Spanned as _, visit::Visit};

/// A file of the product or of its tests.
#[derive(Debug)]
pub struct FileSize {
    /// Path relative to the workspace.
    pub name: String,
    /// Lines without inline tests.
    pub lines: usize,
    /// Lines that are neither empty nor a comment, without inline tests.
    pub code: usize,
    /// Lines of its inline tests that are neither empty nor a comment.
    pub test_code: usize,
    /// Whether the whole file is a test.
    pub is_test: bool,
    /// Its functions, each with its number of lines, without those of inline tests.
    pub functions: Vec<(String, usize)>,
}

/// The sizes of a workspace.
#[derive(Debug)]
pub struct SourceSizes {
    /// Every source file, sorted by name.
    pub files: Vec<FileSize>,
}

/// Measures every Rust file below `root`, except built or installed ones and the edit corpora.
///
/// # Errors
/// Returns an error if a file cannot be read or is not Rust.
pub fn measure_sizes(root: &Path) -> Result<SourceSizes> {
    let mut files = Vec::new();
    for top in ["schema", "coordinator", "worker", "tests"] {
        let mut folders = vec![root.join(top)];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder)?.flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                if path.is_dir() {
                    let is_built = name == "target" || name == "node_modules" || name == "fixtures";
                    folders.extend((!is_built).then_some(path));
                } else if path.extension().is_some_and(|end| end == "rs") {
                    files.push(measure_file(root, &path)?);
                }
            }
        }
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(SourceSizes { files })
}

/// Start of inline tests.
const INLINE_TESTS: &str = "#[cfg(test)]\nmod tests {";

fn measure_file(root: &Path, path: &Path) -> Result<FileSize> {
    let text = fs::read_to_string(path)?;
    let name = path.strip_prefix(root)?.display().to_string();
    let (body, tests) = text.split_once(INLINE_TESTS).unwrap_or((&text, ""));
    let mut long = FunctionVisitor::default();
    long.visit_file(&syn::parse_file(&text)?);
    Ok(FileSize {
        is_test: is_test_file(&name),
        lines: body.lines().count(),
        code: count_code_lines(body),
        test_code: count_code_lines(tests),
        functions: long.found,
        name,
    })
}

fn count_code_lines(text: &str) -> usize {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// Returns whether a file contains only tests, by its name: `x_tests.rs`, `tests.rs`, and everything below a
/// folder `tests` or `x_tests`.
#[must_use]
pub fn is_test_file(name: &str) -> bool {
    let ends_so = ["/tests.rs", "/test.rs", "/testing.rs", "_tests.rs", "_test.rs", "tests_support.rs"]
        .iter()
        .any(|end| name.ends_with(end));
    let is_below = name.starts_with("tests/") || name.contains("/tests/") || name.contains("_tests/");
    is_below || ends_so
}

#[derive(Default)]
struct FunctionVisitor {
    found: Vec<(String, usize)>,
}

impl FunctionVisitor {
    fn add_function(&mut self, name: &syn::Ident, block: &syn::Block) {
        let span = block.span();
        self.found.push((name.to_string(), span.end().line - span.start().line + 1));
    }
}

impl<'ast> Visit<'ast> for FunctionVisitor {
    fn visit_item_fn(&mut self, function: &'ast ItemFn) {
        self.add_function(&function.sig.ident, &function.block);
        syn::visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast ImplItemFn) {
        self.add_function(&function.sig.ident, &function.block);
        syn::visit::visit_impl_item_fn(self, function);
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        if module.ident != "tests" {
            syn::visit::visit_item_mod(self, module);
        }
    }
}

impl SourceSizes {
    /// Returns the product's files.
    pub fn product_files(&self) -> impl Iterator<Item = &FileSize> {
        self.files.iter().filter(|file| !file.is_test)
    }

    /// Returns the product's lines of code.
    #[must_use]
    pub fn product_code(&self) -> usize {
        self.product_files().map(|file| file.code).sum()
    }

    /// Returns the tests' lines of code.
    #[must_use]
    pub fn test_code(&self) -> usize {
        let whole: usize =
            self.files.iter().filter(|file| file.is_test).map(|file| file.code + file.test_code).sum();
        whole + self.product_files().map(|file| file.test_code).sum::<usize>()
    }

    /// Returns the number of product files in each folder.
    #[must_use]
    pub fn folder_file_counts(&self) -> BTreeMap<String, usize> {
        let mut folders = BTreeMap::new();
        for file in self.product_files() {
            let folder = file.name.rsplit_once('/').map_or("", |(folder, _)| folder);
            *folders.entry(folder.to_owned()).or_default() += 1;
        }
        folders
    }

    /// Returns the product's functions of more than `lines` lines, as `file: name`.
    #[must_use]
    pub fn long_functions(&self, lines: usize) -> BTreeSet<String> {
        let named = |file: &FileSize| -> Vec<String> {
            let long = file.functions.iter().filter(|(_, length)| *length > lines);
            long.map(|(name, _)| format!("{}: {name}", file.name)).collect()
        };
        self.product_files().flat_map(named).collect()
    }
}

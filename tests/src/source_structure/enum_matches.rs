//! Finds matches that name every variant of an enum: each has to be edited for a new variant.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::{Context as _, Result};
use proc_macro2::{TokenStream, TokenTree};
use syn::{ExprMatch, ItemEnum, ItemMacro, visit::Visit};

use super::crate_modules::ProductCrate;

/// Returns the variants of the product's enum `name`.
///
/// # Errors
/// Returns an error if there is no such enum or a file cannot be read.
pub fn enum_variants(root: &Path, product: &[ProductCrate], name: &str) -> Result<BTreeSet<String>> {
    struct VariantFinder<'a>(&'a str, BTreeSet<String>);
    impl<'ast> Visit<'ast> for VariantFinder<'_> {
        fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
            if item.ident == self.0 {
                self.1.extend(item.variants.iter().map(|variant| variant.ident.to_string()));
            }
        }

        fn visit_item_macro(&mut self, item: &'ast ItemMacro) {
            self.visit_macro_enum(item.mac.tokens.clone());
        }
    }
    impl VariantFinder<'_> {
        /// Visits an enum that a macro generates.
        fn visit_macro_enum(&mut self, tokens: TokenStream) {
            let tokens: Vec<TokenTree> = tokens.into_iter().collect();
            for window in tokens.windows(3) {
                if let [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Group(group)] = window
                    && word == "enum"
                    && name == self.0
                {
                    let names = group.stream().into_iter().filter_map(|token| match token {
                        TokenTree::Ident(name) => Some(name.to_string()),
                        _ => None,
                    });
                    self.1.extend(names);
                }
            }
        }
    }
    let mut find = VariantFinder(name, BTreeSet::new());
    for_each_file(root, product, |_, parsed| find.visit_file(parsed))?;
    Some(find.1).filter(|found| !found.is_empty()).with_context(|| format!("there is no enum {name}"))
}

/// Returns the matches that name each of these variants of `name`, as a file and its number of such matches.
///
/// # Errors
/// Returns an error if a file cannot be read.
pub fn exhaustive_matches(
    root: &Path,
    product: &[ProductCrate],
    name: &str,
    all: &BTreeSet<String>,
) -> Result<Vec<(String, usize)>> {
    let mut found = Vec::new();
    for_each_file(root, product, |file, parsed| {
        let mut count = MatchCounter { name, all, matches: 0 };
        count.visit_file(parsed);
        if count.matches > 0 {
            found.push((file.to_owned(), count.matches));
        }
    })?;
    Ok(found)
}

fn for_each_file(
    root: &Path,
    product: &[ProductCrate],
    mut each: impl FnMut(&str, &syn::File),
) -> Result<()> {
    for read in product {
        for file in &read.files {
            let path = read.folder.join(file);
            let text = fs::read_to_string(root.join(&path))?;
            each(&path.display().to_string(), &syn::parse_file(&text)?);
        }
    }
    Ok(())
}

struct MatchCounter<'a> {
    name: &'a str,
    all: &'a BTreeSet<String>,
    matches: usize,
}

impl<'ast> Visit<'ast> for MatchCounter<'_> {
    fn visit_expr_match(&mut self, expression: &'ast ExprMatch) {
        let mut named = VariantCollector { enums: [self.name, "Self"], variants: BTreeSet::new() };
        expression.arms.iter().for_each(|arm| named.visit_pat(&arm.pat));
        if self.all.is_subset(&named.variants) {
            self.matches += 1;
        }
        syn::visit::visit_expr_match(self, expression);
    }
}

struct VariantCollector<'a> {
    enums: [&'a str; 2],
    variants: BTreeSet<String>,
}

impl<'ast> Visit<'ast> for VariantCollector<'_> {
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut back = path.segments.iter().rev();
        if let (Some(last), Some(before)) = (back.next(), back.next())
            && self.enums.iter().any(|name| before.ident == name)
        {
            self.variants.insert(last.ident.to_string());
        }
        syn::visit::visit_path(self, path);
    }
}

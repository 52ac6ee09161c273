//! The paths used in a piece of source.

use proc_macro2::{Spacing, TokenStream, TokenTree};

/// Returns every path of two or more segments, including those inside macros. Braces of a `use` inside a
/// function are followed one level deep.
pub(super) fn find_paths(tokens: TokenStream) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    collect_paths(tokens, &mut found);
    found
}

fn collect_paths(tokens: TokenStream, found: &mut Vec<Vec<String>>) {
    let mut path: Vec<String> = Vec::new();
    // Number of colons since the last segment.
    let mut colons = 0;
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                if colons != 2 {
                    finish_path(&mut path, found);
                }
                path.push(name.to_string());
                colons = 0;
            }
            TokenTree::Punct(mark) if mark.as_char() == ':' => {
                let joins = colons == 1 || mark.spacing() == Spacing::Joint;
                colons = if joins { colons + 1 } else { 3 };
            }
            TokenTree::Group(group) => {
                let is_use = colons == 2 && group.delimiter() == proc_macro2::Delimiter::Brace;
                let before = if is_use { path.clone() } else { Vec::new() };
                finish_path(&mut path, found);
                colons = 0;
                let inner = found.len();
                collect_paths(group.stream(), found);
                if is_use {
                    found[inner..].iter_mut().for_each(|path| *path = [&before[..], path].concat());
                    let names = group.stream().into_iter().filter_map(|token| match token {
                        TokenTree::Ident(name) => Some([&before[..], &[name.to_string()]].concat()),
                        _ => None,
                    });
                    found.extend(names);
                }
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {
                finish_path(&mut path, found);
                colons = 0;
            }
        }
    }
    finish_path(&mut path, found);
}

fn finish_path(path: &mut Vec<String>, found: &mut Vec<Vec<String>>) {
    let path = std::mem::take(path);
    if path.len() > 1 {
        found.push(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_found_in_code_macros_and_groups() {
        let code =
            "fn f(a: &crate::one::A) { two::b(vec![super::c::D { e: 1 }]); use g::{h, i::J}; k::<L>() }";
        let found = find_paths(code.parse().expect("tokens"));
        let found: Vec<String> = found.into_iter().map(|path| path.join("::")).collect();
        for path in ["crate::one::A", "two::b", "super::c::D", "g::i::J", "g::h"] {
            assert!(found.iter().any(|known| known == path), "{path}: {found:?}");
        }
        assert!(!found.iter().any(|path| path.contains("fn")), "{found:?}");
    }
}

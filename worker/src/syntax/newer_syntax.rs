//! Rewrites syntax that is newer than the released grammars into older equivalents.
//!
//! A text with errors is searched for newer constructs. Each is overwritten byte for byte with something that parses
//! the same way, so that every other error keeps its position. Remove a construct once its grammar supports it: the
//! tests below fail when that happens.

use std::sync::LazyLock;

use regex::bytes::{Captures, Regex};

use super::language::SourceLanguage;

fn compile_regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the patterns of this file are tested")
}

/// Rust 2024: `safe fn` and `safe static` in an `unsafe extern` block.
static RUST_SAFE: LazyLock<Regex> =
    LazyLock::new(|| compile_regex(r"(?m)^(\s*(?:pub(?:\([^)\n]*\))?\s+)?)(safe)(\s+(?:fn|static)\b)"));

/// TypeScript 5.0: `export type * from`.
static EXPORT_TYPE: LazyLock<Regex> = LazyLock::new(|| compile_regex(r"(\bexport\s+)(type)(\s+\*)"));

/// Type parameter lists, which may have variance annotations (TypeScript 4.7).
static TYPE_PARAMETERS: LazyLock<Regex> =
    LazyLock::new(|| compile_regex(r"\b(?:interface|class|type)\s+[\w$]+\s*<[^{}();]*"));
static VARIANCE: LazyLock<Regex> =
    LazyLock::new(|| compile_regex(r"([<,]\s*(?:const\s+)?)(in\s+out|in|out)(\s+[A-Za-z_$])"));

/// Explicit resource management: `using a = b`, `for (await using a of b)`.
static USING: LazyLock<Regex> =
    LazyLock::new(|| compile_regex(r"(\bawait\s+)?\b(using)(\s+[A-Za-z_$][\w$]*\s*(?:=|:|\bof\b))"));

/// Type parameter lists in Python, which may have defaults since 3.13.
static PYTHON_TYPE_PARAMETERS: LazyLock<Regex> =
    LazyLock::new(|| compile_regex(r"(?m)^[ \t]*(?:class|def|async[ \t]+def|type)[ \t]+\w+[ \t]*\["));

/// Python 3.14: template strings.
static TEMPLATE_STRING: LazyLock<Regex> = LazyLock::new(|| compile_regex(r#"(?i)\b(r?)(t)(r?["'])"#));

/// Rewrites `text` in older syntax; `None` if it has no newer constructs.
pub(super) fn rewrite_newer_syntax(language: SourceLanguage, text: &[u8]) -> Option<Vec<u8>> {
    let after = match language {
        SourceLanguage::Rust => blank_second_group(&RUST_SAFE, text),
        SourceLanguage::TypeScript | SourceLanguage::Tsx => {
            let text = blank_second_group(&EXPORT_TYPE, text);
            let heads = |found: &Captures<'_>| blank_second_group(&VARIANCE, &found[0]);
            replace_using(&TYPE_PARAMETERS.replace_all(&text, heads))
        }
        SourceLanguage::Python => {
            let plain = |found: &Captures<'_>| [&found[1], b"f", &found[3]].concat();
            blank_type_parameter_defaults(&TEMPLATE_STRING.replace_all(text, plain))
        }
        SourceLanguage::Toml => join_inline_tables(text),
        SourceLanguage::Bash
        | SourceLanguage::C
        | SourceLanguage::Cpp
        | SourceLanguage::Go
        | SourceLanguage::Java
        | SourceLanguage::JavaScript
        | SourceLanguage::Json
        | SourceLanguage::Yaml => return None,
    };
    (after != text).then_some(after)
}

/// Replaces the second group of each match with blanks.
fn blank_second_group(pattern: &Regex, text: &[u8]) -> Vec<u8> {
    let blank = |found: &Captures<'_>| [&found[1], &blank_out(&found[2])[..], &found[3]].concat();
    pattern.replace_all(text, blank).into_owned()
}

/// Returns blanks of the same length, keeping line breaks.
fn blank_out(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| if byte.is_ascii_whitespace() { *byte } else { b' ' }).collect()
}

fn replace_using(text: &[u8]) -> Vec<u8> {
    let constant = |found: &Captures<'_>| {
        let awaits = found.get(1).map_or(Vec::new(), |awaits| blank_out(awaits.as_bytes()));
        [&awaits[..], b"const", &found[3]].concat()
    };
    USING.replace_all(text, constant).into_owned()
}

/// Blanks out the defaults of Python's type parameters.
fn blank_type_parameter_defaults(text: &[u8]) -> Vec<u8> {
    let mut out = text.to_vec();
    for head in PYTHON_TYPE_PARAMETERS.find_iter(text) {
        let (mut depth, mut defaults) = (1usize, false);
        for byte in &mut out[head.end()..] {
            match *byte {
                b'[' | b'(' | b'{' => depth += 1,
                b']' | b')' | b'}' => depth -= 1,
                b'=' if depth == 1 => defaults = true,
                b',' if depth == 1 => defaults = false,
                _ => {}
            }
            if depth == 0 {
                break;
            }
            if defaults && !byte.is_ascii_whitespace() {
                *byte = b' ';
            }
        }
    }
    out
}

/// TOML 1.1 allows line breaks, comments and a trailing comma in inline tables. Their line breaks are moved behind the
/// table, so that what follows keeps its line.
fn join_inline_tables(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let (mut depth, mut breaks, mut comma) = (0usize, 0usize, None);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let length = match byte {
            b'"' | b'\'' => toml_string_length(&text[at..]),
            b'#' => text[at..].iter().position(|byte| *byte == b'\n').unwrap_or(text.len() - at),
            _ => 1,
        };
        let part = &text[at..at + length];
        at += length;
        match byte {
            b'#' if depth > 0 => continue,
            b'\n' | b'\r' if depth > 0 => {
                breaks += usize::from(byte == b'\n');
                out.push(b' ');
                continue;
            }
            b'{' => depth += 1,
            b'}' => {
                if let Some(comma) = comma.filter(|_| depth > 0) {
                    out[comma] = b' ';
                }
                depth = depth.saturating_sub(1);
            }
            _ => {}
        }
        if byte == b',' && depth > 0 {
            comma = Some(out.len());
        } else if !byte.is_ascii_whitespace() {
            comma = None;
        }
        out.extend_from_slice(part);
        if depth == 0 {
            out.extend(std::iter::repeat_n(b'\n', std::mem::take(&mut breaks)));
        }
    }
    out
}

/// Returns the length of the TOML string at the start of `text`, quotes included; the rest if it is not terminated.
fn toml_string_length(text: &[u8]) -> usize {
    let quote = text[0];
    let marks = if text.starts_with(&[quote; 3]) { 3 } else { 1 };
    let mut at = marks;
    while at < text.len() {
        if text[at] == b'\\' && quote == b'"' {
            at += 2;
        } else if text[at..].starts_with(&[quote; 3][..marks]) {
            return at + marks;
        } else {
            at += 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::{
        super::{SyntaxVerdict, compare_syntax, language::languages_for_path},
        *,
    };

    /// Constructs that the grammars do not support yet.
    const NEWER_SYNTAX: [(&str, &str); 11] = [
        ("a.rs", "unsafe extern \"C\" {\n    pub safe fn abs(x: i32) -> i32;\n    safe static X: u8;\n}\n"),
        ("a.ts", "export type * from \"./types\";\nexport type * as N from \"y\";\n"),
        ("a.ts", "interface P<in T> { a: T }\ninterface Q<out T, in out U> { a: T }\n"),
        ("a.tsx", "abstract class A<in out T> {}\n"),
        ("a.ts", "for (using a of b) {}\n"),
        ("a.ts", "for (await using a of b) {}\n"),
        ("a.py", "class A[T = str]: ...\n"),
        ("a.py", "type A[T = int, *U = *tuple[int, str]] = list[T]\n"),
        ("a.py", "def f[**P = [int]](x: int = 1): ...\n"),
        ("a.toml", "a = {\n  b = 1, # {one}\n  c = \"}\\\"\",\n  d = { e = [1,\n 2] },\n}\n[x]\ny = 1\n"),
        ("a.toml", "a = [\n  {\n    b = 1,\n  },\n]\n"),
    ];

    #[test]
    fn syntax_newer_than_the_grammar_is_not_an_error() {
        for (path, text) in NEWER_SYNTAX {
            assert_eq!(compare_syntax(path, None, text.as_bytes()), SyntaxVerdict::NotWorse, "{text}");
            let language = languages_for_path(path)[0];
            let older = rewrite_newer_syntax(language, text.as_bytes()).expect("has newer words");
            assert_eq!(older.iter().filter(|b| **b == b'\n').count(), text.lines().count(), "{text}");
            assert!(
                super::super::errors::grammar_errors(language, text.as_bytes()).is_ok_and(|e| !e.is_empty()),
                "{text}: the grammar knows it now"
            );
        }
    }

    #[test]
    fn other_errors_keep_their_position() {
        for (path, text, line) in [
            ("a.rs", "unsafe extern \"C\" {\n    safe fn f();\n}\nfn g() { let a = (1; }\n", 4),
            ("a.ts", "export type * from \"a\";\n\nlet a = (1;\n", 3),
            ("a.py", "class A[T = str]:\n    pass\n\nx = (1\n", 4),
            ("a.toml", "a = {\n  b = 1,\n}\nc = = 1\n", 4),
        ] {
            let SyntaxVerdict::Worse(found) = compare_syntax(path, None, text.as_bytes()) else {
                panic!("{text}")
            };
            assert_eq!((found.line, found.count), (line, 1), "{found}");
            assert_eq!(found.line_text, text.lines().nth(line - 1).expect("is there").trim());
        }
        for (path, text) in [
            ("a.py", "class A[T = str: ...\n"),
            ("a.toml", "a = {\n  b = 1\n  c = 2\n}\n"),
            ("a.ts", "f(a, in b);\n"),
            ("a.toml", "a = {"),
        ] {
            assert!(matches!(compare_syntax(path, None, text.as_bytes()), SyntaxVerdict::Worse(_)), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_text_is_rewritten_without_panic(text in "(class A\\[|type|def f\\[|T|=|,|\\]|\\{|\\}|\"|'|#|\\\\|\n|safe fn|using a =|é| ){0,30}") {
            for language in [SourceLanguage::Rust, SourceLanguage::TypeScript, SourceLanguage::Python, SourceLanguage::Toml, SourceLanguage::JavaScript] {
                let _ = rewrite_newer_syntax(language, text.as_bytes());
            }
        }
    }
}

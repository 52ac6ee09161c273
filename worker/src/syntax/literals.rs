//! Finds string literals: white space and words inside them are the program's data, not its style.

use tree_sitter::Node;

use super::{
    comparison::{PARSED_BYTES_MAX, strip_bom},
    errors::parse_tree,
    language::languages_for_path,
};

/// The string literals of a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StringLiterals {
    /// Start and end of each literal, as (row, byte), from 0.
    spans: Vec<((usize, usize), (usize, usize))>,
    /// The grammar does not accept the text, so where a literal ends is a guess.
    is_unknown: bool,
}

impl StringLiterals {
    /// Parses a text in the language of `path`; without a grammar there are no literals.
    #[must_use]
    pub fn parse(path: &str, text: &[u8]) -> Self {
        let languages = languages_for_path(path);
        if languages.is_empty() {
            return Self::default();
        }
        let text = strip_bom(text);
        for language in languages.iter().filter(|_| text.len() <= PARSED_BYTES_MAX) {
            let Ok(tree) = parse_tree(*language, text) else { continue };
            if !tree.root_node().has_error() {
                return Self { spans: literal_spans(tree.root_node()), is_unknown: false };
            }
        }
        Self { spans: Vec::new(), is_unknown: true }
    }

    /// Whether the end of this line (from 0) may be part of a literal.
    #[must_use]
    pub fn may_contain_end_of(&self, row: usize) -> bool {
        self.is_unknown || self.spans.iter().any(|(from, to)| from.0 <= row && row < to.0)
    }

    /// Whether the start of this line (from 0) is inside a literal that began earlier.
    #[must_use]
    pub fn contain_start_of(&self, row: usize) -> bool {
        self.spans.iter().any(|(from, to)| from.0 < row && row <= to.0)
    }

    /// Whether this byte of a line (both from 0) may be part of a literal.
    #[must_use]
    pub fn may_contain(&self, row: usize, byte: usize) -> bool {
        self.is_unknown || self.spans.iter().any(|(from, to)| *from <= (row, byte) && (row, byte) < *to)
    }

    /// Returns the last row of the literal that starts the line `row` (from 0).
    #[must_use]
    pub fn last_row_of_literal_at(&self, row: usize) -> Option<usize> {
        self.spans.iter().find(|(from, _)| *from == (row, 0)).map(|(_, to)| to.0)
    }
}

fn literal_spans(root: Node<'_>) -> Vec<((usize, usize), (usize, usize))> {
    let mut found = Vec::new();
    let mut cursor = root.walk();
    loop {
        let node = cursor.node();
        let kind = node.kind();
        let is_text = node.is_named()
            && (kind.contains("string") && kind != "concatenated_string"
                || kind.ends_with("_scalar")
                || kind == "template_literal_type");
        if is_text {
            let (from, to) = (node.start_position(), node.end_position());
            found.push(((from.row, from.column), (to.row, to.column)));
        } else if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                return found;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiline_literals_are_found_in_each_language() {
        for (path, text) in [
            ("a.py", "x = 1 \nMAIL = f\"\"\"Dear {x}, \nend \n\"\"\" \n"),
            ("a.js", "x = 1 \nm = `a ${x} \nend \n` \n"),
            ("a.ts", "let x: A \nlet m = `a ${x} \nend \n` \n"),
            ("a.rs", "fn f() { \nlet a = r#\"a \nend \n\"#; }\n"),
            ("a.go", "package a \nvar x = `a \nend \n` \n"),
            ("a.java", "class A { \nString a = \"\"\"\nend \n\"\"\"; }\n"),
            ("a.toml", "x = 1 \ny = \"\"\"a \nend \n\"\"\" \n"),
        ] {
            let literals = StringLiterals::parse(path, text.as_bytes());
            let held: Vec<bool> = (0..4).map(|row| literals.may_contain_end_of(row)).collect();
            assert_eq!(held, [false, true, true, false], "{path}");
            assert!(literals.contain_start_of(2) && !literals.contain_start_of(1), "{path}");
        }
        let literals = StringLiterals::parse("a.py", b"a = \"b == None\"; c == None\n");
        assert!(literals.may_contain(0, 7) && !literals.may_contain(0, 20));
        assert!(
            StringLiterals::parse("a.py", b"x = (\n").may_contain_end_of(0)
                && !StringLiterals::parse("a.txt", b"x = \"\n").may_contain_end_of(0)
        );
    }
}

//! Outline of a source file: its definitions and their lines, from tree-sitter's grammars.

use tree_sitter::Node;

use super::{
    comparison::{PARSED_BYTES_MAX, strip_bom},
    errors::parse_tree,
    language::{SourceLanguage, languages_for_path},
};

/// Most definitions collected from one file; no answer shows more.
const DEFINITIONS_MAX: usize = 5000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutlineEntry {
    /// First line, from 1.
    pub line: u64,
    /// Last line, from 1.
    pub last_line: u64,
    /// Number of definitions that enclose it.
    pub depth: usize,
}

/// Returns the definitions of a text in line order; the name in `path` determines the language. `None` if there is no
/// grammar or the text was not parsed; if the grammar accepts only parts of it, the definitions of those parts.
#[must_use]
pub fn outline(path: &str, text: &[u8]) -> Option<Vec<OutlineEntry>> {
    if text.len() > PARSED_BYTES_MAX {
        return None;
    }
    let text = strip_bom(text);
    // If a name fits several languages, the one with the most definitions is used.
    let each = languages_for_path(path).iter().filter_map(|language| outline_in_language(*language, text));
    each.max_by_key(Vec::len)
}

fn outline_in_language(language: SourceLanguage, text: &[u8]) -> Option<Vec<OutlineEntry>> {
    let tree = parse_tree(language, text).ok()?;
    let mut found = Vec::new();
    collect_definitions(tree.root_node(), language, 0, &mut found);
    found.dedup_by_key(|definition| definition.line);
    Some(found)
}

fn collect_definitions(
    root: Node<'_>,
    language: SourceLanguage,
    depth: usize,
    found: &mut Vec<OutlineEntry>,
) {
    // An explicit stack, because a file can be nested as deep as it is long. Each node comes with its parent's kind:
    // asking a node for its parent walks the tree from the root.
    let mut open = vec![(root, depth, "")];
    let mut cursor = root.walk();
    while let Some((node, depth, parent)) = open.pop() {
        if found.len() >= DEFINITIONS_MAX {
            return;
        }
        let defines = is_definition(language, node);
        if defines {
            let line = node.start_position().row as u64 + 1;
            let end = node.end_position();
            // A node that ends with a line break ends at column 0 of the next line.
            let last = if end.column == 0 { end.row as u64 } else { end.row as u64 + 1 };
            found.push(OutlineEntry { line, last_line: last.max(line), depth });
        }
        let below = depth + usize::from(defines);
        if below > depth_max(language) || is_leaf(language, node.kind(), parent) {
            continue;
        }
        let at = open.len();
        open.extend(node.named_children(&mut cursor).map(|child| (child, below, node.kind())));
        open[at..].reverse();
    }
}

/// Deepest nesting that is listed: definitions within definitions, or keys within keys for data.
const fn depth_max(language: SourceLanguage) -> usize {
    match language {
        SourceLanguage::Json | SourceLanguage::Yaml => 1,
        SourceLanguage::Bash
        | SourceLanguage::C
        | SourceLanguage::Cpp
        | SourceLanguage::Go
        | SourceLanguage::Java
        | SourceLanguage::JavaScript
        | SourceLanguage::Python
        | SourceLanguage::Rust
        | SourceLanguage::Toml
        | SourceLanguage::Tsx
        | SourceLanguage::TypeScript => 6,
    }
}

/// Nodes without definitions worth listing, such as function bodies, where everything is local.
fn is_leaf(language: SourceLanguage, kind: &str, parent: &str) -> bool {
    match language {
        SourceLanguage::Rust => matches!(kind, "block" | "token_tree" | "use_declaration"),
        SourceLanguage::Go | SourceLanguage::C | SourceLanguage::Cpp | SourceLanguage::Java => {
            matches!(kind, "block" | "compound_statement" | "field_declaration_list")
                && !is_type_scope(parent)
        }
        SourceLanguage::JavaScript | SourceLanguage::Tsx | SourceLanguage::TypeScript => {
            kind == "statement_block" && !is_type_scope(parent)
        }
        SourceLanguage::Bash
        | SourceLanguage::Json
        | SourceLanguage::Yaml
        | SourceLanguage::Python
        | SourceLanguage::Toml => false,
    }
}

/// Whether a node is a type or namespace, whose members are definitions.
fn is_type_scope(kind: &str) -> bool {
    matches!(
        kind,
        "class_specifier"
            | "struct_specifier"
            | "namespace_definition"
            | "internal_module"
            | "module"
            | "linkage_specification"
    )
}

fn is_pair(node: Node<'_>) -> bool {
    matches!(node.kind(), "pair" | "block_mapping_pair")
}

fn is_definition(language: SourceLanguage, node: Node<'_>) -> bool {
    let kind = node.kind();
    match language {
        SourceLanguage::Bash => kind == "function_definition",
        SourceLanguage::C | SourceLanguage::Cpp => match kind {
            "struct_specifier" | "class_specifier" | "union_specifier" | "enum_specifier" => {
                node.child_by_field_name("body").is_some() && node.child_by_field_name("name").is_some()
            }
            other => matches!(
                other,
                "function_definition" | "namespace_definition" | "type_definition" | "preproc_function_def"
            ),
        },
        SourceLanguage::Go => matches!(kind, "function_declaration" | "method_declaration" | "type_spec"),
        SourceLanguage::Java => matches!(
            kind,
            "class_declaration"
                | "interface_declaration"
                | "enum_declaration"
                | "record_declaration"
                | "method_declaration"
                | "constructor_declaration"
        ),
        SourceLanguage::JavaScript | SourceLanguage::Tsx | SourceLanguage::TypeScript => match kind {
            "variable_declarator" | "public_field_definition" | "field_definition" => {
                node.child_by_field_name("value").is_some_and(|value| {
                    matches!(value.kind(), "arrow_function" | "function_expression" | "class")
                })
            }
            other => matches!(
                other,
                "function_declaration"
                    | "generator_function_declaration"
                    | "class_declaration"
                    | "abstract_class_declaration"
                    | "method_definition"
                    | "interface_declaration"
                    | "type_alias_declaration"
                    | "enum_declaration"
                    | "internal_module"
            ),
        },
        SourceLanguage::Json | SourceLanguage::Yaml => is_pair(node),
        SourceLanguage::Python => matches!(kind, "function_definition" | "class_definition"),
        SourceLanguage::Rust => matches!(
            kind,
            "function_item"
                | "function_signature_item"
                | "struct_item"
                | "enum_item"
                | "union_item"
                | "trait_item"
                | "impl_item"
                | "mod_item"
                | "macro_definition"
                | "type_item"
                | "const_item"
                | "static_item"
        ),
        SourceLanguage::Toml => matches!(kind, "table" | "table_array_element"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_outline(path: &str, text: &str) -> String {
        let lines: Vec<&str> = text.lines().collect();
        let found = outline(path, text.as_bytes()).expect("a language");
        let each = found.iter().map(|found| {
            let line = lines[usize::try_from(found.line).expect("small") - 1].trim();
            format!("{}{}-{} {line}\n", "  ".repeat(found.depth), found.line, found.last_line)
        });
        each.collect()
    }

    #[test]
    fn definitions_are_found_in_each_language() {
        for (path, text, want) in [
            (
                "a.rs",
                "use x;\nstruct A {\n    b: u8,\n}\nimpl A {\n    fn c(&self) {\n        fn inner() {}\n    }\n}\nmod t {\n    const D: u8 = 1;\n}\n",
                "2-4 struct A {\n5-9 impl A {\n  6-8 fn c(&self) {\n10-12 mod t {\n  11-11 const D: u8 = 1;\n",
            ),
            (
                "a.py",
                "import x\nclass A:\n    def b(self):\n        return 1\n\n@x\nasync def c():\n    def d(): pass\n",
                "2-4 class A:\n  3-4 def b(self):\n7-8 async def c():\n  8-8 def d(): pass\n",
            ),
            (
                "a.ts",
                "export class A {\n  b() {}\n  c = () => 1;\n}\nexport const d = async () => {\n  const no = 1;\n};\ninterface E { f: string }\ntype G = 1;\n",
                "1-4 export class A {\n  2-2 b() {}\n  3-3 c = () => 1;\n5-7 export const d = async () => {\n8-8 interface E { f: string }\n9-9 type G = 1;\n",
            ),
            (
                "a.js",
                "function a() {}\nclass B { c() {} }\n",
                "1-1 function a() {}\n2-2 class B { c() {} }\n",
            ),
            (
                "a.go",
                "package a\nfunc A() {\n}\nfunc (b B) C() {}\ntype D struct {\n}\n",
                "2-3 func A() {\n4-4 func (b B) C() {}\n5-6 type D struct {\n",
            ),
            (
                "A.java",
                "class A {\n  A() {}\n  int b() {\n    return 1;\n  }\n}\n",
                "1-6 class A {\n  2-2 A() {}\n  3-5 int b() {\n",
            ),
            (
                "a.c",
                "struct a {\n  int b;\n};\nint c(void) {\n  return 1;\n}\n",
                "1-3 struct a {\n4-6 int c(void) {\n",
            ),
            (
                "a.cpp",
                "namespace n {\nclass A {\n  void b() {}\n};\n}\n",
                "1-5 namespace n {\n  2-4 class A {\n    3-3 void b() {}\n",
            ),
            ("a.toml", "x = 1\n[a]\nb = 1\n[[c]]\n", "2-3 [a]\n4-4 [[c]]\n"),
            (
                "a.json",
                "{\n  \"a\": {\n    \"b\": {\n      \"c\": 1\n    }\n  }\n}\n",
                "2-6 \"a\": {\n  3-5 \"b\": {\n",
            ),
            ("a.yaml", "a:\n  b:\n    c: 1\nd: 2\n", "1-3 a:\n  2-3 b:\n4-4 d: 2\n"),
        ] {
            assert_eq!(format_outline(path, text), want, "{path}");
        }
    }

    #[test]
    fn unknown_or_large_files_have_no_outline() {
        assert_eq!(outline("notes.md", b"# a\n"), None);
        assert_eq!(outline("a.py", "x = 1\n".repeat(200_000).as_bytes()), None);
        assert_eq!(
            format_outline("broken.py", "def a():\n    return 1\n)))\ndef b(: pass\n").lines().next(),
            Some("1-2 def a():")
        );
        let deep = "[".repeat(100_000);
        assert!(outline("a.json", deep.as_bytes()).is_none_or(|found| found.is_empty()));
    }
}

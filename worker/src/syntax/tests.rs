//! Per language: a valid edit is silent, a breaking edit is reported with its line, and a file that was already broken
//! stays silent unless the edit makes it worse.

use super::{PARSED_BYTES_MAX, SyntaxVerdict, compare_syntax};

struct EditCase {
    path: &'static str,
    language: &'static str,
    text: &'static str,
    /// Part of the text and its replacement.
    valid: (&'static str, &'static str),
    breaking: (&'static str, &'static str),
    /// Lines of the file after the breaking edit that the verdict may report.
    lines: std::ops::RangeInclusive<usize>,
    /// Text that is invalid in this language, appended to make a file that is already broken.
    broken: &'static str,
}

const CASES: &[EditCase] = &[
    EditCase {
        path: "a.py",
        language: "Python",
        text: "import os\n\ndef f(a):\n    if a:\n        return 1\n    return 2\n",
        valid: ("return 1", "return [x for x in a]"),
        breaking: ("    if a:", "    if a"),
        lines: 4..=5,
        broken: "\n\nx = = 1\n",
    },
    EditCase {
        path: "a.js",
        language: "JavaScript",
        text: "import a from 'a';\n\nfunction f(x) {\n  return x + 1;\n}\n",
        valid: ("return x + 1;", "return x?.y ?? `${x}`;"),
        breaking: ("return x + 1;", "return (x + 1;"),
        lines: 4..=4,
        broken: "\nlet = ;\n",
    },
    EditCase {
        path: "a.ts",
        language: "TypeScript",
        text: "interface A { b: string }\n\nfunction f(x: A): number {\n  return x.b.length;\n}\n",
        valid: ("b: string", "b?: string; c: Array<A>"),
        breaking: ("return x.b.length;\n}", "return x.b.length;\n}}"),
        lines: 5..=5,
        broken: "\nlet x: = 3;\n",
    },
    EditCase {
        path: "a.tsx",
        language: "TSX",
        text: "function App(p: { n: string }) {\n  return (\n    <div>\n      <b>{p.n}</b>\n    </div>\n  );\n}\n",
        valid: ("<b>{p.n}</b>", "<b onClick={() => go<string>(p)}>{p.n}</b>"),
        breaking: ("<b>{p.n}</b>", "<b>{p.n</b>"),
        lines: 1..=5,
        broken: "\nlet x: = 3;\n",
    },
    EditCase {
        path: "a.rs",
        language: "Rust",
        text: "use std::fmt;\n\nfn f(a: u32) -> u32 {\n    let b = a + 1;\n    b\n}\n",
        valid: ("a + 1", "a.checked_add(1).map_or(0, |x| x)"),
        breaking: ("let b = a + 1;", "let b = (a + 1;"),
        lines: 4..=4,
        broken: "\nfn 9() {}\n",
    },
    EditCase {
        path: "a.go",
        language: "Go",
        text: "package a\n\nfunc f(a int) int {\n\tif a > 1 {\n\t\treturn a\n\t}\n\treturn 0\n}\n",
        valid: ("return 0", "defer func() { recover() }()\n\treturn 0"),
        breaking: ("if a > 1 {", "if a > {"),
        lines: 4..=5,
        broken: "\nfunc 9() {}\n",
    },
    EditCase {
        path: "A.java",
        language: "Java",
        text: "class A {\n    int f(int a) {\n        return a + 1;\n    }\n}\n",
        valid: ("return a + 1;", "return switch (a) { case 1 -> 2; default -> 3; };"),
        breaking: ("return a + 1;", "return a + ;"),
        lines: 3..=3,
        broken: "\nclass 9 {}\n",
    },
    EditCase {
        path: "a.c",
        language: "C",
        text: "#include <stdio.h>\n\nint main(void) {\n    puts(\"a\");\n    return 0;\n}\n",
        valid: ("puts(\"a\");", "for (int i = 0; i < 3; i++) { puts(\"a\"); }"),
        breaking: ("puts(\"a\");", "puts(\"a\";"),
        lines: 4..=4,
        broken: "\nint 9;\n",
    },
    EditCase {
        path: "a.cpp",
        language: "C++",
        text: "#include <vector>\n\nclass A {\n  std::vector<int> v;\n  int f() { return v[0]; }\n};\n",
        valid: ("return v[0];", "auto g = [this](auto&& x) { return x; };\n    return g(v[0]);"),
        breaking: ("return v[0]; }", "return v[0; }"),
        lines: 3..=6,
        broken: "\nint 9;\n",
    },
    EditCase {
        path: "a.json",
        language: "JSON",
        text: "{\n  \"a\": 1,\n  \"b\": [true, null]\n}\n",
        valid: ("\"a\": 1,", "\"a\": {\"c\": 1.5e3},"),
        breaking: ("\"a\": 1,", "\"a\": 1"),
        lines: 2..=3,
        broken: "{]\n",
    },
    EditCase {
        path: "a.toml",
        language: "TOML",
        text: "[package]\nname = \"a\"\nkeys = [1, 2]\n",
        valid: ("keys = [1, 2]", "keys = [\n  1,\n]\n[x.y]\nz = { a = 1 }"),
        breaking: ("keys = [1, 2]", "keys = [1, 2"),
        lines: 3..=4,
        broken: "\n= 3\n",
    },
    EditCase {
        path: "a.yaml",
        language: "YAML",
        text: "a: 1\nb:\n  - x\n  - {c: d}\n",
        valid: ("a: 1", "a: |\n  text\n  more"),
        breaking: ("  - {c: d}", "  - {c: d"),
        lines: 1..=5,
        broken: "\nk: [1\n",
    },
];

fn apply_replacement(text: &str, (from, to): (&str, &str)) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replace(from, to)
}

#[test]
fn valid_edit_is_not_worse() {
    for case in CASES {
        let after = apply_replacement(case.text, case.valid);
        assert_eq!(
            compare_syntax(case.path, Some(case.text.as_bytes()), after.as_bytes()),
            SyntaxVerdict::NotWorse,
            "{after}"
        );
        assert_eq!(compare_syntax(case.path, None, after.as_bytes()), SyntaxVerdict::NotWorse, "new {after}");
    }
}

#[test]
fn breaking_edit_is_reported_with_its_line() {
    for case in CASES {
        let after = apply_replacement(case.text, case.breaking);
        for before in [Some(case.text.as_bytes()), None] {
            let SyntaxVerdict::Worse(found) = compare_syntax(case.path, before, after.as_bytes()) else {
                panic!("{}: nothing was found in {after}", case.path);
            };
            assert!(found.count >= 1, "{found}");
            if before.is_some() {
                assert!(case.lines.contains(&found.line), "{}: {found}", case.path);
                let line = after.lines().nth(found.line - 1).unwrap_or_default().trim();
                assert_eq!(found.line_text, line);
            }
            assert!(found.to_string().contains(case.language), "{found}");
        }
    }
}

#[test]
fn broken_file_is_reported_only_when_it_gets_worse() {
    for case in CASES {
        let before = format!("{}{}", case.text, case.broken);
        assert_ne!(compare_syntax(case.path, None, before.as_bytes()), SyntaxVerdict::NotWorse, "{before}");
        let after = apply_replacement(&before, case.valid);
        assert_eq!(
            compare_syntax(case.path, Some(before.as_bytes()), after.as_bytes()),
            SyntaxVerdict::NotWorse,
            "{after}"
        );
        let mended = compare_syntax(case.path, Some(before.as_bytes()), case.text.as_bytes());
        assert_eq!(mended, SyntaxVerdict::NotWorse, "{}", case.path);
        // A YAML file with an error is a single error from first to last line, so a second one is not visible.
        if case.language == "YAML" {
            continue;
        }
        let worse = apply_replacement(&before, case.breaking);
        assert!(
            matches!(
                compare_syntax(case.path, Some(before.as_bytes()), worse.as_bytes()),
                SyntaxVerdict::Worse(_)
            ),
            "{worse}"
        );
    }
}

#[test]
fn unknown_and_large_files_are_not_checked() {
    assert_eq!(compare_syntax("a.md", Some(b"a"), b"((("), SyntaxVerdict::NotWorse);
    assert_eq!(
        compare_syntax("chart/a.yaml", Some(b"a: 1\n"), b"a: {{ .Values.a }\n"),
        SyntaxVerdict::NotWorse
    );
    let large = vec![b'('; PARSED_BYTES_MAX + 1];
    assert!(
        matches!(compare_syntax("a.py", Some(b"a"), &large), SyntaxVerdict::NotParsed(why) if why.contains("1048577 bytes"))
    );
}

#[test]
fn header_may_be_c_or_cpp_and_script_may_have_types() {
    for (path, text) in [
        ("a.h", "int f(int a);\n"),
        ("a.h", "namespace a { template <class T> struct B { T t; }; }\n"),
        ("a.js", "function f(x: number): string { return `${x}`; }\n"),
        ("tsconfig.json", "{\n  // a remark\n  \"strict\": true\n}\n"),
        ("a.py", "\u{feff}x = 1\n"),
        ("a.py", "x = 1\r\nif x:\r\n    y = 2\r\n"),
    ] {
        assert_eq!(compare_syntax(path, None, text.as_bytes()), SyntaxVerdict::NotWorse, "{text}");
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]
    #[test]
    fn arbitrary_bytes_do_not_panic_and_unchanged_text_is_never_worse(
        bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200), at in 0usize..CASES.len()
    ) {
        let path = CASES[at].path;
        let new = compare_syntax(path, None, &bytes);
        proptest::prop_assert!(!matches!(new, SyntaxVerdict::NotParsed(_)));
        proptest::prop_assert_eq!(compare_syntax(path, Some(&bytes), &bytes), SyntaxVerdict::NotWorse);
    }
}

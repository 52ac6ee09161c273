//! Fixes lint findings with simple text patterns: the changes a person would make without thinking.
//!
//! Each pattern checks the finding and its lines, and does nothing unless they have exactly the expected form. The
//! checks run again afterwards, so a wrong fix cannot go unnoticed.

use docket_schema::content::WorkspacePath;

use super::{
    file_lines::FileLines,
    finding::LintFinding,
    imports::{add_missing_import, remove_unused_import},
    python_imports::NameUsage,
    statement_fixes,
};

/// A file with some of its findings fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedFile {
    pub after: Vec<u8>,
    /// What was fixed, such as `3: trailing white space`, with line numbers of the original file.
    pub fixes: Vec<String>,
}

/// Fixes one finding in place; returns whether it did.
type FixPattern = fn(&str, &LintFinding, &mut FileLines) -> bool;

/// Patterns that change or remove lines at their finding, with the names shown for them.
const IN_PLACE_FIXES: [(&str, FixPattern); 8] = [
    ("trailing white space", statement_fixes::strip_trailing_space),
    ("unused import", remove_unused_import),
    ("comparison to None", statement_fixes::fix_none_comparison),
    ("f-string without placeholders", statement_fixes::fix_empty_f_string),
    ("superfluous semicolon", statement_fixes::remove_superfluous_semicolon),
    ("missing semicolon", statement_fixes::add_missing_semicolon),
    ("blank lines before a definition", statement_fixes::add_blank_lines),
    ("blank lines at the end", statement_fixes::remove_trailing_blank_lines),
];

/// Fixes what it can in the file at `path`, given its findings; `None` if nothing can be fixed.
#[must_use]
pub fn fix_findings(path: &WorkspacePath, before: &[u8], findings: &[LintFinding]) -> Option<FixedFile> {
    let text = std::str::from_utf8(before).ok()?;
    let name = std::str::from_utf8(path.as_bytes()).ok()?;
    let mut lines = FileLines::new(name, text);
    let mut findings: Vec<&LintFinding> = findings.iter().collect();
    // From the bottom up and from right to left, so that a fix does not move findings that are still to come.
    findings.sort_by_key(|finding| std::cmp::Reverse((finding.line, finding.column)));
    findings.dedup();
    let mut what = Vec::new();
    for finding in &findings {
        let done = IN_PLACE_FIXES.iter().find(|(_, pattern)| pattern(name, finding, &mut lines));
        what.extend(done.map(|(called, _)| format!("{}: {called}", finding.line)));
    }
    // Imports are added at the top and move every line, so they come last.
    what.extend(apply_import_fixes(name, text, &findings, &mut lines));
    if findings.iter().any(|finding| statement_fixes::is_missing_final_newline(finding)) {
        let end = lines.line_ending();
        if let Some(last) = lines.0.last_mut().filter(|last| !last.ends_with('\n')) {
            last.push_str(end);
            what.push("final newline".to_owned());
        }
    }
    build_fixed_file(before, &lines, what)
}

/// Adds missing imports and fixes nothing else: without them the file does not run, the rest is a matter of taste.
#[must_use]
pub fn fix_missing_imports(
    path: &WorkspacePath,
    before: &[u8],
    findings: &[LintFinding],
) -> Option<FixedFile> {
    let text = std::str::from_utf8(before).ok()?;
    let name = std::str::from_utf8(path.as_bytes()).ok()?;
    let mut lines = FileLines::new(name, text);
    let findings: Vec<&LintFinding> = findings.iter().rev().collect();
    let what = apply_import_fixes(name, text, &findings, &mut lines);
    build_fixed_file(before, &lines, what)
}

fn apply_import_fixes(
    name: &str,
    text: &str,
    findings: &[&LintFinding],
    lines: &mut FileLines,
) -> Vec<String> {
    let mut what = Vec::new();
    for finding in findings {
        let used = NameUsage::from_finding(text, finding);
        if let Some(called) = add_missing_import(name, finding, &used, lines) {
            what.push(format!("{}: missing import {called}", finding.line));
        }
    }
    what
}

fn build_fixed_file(before: &[u8], lines: &FileLines, mut what: Vec<String>) -> Option<FixedFile> {
    let after = lines.0.concat().into_bytes();
    (after != before).then(|| {
        what.reverse();
        FixedFile { after, fixes: what }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::finding::parse_findings, *};

    /// `output`: what a linter printed about the file.
    fn assert_fixed(path: &str, before: &str, output: &str, after: &str) {
        let file = WorkspacePath::new(path).expect("legal");
        let mended = fix_findings(&file, before.as_bytes(), &parse_findings(output));
        let text = mended.as_ref().map_or(before, |mended| std::str::from_utf8(&mended.after).expect("text"));
        assert_eq!(text, after, "{output}");
        assert_eq!(mended.is_some(), before != after);
    }

    #[test]
    fn whitespace_findings_are_fixed() {
        assert_fixed(
            "a.py",
            "x = 1  \r\ny = 2\t\r\n",
            "a.py:1:6: W291 trailing whitespace\na.py:2:6: W291 trailing whitespace\n",
            "x = 1\r\ny = 2\r\n",
        );
        assert_fixed(
            "a.py",
            "def f():\n    x\n    \n    y\n",
            "a.py:3:1: W293 blank line contains whitespace\n",
            "def f():\n    x\n\n    y\n",
        );
        assert_fixed(
            "a.js",
            "let y = 1   \n",
            "\n/p/a.js\n  1:10  error  Trailing spaces not allowed  no-trailing-spaces\n",
            "let y = 1\n",
        );
        assert_fixed("a.py", "x = 1", "a.py:1:6: W292 no newline at end of file\n", "x = 1\n");
        assert_fixed(
            "a.py",
            "x = 1\r\ny = 2",
            "a.py:2:6: W292 [*] No newline at end of file\n",
            "x = 1\r\ny = 2\r\n",
        );
        assert_fixed(
            "a.js",
            "f();",
            "\n/p/a.js\n  1:4  error  Newline required at end of file but not found  eol-last\n",
            "f();\n",
        );
        assert_fixed("a.py", "x = 1\n\n\n", "a.py:2:1: W391 blank line at end of file\n", "x = 1\n");
    }

    #[test]
    fn unused_python_imports_are_removed() {
        let f401 = |at: &str, name: &str| format!("a.py:{at}: F401 [*] `{name}` imported but unused\n");
        assert_fixed("a.py", "import os\nx = 1\n", &f401("1:8", "os"), "x = 1\n");
        assert_fixed("a.py", "import json, sys\n", &f401("1:14", "sys"), "import json\n");
        assert_fixed("a.py", "import os.path as p, sys\n", &f401("1:8", "os.path"), "import sys\n");
        assert_fixed(
            "a.py",
            "from typing import List, Dict\n",
            &f401("1:20", "typing.List"),
            "from typing import Dict\n",
        );
        assert_fixed("a.py", "from a import b as c, d\n", &f401("1:15", "a.b"), "from a import d\n");
        assert_fixed(
            "a.py",
            "from typing import List, Dict\n",
            &(f401("1:20", "typing.List") + &f401("1:26", "typing.Dict")),
            "",
        );
        assert_fixed(
            "a.py",
            "from a import (\n    b,\n    c,\n)\n",
            &f401("2:5", "a.b"),
            "from a import (\n    c,\n)\n",
        );
        assert_fixed("a.py", "import os\n", "a.py:1:1: F401 'os' imported but unused\n", "");
        // Not understood or not safe: left alone.
        for text in [
            "import os  # noqa later\n",
            "import os; x = 1\n",
            "try:\n    import os\nexcept ImportError:\n    pass\n",
            "from a import (\n    os,\n)\n",
            "from os \\\n    import os\n",
        ] {
            let at = text.lines().position(|line| line.contains("os")).expect("is there") + 1;
            assert_fixed("a.py", text, &f401(&format!("{at}:8"), "os"), text);
        }
        assert_fixed(
            "p/__init__.py",
            "import os\n",
            "p/__init__.py:1:8: F401 `os` imported but unused\n",
            "import os\n",
        );
    }

    #[test]
    fn unused_imports_of_other_languages_are_removed() {
        let rust = |names: &str| format!("a.rs:1:5: warning: unused import: {names}\n");
        assert_fixed("a.rs", "use std::fmt;\nfn f() {}\n", &rust("`std::fmt`"), "fn f() {}\n");
        assert_fixed("a.rs", "use std::io::{self, Read};\n", &rust("`Read`"), "use std::io::{self};\n");
        assert_fixed(
            "a.rs",
            "use std::io::{self, Read};\n",
            "a.rs:1:5: warning: unused imports: `Read` and `self`\n",
            "",
        );
        assert_fixed("a.rs", "pub use std::fmt;\n", &rust("`std::fmt`"), "pub use std::fmt;\n");
        assert_fixed("a.rs", "use a::{b::{c, d}, e};\n", &rust("`e`"), "use a::{b::{c, d}, e};\n");
        assert_fixed(
            "a.go",
            "package a\nimport (\n\t\"os\"\n\t\"fmt\"\n)\n",
            "./a.go:3:2: imported and not used: \"os\"\n",
            "package a\nimport (\n\t\"fmt\"\n)\n",
        );
        assert_fixed(
            "a.go",
            "package a\nimport \"os\"\n",
            "a.go:2:8: \"os\" imported and not used\n",
            "package a\n",
        );
        let js = |name: &str| {
            format!("\n/p/a.js\n  1:8  error  '{name}' is defined but never used  no-unused-vars\n")
        };
        assert_fixed("a.js", "import foo from \"./foo.js\";\n", &js("foo"), "import \"./foo.js\";\n");
        assert_fixed("a.js", "import { a, b } from 'x'\n", &js("a"), "import { b } from 'x'\n");
        assert_fixed("a.js", "import { a } from 'x'\n", &js("a"), "import 'x'\n");
        assert_fixed("a.js", "const a = 1;\n", &js("a"), "const a = 1;\n");
    }

    #[test]
    fn missing_imports_are_added() {
        let f821 = |line: usize, name: &str| format!("a.py:{line}:1: F821 Undefined name `{name}`\n");
        assert_fixed(
            "a.py",
            "\"\"\"Says.\"\"\"\nfrom __future__ import annotations\n\nimport json\n\nre.match\n",
            &f821(6, "re"),
            "\"\"\"Says.\"\"\"\nfrom __future__ import annotations\n\nimport re\nimport json\n\nre.match\n",
        );
        assert_fixed(
            "a.py",
            "#!/usr/bin/env python3\nPath('a')\n",
            &f821(2, "Path"),
            "#!/usr/bin/env python3\nfrom pathlib import Path\n\nPath('a')\n",
        );
        assert_fixed(
            "a.py",
            "\"\"\"Two\nlines.\n\"\"\"\nos.sep\n",
            "a.py:4:1: F821 undefined name 'os'\n",
            "\"\"\"Two\nlines.\n\"\"\"\nimport os\n\nos.sep\n",
        );
        assert_fixed(
            "a.py",
            "os.sep; os.name\n",
            &(f821(1, "os") + "a.py:1:9: F821 Undefined name `os`\n"),
            "import os\n\nos.sep; os.name\n",
        );
        assert_fixed("a.py", "frobnicate()\n", &f821(1, "frobnicate"), "frobnicate()\n");
        let e0433 = |name: &str| {
            format!("a.rs:4:1: error[E0433]: failed to resolve: use of undeclared type `{name}`\n")
        };
        assert_fixed(
            "a.rs",
            "//! Head.\n\nuse std::fmt;\n\nfn f() { HashMap::new(); }\n",
            &e0433("HashMap"),
            "//! Head.\n\nuse std::collections::HashMap;\nuse std::fmt;\n\nfn f() { HashMap::new(); }\n",
        );
        assert_fixed(
            "a.rs",
            "fn f() { PathBuf::new(); }\n",
            "a.rs:1:1: error[E0412]: cannot find type `PathBuf` in this scope: not found in this scope\n",
            "use std::path::PathBuf;\n\nfn f() { PathBuf::new(); }\n",
        );
        let inner = "mod tests {\n    fn a() {}\n\n    fn f() { HashMap::new(); }\n}\n";
        assert_fixed("a.rs", inner, &e0433("HashMap"), inner);
        assert_fixed(
            "a.go",
            "package a\n\nimport (\n\t\"os\"\n)\n\nvar x = filepath.Join(os.Args...)\n",
            "./a.go:7:9: undefined: filepath\n",
            "package a\n\nimport (\n\t\"path/filepath\"\n\t\"os\"\n)\n\nvar x = filepath.Join(os.Args...)\n",
        );
        assert_fixed(
            "a.go",
            "package a\n\nfunc F() { fmt.Println() }\n",
            "vet: ./a.go:3:12: undeclared name: fmt\n",
            "package a\n\nimport \"fmt\"\n\nfunc F() { fmt.Println() }\n",
        );
        let slip = "package a\n\nfunc F(at int) int { return time + 1 }\n";
        assert_fixed("a.go", slip, "./a.go:3:29: undefined: time\n", slip);
        let slip = "def f(fields):\n    return [field.upper() for f in fields]\n";
        assert_fixed("a.py", slip, "a.py:2:13: F821 Undefined name `field`\n", slip);
    }

    #[test]
    fn python_and_javascript_statements_are_fixed() {
        assert_fixed(
            "a.py",
            "if a == None:\n    pass\n",
            "a.py:1:9: E711 [*] Comparison to `None` should be `cond is None`\n",
            "if a is None:\n    pass\n",
        );
        assert_fixed(
            "a.py",
            "x = a != None\n",
            "a.py:1:10: E711 [*] Comparison to `None` should be `cond is not None`\n",
            "x = a is not None\n",
        );
        assert_fixed(
            "a.py",
            "x = a == None and b == None\n",
            "a.py:1:10: E711 [*] Comparison\n",
            "x = a == None and b == None\n",
        );
        assert_fixed(
            "a.py",
            "print(f\"no\", f'{x}')\n",
            "a.py:1:7: F541 [*] f-string without any placeholders\n",
            "print(\"no\", f'{x}')\n",
        );
        assert_fixed(
            "a.py",
            "print(f\"{{no}}\")\n",
            "a.py:1:7: F541 f-string without any placeholders\n",
            "print(f\"{{no}}\")\n",
        );
        assert_fixed(
            "a.py",
            "x = 1;\n",
            "a.py:1:6: E703 [*] Statement ends with an unnecessary semicolon\n",
            "x = 1\n",
        );
        assert_fixed(
            "a.py",
            "import os\ndef f():\n    pass\n",
            "a.py:2:1: E302 expected 2 blank lines, found 0\n",
            "import os\n\n\ndef f():\n    pass\n",
        );
        assert_fixed(
            "a.py",
            "class A:\n    def f(self):\n        pass\n    def g(self):\n        pass\n",
            "a.py:4:5: E301 expected 1 blank line, found 0\n",
            "class A:\n    def f(self):\n        pass\n\n    def g(self):\n        pass\n",
        );
        assert_fixed(
            "a.js",
            "let y = 1\n",
            "\n/p/a.js\n  1:10  error  Missing semicolon  semi\n",
            "let y = 1;\n",
        );
        assert_fixed(
            "a.js",
            "let y = 1 // one\n",
            "\n/p/a.js\n  1:10  error  Missing semicolon  semi\n",
            "let y = 1 // one\n",
        );
    }

    #[test]
    fn string_literals_are_not_changed() {
        let mail = "MAIL = \"\"\"Dear all,   \n-- \n\n\"\"\"\nx = 1  \n";
        let output = "a.py:1:19: W291 Trailing whitespace\na.py:2:3: W291 trailing whitespace\n\
                      a.py:5:6: W291 [*] Trailing whitespace\n";
        assert_fixed("a.py", mail, output, "MAIL = \"\"\"Dear all,   \n-- \n\n\"\"\"\nx = 1\n");
        let text = "let m = `a  \n  \nb`;  \n";
        let eslint = "\n/p/a.js\n  1:11  error  Trailing spaces not allowed  no-trailing-spaces\n  \
                      2:1  error  Trailing spaces not allowed  no-trailing-spaces\n  \
                      3:4  error  Trailing spaces not allowed  no-trailing-spaces\n";
        assert_fixed("a.js", text, eslint, "let m = `a  \n  \nb`;\n");
        assert_fixed("a.py", "x = (  \n", "a.py:1:6: W291 trailing whitespace\n", "x = (  \n");
        let says = "x = \" == None\" if a else b\n";
        assert_fixed("a.py", says, "a.py:1:9: E711 [*] Comparison to `None`\n", says);
        let docs = "x = 1\n\nDOC = \"\"\"\nimport this\n\"\"\"\nimport sys\nos.sep\n";
        let after = "x = 1\n\nDOC = \"\"\"\nimport this\n\"\"\"\nimport os\nimport sys\nos.sep\n";
        assert_fixed("a.py", docs, "a.py:7:1: F821 Undefined name `os`\n", after);
        for head in ["# Head.\n\n\"\"\"Says.\"\"\"\n", "r\"\"\"Says\nmore.\"\"\"\n"] {
            let line = head.lines().count() + 1;
            let output = format!("a.py:{line}:1: F821 Undefined name `os`\n");
            assert_fixed(
                "a.py",
                &format!("{head}os.sep\n"),
                &output,
                &format!("{head}import os\n\nos.sep\n"),
            );
        }
    }

    /// The class may define its own operator: `column == None` makes a query.
    #[test]
    fn findings_without_a_safe_fix_are_left_alone() {
        let text = "def living():\n    return [deleted == None]\n";
        assert_fixed("a.py", text, "a.py:2:24: E711 Comparison to `None` should be `cond is None`\n", text);
        assert_fixed("a.py", text, "a.py:2:21: E711 comparison to None should be 'if cond is None:'\n", text);
        let probe = "import os\n";
        assert_fixed("a.py", probe, "a.py:1:8: F401 `os` imported but unused; consider `find_spec`\n", probe);
    }

    #[test]
    fn fixing_imports_changes_nothing_else() {
        let file = WorkspacePath::new("a.py").expect("legal");
        let text = "import re\nx = os.sep  \n";
        let found = parse_findings(
            "a.py:1:8: F401 [*] `re` imported but unused\na.py:2:5: F821 Undefined name `os`\na.py:2:11: W291 x\n",
        );
        let mended = fix_missing_imports(&file, text.as_bytes(), &found).expect("mends");
        assert_eq!(mended.after, b"import os\nimport re\nx = os.sep  \n");
        assert_eq!(mended.fixes, ["2: missing import import os"]);
    }

    #[test]
    fn all_findings_of_a_file_are_fixed_together() {
        let before = "import os\nimport sys  \n\n\ndef f(a):\n    return json.dumps(a) == None";
        let output = "a.py:1:8: F401 [*] `os` imported but unused\na.py:2:8: F401 [*] `sys` imported but unused\na.py:2:11: W291 Trailing whitespace\n\
                      a.py:6:12: F821 Undefined name `json`\na.py:6:29: E711 [*] Comparison to `None`\na.py:6:33: W292 No newline at end of file\n";
        assert_fixed(
            "a.py",
            before,
            output,
            "import json\n\n\ndef f(a):\n    return json.dumps(a) is None\n",
        );
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_and_findings_do_not_panic(
            text in "(import a, b|from a import \\(|use a::\\{b\\};|f\"|é|;|  |\n|\r\n|x == None|\\)|#|package a){0,20}",
            line in 0usize..6, column in 0usize..12,
            code in prop_oneof![
                Just("W291"), Just("F401"), Just("F821"), Just("E711"), Just("F541"), Just("E703"), Just("E302"), Just("W391"),
                Just("W292"), Just("semi"), Just("E0433"), Just("no-unused-vars"), Just("")],
            message in prop_oneof![
                Just("`a` imported but unused"), Just("Undefined name `os`"), Just("expected 2 blank lines, found 0"),
                Just("unused import: `b`"), Just("'a' is defined but never used"), Just("undefined: fmt"), Just("`")],
            name in prop_oneof![Just("a.py"), Just("a.rs"), Just("a.js"), Just("a.go")],
        ) {
            let finding = LintFinding { path: name.into(), line, column, code: code.into(), message: message.into(), has_safe_fix: true };
            let path = WorkspacePath::new(name).expect("legal");
            if let Some(mended) = fix_findings(&path, text.as_bytes(), &[finding]) {
                prop_assert!(mended.after != text.as_bytes() && !mended.fixes.is_empty());
            }
        }
    }
}

//! Configuration files are edited, never replaced as a whole, whichever form the edit takes.

use serde_json::{Value, json};

use super::testing::TestWorkspace;

/// Configuration files with one line of each and a legitimate edit of it.
const FILES: [(&str, &str, &str, &str); 6] = [
    (
        "Cargo.toml",
        "[package]\nname = \"a\"\nversion = \"1.0.0\"\nedition = \"2024\"\n\n[dependencies]\nserde = \"1\"\n",
        "serde = \"1\"",
        "serde = \"2\"",
    ),
    (
        "sub/pyproject.toml",
        "[project]\nname = \"a\"\nversion = \"1\"\ndependencies = []\n\n[tool.ruff]\nline-length = 99\n",
        "line-length = 99",
        "line-length = 100",
    ),
    (
        "package.json",
        "{\n  \"name\": \"a\",\n  \"version\": \"1.0.0\",\n  \"type\": \"module\",\n  \"scripts\": {}\n}\n",
        "  \"version\": \"1.0.0\",",
        "  \"version\": \"1.1.0\",",
    ),
    (
        "tsconfig.json",
        "{\n  \"compilerOptions\": {\n    \"strict\": true,\n    \"target\": \"es2022\",\n    \"outDir\": \"d\"\n  }\n}\n",
        "    \"strict\": true,",
        "    \"strict\": false,",
    ),
    (
        "go.mod",
        "module example.org/a\n\ngo 1.23\n\nrequire (\n\tx.org/b v1.0.0\n\tx.org/c v1.0.0\n)\n",
        "\tx.org/b v1.0.0",
        "\tx.org/b v1.1.0",
    ),
    (
        "Dockerfile",
        "FROM debian:12\nRUN apt-get update\nWORKDIR /app\nCOPY . .\nRUN make\nCMD [\"./a\"]\n",
        "RUN make",
        "RUN make all",
    ),
];

const REPLACEMENT: &str = "# made anew\nother = true\n";

/// The change from `old` to `new`, both full lines, in every form that edit_file accepts.
fn edit_calls(path: &str, old: &str, new: &str) -> Vec<(&'static str, Value)> {
    let marked =
        |sign: char, text: &str| -> String { text.lines().map(|line| format!("{sign}{line}\n")).collect() };
    let hunk = marked('-', old) + &marked('+', new);
    let unified = format!("--- a/{path}\n+++ b/{path}\n@@ -1,9 +1,2 @@\n{hunk}");
    let apply_patch = format!("*** Begin Patch\n*** Update File: {path}\n@@\n{hunk}*** End Patch\n");
    let block = format!("<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE\n");
    let lines: Vec<Value> = old
        .lines()
        .filter(|line| old.matches(line).count() == 1 && !line.trim().is_empty())
        .map(
            |line| json!({"search": line, "replace": if new.starts_with('#') { "" } else { new.trim_end() }}),
        )
        .collect();
    vec![
        ("edits", json!({"path": path, "edits": [{"search": old, "replace": new}]})),
        ("an edit for each line", json!({"path": path, "edits": lines})),
        ("a hint", json!({"path": path, "edits": [{"search": old, "replace": new, "replace_all": 1}]})),
        ("a unified diff", json!({"path": path, "patch": unified})),
        ("apply_patch", json!({"path": path, "patch": apply_patch})),
        ("blocks", json!({"path": path, "patch": block})),
        ("a block as an edit", json!({"path": path, "edits": [{"search": block, "replace": ""}]})),
    ]
}

#[test]
fn no_edit_tool_replaces_a_config_file() {
    for (path, text, ..) in FILES {
        for (form, args) in edit_calls(path, text, REPLACEMENT) {
            let mut w = TestWorkspace::new(&[(path, text)]);
            w.call_tool("read_file", json!({"path": path}));
            let out = w.call_tool("edit_file", args);
            assert!(
                out.is_error && out.text().contains("not replaced whole"),
                "{path}, {form}: {}",
                out.text()
            );
            assert_eq!((w.read_file(path).as_str(), out.facts.changed.len()), (text, 0), "{form}");
        }
        let mut w = TestWorkspace::new(&[(path, text)]);
        w.call_tool("read_file", json!({"path": path}));
        let out = w.call_tool("create_file", json!({"path": path, "content": REPLACEMENT}));
        assert!(out.is_error && out.text().contains("never replaced whole"), "{path}: {}", out.text());
        for patch in ["*** Delete File: ", "*** Add File: "] {
            let patch = format!("*** Begin Patch\n{patch}{path}\n+x\n*** End Patch\n");
            assert!(w.call_tool("edit_file", json!({"path": path, "patch": patch})).is_error);
        }
        assert_eq!(w.read_file(path), text);
    }
}

#[test]
fn every_edit_tool_can_change_a_line_of_a_config_file() {
    for (path, text, line, new) in FILES {
        for (form, args) in edit_calls(path, &format!("{line}\n"), &format!("{new}\n")) {
            let mut w = TestWorkspace::new(&[(path, text)]);
            w.call_tool("read_file", json!({"path": path}));
            let out = w.call_tool("edit_file", args);
            assert!(!out.is_error, "{path}, {form}: {}", out.text());
            assert_eq!(w.read_file(path), text.replace(line, new), "{path}, {form}");
        }
    }
}

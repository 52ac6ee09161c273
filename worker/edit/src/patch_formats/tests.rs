//! Runs each format through the whole engine: parse, locate, apply.

use super::parse_patch;
use crate::{Edit, EditHint, apply_edits};

/// Applies a patch and returns the new text, or the refusal.
fn apply_patch_text(before: &str, patch: &str) -> Result<String, String> {
    let edits = parse_patch(Some("src/a.py"), patch).map_err(|error| error.to_string())?;
    let applied = apply_edits(before.as_bytes(), &edits).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(applied.after).expect("text stays text"))
}

#[track_caller]
fn assert_patch_result(before: &str, patch: &str, want: Result<&str, &str>) {
    match (apply_patch_text(before, patch), want) {
        (Ok(after), Ok(want)) => assert_eq!(after, want, "{patch}"),
        (Err(error), Err(part)) => {
            assert!(error.contains(part), "{error}");
            assert!(error.starts_with("Nothing was changed"), "{error}");
        }
        (got, want) => panic!("{patch}\ngot {got:?}, not {want:?}"),
    }
}

const FILE: &str = "import os\n\n\ndef first(a):\n    b = a + 1\n    return b\n\n\ndef second(a):\n    b = a + 2\n    return b\n";

#[test]
fn unified_diff_is_located_by_its_lines() {
    let want = FILE.replace("a + 1", "a * 10");
    let hunk = " def first(a):\n-    b = a + 1\n+    b = a * 10\n     return b\n";
    for head in [
        "--- a/src/a.py\n+++ b/src/a.py\n@@ -4,3 +4,3 @@\n",
        "--- a/src/a.py\n+++ b/src/a.py\n@@ -90,7 +91,2 @@ def nowhere():\n",
        "diff --git a/src/a.py b/src/a.py\nindex 123..456 100644\n--- a/src/a.py\n+++ b/src/a.py\n@@ ... @@\n",
        "--- src/a.py\t2020-01-01\n+++ src/a.py\t2020-01-02\n",
        "@@ @@\n",
        "Here it is:\n```diff\n@@ -1 +1 @@\n",
    ] {
        assert_patch_result(FILE, &format!("{head}{hunk}"), Ok(&want));
        assert_patch_result(FILE, &format!("{head}{hunk}```\n"), Ok(&want));
    }
    assert_patch_result(
        FILE,
        &format!("--- a/src/a.py\n+++ b/src/a.py\n@@ -4,3 +4,3 @@\n{hunk}-- \n2.40.0\n"),
        Ok(&want),
    );
}

#[test]
fn several_hunks_apply_atomically() {
    let two = "@@ -1,1 +1,2 @@\n import os\n+import sys\n@@ -9,2 +10,2 @@\n def second(a):\n-    b = a + 2\n+    b = a\n";
    assert_patch_result(
        FILE,
        two,
        Ok(&FILE.replace("import os\n", "import os\nimport sys\n").replace("a + 2", "a")),
    );
    let bad = two.replace("a + 2", "gone()\n-    other(thing)");
    assert_patch_result(FILE, &bad, Err("edit 2 of 2"));
    let clash = "@@\n-    b = a + 1\n+    b = 1\n@@\n-    b = a + 1\n+    b = 2\n";
    assert_patch_result(FILE, clash, Err("changes the same text as edit 1"));
}

#[test]
fn addition_only_hunk_goes_below_header_line() {
    assert_patch_result("a\nb\n", "@@ -1,0 +2 @@\n+z\n", Ok("a\nz\nb\n"));
    assert_patch_result("a\r\nb\r\n", "@@ -0,0 +1 @@\n+z\n", Ok("z\r\na\r\nb\r\n"));
    assert_patch_result("", "--- a/src/a.py\n+++ b/src/a.py\n@@ -0,0 +1 @@\n+z\n", Ok("z\n"));
    assert_patch_result("a\n", "@@ -1,0 +2 @@\n+# ... existing code ...\n", Err("omitted lines"));
}

#[test]
fn only_correct_hunk_header_breaks_a_tie() {
    let text = "a()\nx\nb()\nx\nc()\n";
    assert_patch_result(text, "@@ -4,1 +4,1 @@\n-x\n+y\n", Ok("a()\nx\nb()\ny\nc()\n"));
    // A wrong line number, and wrong counts.
    assert_patch_result(text, "@@ -3,1 +3,1 @@\n-x\n+y\n", Err("matches 2 places"));
    assert_patch_result(text, "@@ -4,7 +4,9 @@\n-x\n+y\n", Err("matches 2 places"));
    // Only whole lines match: `x` within `max` does not.
    assert_patch_result("max\nx\n", "@@\n-x\n+y\n", Ok("max\ny\n"));
}

#[test]
fn line_endings_and_missing_final_newline_are_kept() {
    assert_patch_result("a\r\nb\r\nc", "@@\n b\n-c\n+d\n\\ No newline at end of file\n", Ok("a\r\nb\r\nd"));
    assert_patch_result("a\r\nb\r\n", "@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n+c\r\n", Ok("a\r\nc\r\n"));
    assert_patch_result(
        "\tif a {\n\t\tgo()\n\t}\n",
        "@@\n \tif a {\n-\t\tgo()\n+\t\tstop()\n",
        Ok("\tif a {\n\t\tstop()\n\t}\n"),
    );
}

#[test]
fn empty_context_line_needs_no_leading_space() {
    let patch = "@@ -1,4 +1,4 @@\n-import os\n+import sys\n\n\n def first(a):\n\n";
    assert_patch_result(FILE, patch, Ok(&FILE.replace("import os", "import sys")));
    // Code with lost indentation is not guessed at.
    assert_patch_result(
        FILE,
        "@@\ndef first(a):\n-    b = a + 1\n+    b = 1\n",
        Err("line 2 of the patch begins with none of"),
    );
    let lost = "@@\n    b = a + 1\n+    c = 3\n    return b\n";
    assert_patch_result("if x:\n    b = a + 1\n    return b\n", lost, Err("lacks the blank"));
}

#[test]
fn unsupported_diff_operations_name_the_right_tool() {
    for (patch, remedy) in [
        ("--- /dev/null\n+++ b/src/a.py\n@@ -0,0 +1 @@\n+x\n", "create_file"),
        ("--- a/src/a.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n", "rm"),
        ("diff --git a/x b/src/a.py\nrename from x\nrename to src/a.py\n", "run_command"),
        ("--- a/src/b.py\n+++ b/src/b.py\n@@ -1 +1 @@\n-x\n+y\n", "one call for each file"),
        ("@@ -4,0 +5,2 @@\n+x\n", "add a line or two of context"),
        ("@@ -40,0 +41,1 @@\n+x\n", "below line 40, which the file does not have"),
        ("@@ -1,1 +1,1 @@\n import os\n", "changes no line"),
        ("just words", "patch holds no change"),
        ("*** Begin Patch\n*** Add File: n.py\n+x\n*** End Patch", "create_file"),
        ("*** Begin Patch\n*** Delete File: src/a.py\n*** End Patch", "rm"),
        ("*** Begin Patch\n*** Update File: src/a.py\n*** Move to: b.py\n@@\n-x\n+y\n*** End Patch", "mv"),
        ("*** Begin Patch\n*** Update File: src/b.py\n@@\n-x\n+y\n*** End Patch", "one call for each file"),
        ("*** Begin Patch\n*** Update File: src/a.py\n@@\n-import os\n+import sys\n", "was cut"),
        ("<<<<<<< SEARCH\nimport os\n=======\nimport sys\n", "was cut"),
        ("<<<<<<< SEARCH\nimport os\n>>>>>>> REPLACE\n", "no `=======`"),
        ("<<<<<<< SEARCH\nA\n=======\nB\n=======\nC\n>>>>>>> REPLACE\n", "use edits with search"),
    ] {
        assert_patch_result(FILE, patch, Err(remedy));
    }
}

#[test]
fn apply_patch_headings_disambiguate_hunks() {
    let patch = |body: &str| format!("*** Begin Patch\n*** Update File: src/a.py\n{body}*** End Patch\n");
    assert_patch_result(
        FILE,
        &patch("@@\n-    b = a + 2\n+    b = a\n     return b\n"),
        Ok(&FILE.replace("a + 2", "a")),
    );
    let last = |to: &str| {
        let (head, tail) = FILE.rsplit_once("return b").expect("is there");
        format!("{head}return {to}{tail}")
    };
    assert_patch_result(FILE, &patch("@@\n-    return b\n+    return c\n"), Err("matches 2 places"));
    assert_patch_result(FILE, &patch("@@ def second(a):\n-    return b\n+    return c\n"), Ok(&last("c")));
    assert_patch_result(
        FILE,
        &patch("@@ def third(a):\n-    return b\n+    return c\n"),
        Err("matches 2 places"),
    );
    assert_patch_result(FILE, &patch("@@\n-    return b\n+    return c\n*** End of File\n"), Ok(&last("c")));
    // Without its wrapper, and within a shell heredoc.
    let body = "*** Update File: src/a.py\n@@\n-import os\n+import sys\n";
    assert_patch_result(FILE, body, Ok(&FILE.replace("import os", "import sys")));
    let shell = format!("apply_patch <<'EOF'\n{}EOF\n", patch("@@\n-import os\n+import sys\n"));
    assert_patch_result(FILE, &shell, Ok(&FILE.replace("import os", "import sys")));
}

#[test]
fn search_replace_blocks_are_parsed() {
    let block = "<<<<<<< SEARCH\n    b = a + 1\n=======\n    b = a\n    c = b\n>>>>>>> REPLACE\n";
    let want = FILE.replace("    b = a + 1\n", "    b = a\n    c = b\n");
    assert_patch_result(FILE, block, Ok(&want));
    assert_patch_result(FILE, &format!("src/a.py\n```python\n{block}```\n"), Ok(&want));
    let two = format!("{block}\n<<<<<<< SEARCH\nimport os\n=======\n>>>>>>> REPLACE\n");
    assert_patch_result(FILE, &two, Ok(want.strip_prefix("import os\n").expect("first line")));
    let dashed = block.replace("<<<<<<<", "-------").replace(">>>>>>>", "+++++++");
    assert_patch_result(FILE, &dashed, Ok(&want));
    let numbered =
        "<<<<<<< SEARCH\n:start_line:11\n-------\n    return b\n=======\n    return c\n>>>>>>> REPLACE\n";
    let (head, tail) = FILE.rsplit_once("return b").expect("is there");
    assert_patch_result(FILE, numbered, Ok(&format!("{head}return c{tail}")));
    assert_patch_result(FILE, &numbered.replace(":11", ":12"), Err("matches 2 places"));
    // Variants: an end line next to the start line, no divider, six signs, one extra bracket.
    let want = format!("{head}return c{tail}");
    assert_patch_result(FILE, &numbered.replace("-------", ":end_line:11\n-------"), Ok(&want));
    assert_patch_result(FILE, &numbered.replace("-------\n", ""), Ok(&want));
    let six = numbered.replace("<<<<<<<", "<<<<<<").replace("=======", "======").replace(">>>>>>>", ">>>>>>");
    assert_patch_result(FILE, &six, Ok(&want));
    let bracket =
        numbered.replace("<<<<<<< SEARCH", "------- SEARCH>").replace(">>>>>>> REPLACE", "+++++++ REPLACE>");
    assert_patch_result(FILE, &bracket, Ok(&want));
}

#[test]
fn backslash_before_marker_is_removed() {
    let file = "a\n=======\nb\n<<<<<<< x\n";
    let block = "<<<<<<< SEARCH\na\n\\=======\nb\n=======\na\n\\=======\nc\n>>>>>>> REPLACE\n";
    assert_patch_result(file, block, Ok("a\n=======\nc\n<<<<<<< x\n"));
    assert_patch_result("p\\q\nr\n", "<<<<<<< SEARCH\np\\q\n=======\n\\q\n>>>>>>> REPLACE\n", Ok("\\q\nr\n"));
}

#[test]
fn search_holding_a_patch_is_parsed_as_patch() {
    let made = |before: &str, search: &str, replace: &str| {
        let edit = Edit { search: search.to_owned(), replace: replace.to_owned(), hint: EditHint::default() };
        apply_edits(before.as_bytes(), &[edit]).map(|applied| String::from_utf8(applied.after).expect("text"))
    };
    let block = "<<<<<<< SEARCH\nimport os\n=======\nimport sys\n>>>>>>> REPLACE";
    let want = FILE.replace("import os", "import sys");
    for search in [
        block,
        "@@ -1 +1 @@\n-import os\n+import sys",
        "*** Begin Patch\n*** Update File: a\n@@\n-import os\n+import sys\n*** End Patch",
    ] {
        assert_eq!(made(FILE, search, "").expect("a form"), want, "{search}");
        assert_eq!(made(FILE, search, search).expect("a form"), want, "{search}");
    }
    // If the file contains it, it is ordinary text.
    let text = format!("a\n{block}\nb\n");
    assert_eq!(made(&text, block, "").expect("text"), "a\nb\n");
    // None of it is ever written into a file that has no such lines.
    for replace in [block, "*** Begin Patch\nx\n*** End Patch", "import sys\n>>>>>>> REPLACE"] {
        let error = made(FILE, "import os", replace).expect_err("refused");
        assert!(error.message.contains("frames a patch"), "{error}");
    }
}

proptest::proptest! {
    /// A diff of two texts, with correct or wrong headers, turns the first into the second or is
    /// refused.
    #[test]
    fn valid_diff_applies_or_is_refused(
        lines in proptest::collection::vec("[a-d]{1,2}", 1..12),
        at in 0usize..12, new in "[a-f]{1,3}", shift in 0usize..3,
    ) {
        let before: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        let mut changed = lines.clone();
        let at = at % changed.len();
        changed[at] = new;
        let after: String = changed.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        let diff = crate::unified_diff("src/a.py", before.as_bytes(), after.as_bytes());
        let diff = if shift == 0 { diff } else { diff.replace("@@ -", &format!("@@ -{shift}")) };
        match apply_patch_text(&before, &diff) {
            Ok(made) => proptest::prop_assert_eq!(made, after),
            Err(_) => proptest::prop_assert!(shift > 0 || before == after),
        }
    }

    #[test]
    fn parser_never_panics(text in "([-+ @*<>=a]{0,8}\n){0,12}") {
        apply_patch_text("a\n", &text).ok();
    }
}

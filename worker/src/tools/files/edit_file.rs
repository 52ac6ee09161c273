//! `edit_file`: applies search/replace edits to a file that was read, using the edit engine.

use std::borrow::Cow;

use docket_schema::{
    content::WorkspacePath,
    ids::BlobHash,
    tool::{EditLevel, LineCounts},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::proposal::FileProposal;
use crate::calls::parse_workspace_path;
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    text::{
        encoding::{FileContent, TextEncoding, classify_content},
        output::cut_middle,
    },
};
use docket_edit::{Edit, EditHint};

pub(crate) const NAME: &str = "edit_file";
pub(crate) const DESCRIPTION: &str = "Changes a file that was read before. Each edit quotes lines of the file in \
    search and says in replace how they shall read; the quote must name one place, so give a line or two around \
    the change. All edits are matched against the file as it is now, and all are made or none. Answers with a \
    unified diff.";

/// Longest diff shown, in characters.
const DIFF_CHARS_MAX: usize = 8000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EditFileArgs {
    /// Path of the file, relative to the workspace.
    path: String,
    /// The edits, in any order; they must not overlap.
    #[schemars(length(min = 1))]
    edits: Option<Vec<EditArgs>>,
    /// In place of edits: a unified diff, an apply_patch text or SEARCH/REPLACE blocks, for this file only.
    patch: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EditArgs {
    /// Lines as they stand in the file, without line numbers.
    search: String,
    /// The same lines as they shall be; empty to remove them.
    replace: String,
    /// Where search stands in several places: the one nearest to this line of the file.
    #[schemars(range(min = 1))]
    near_line: Option<usize>,
    /// Where search stands in several places: the n-th from the top, from 1.
    #[schemars(range(min = 1))]
    occurrence: Option<usize>,
    /// To replace all places: how many there are.
    #[schemars(range(min = 1))]
    replace_all: Option<usize>,
}

impl From<EditArgs> for Edit {
    fn from(args: EditArgs) -> Self {
        let hint = EditHint {
            near_line: args.near_line,
            occurrence: args.occurrence,
            replace_all: args.replace_all,
            ..EditHint::default()
        };
        Self { search: args.search, replace: args.replace, hint }
    }
}

pub(crate) async fn run(context: ToolContext<'_>, args: EditFileArgs) -> ToolOutcome {
    match apply_edits(context, args).await {
        Ok(outcome) => outcome,
        Err(text) => ToolOutcome::error(NAME, text),
    }
}

async fn apply_edits(context: ToolContext<'_>, args: EditFileArgs) -> Result<ToolOutcome, String> {
    let path = parse_workspace_path(&args.path).map_err(|error| error.to_string())?;
    let proposal = FileProposal::for_read_file(context, path)?;
    let path = &proposal.path;
    let edits = planned_edits(&path.to_string(), args.edits, args.patch.as_deref())?;
    let (before, encoding) = editable_text(path, proposal.old_bytes())?;
    let applied = docket_edit::apply_edits(&before, &edits).map_err(|error| error.to_string())?;
    let remark = proposal.dry_run(Some(&before), &applied.after).await?;
    let after = encode_edited(path, encoding, &applied.after)?;
    let mut outcome = if after == proposal.old_bytes() {
        ToolOutcome::ok(format!("`{path}` already reads so: nothing was changed"))
    } else {
        proposal.commit(&after).map_err(|error| error.to_string())?;
        edit_outcome(&path.to_string(), &before, &applied, &remark)
    };
    if after != proposal.old_bytes() {
        outcome.facts.changed.push(path.clone());
    }
    outcome.facts.edit_level = Some(applied.loosest_level());
    Ok(outcome.with_seen_file(path.clone(), BlobHash::hash_bytes(&after)))
}

/// Returns what the edit engine works on: the file's bytes, or its text as UTF-8 if it has another encoding. The text
/// is guaranteed to encode back to the same bytes if nothing is changed.
pub(crate) fn editable_text<'a>(
    path: &WorkspacePath,
    bytes: &'a [u8],
) -> Result<(Cow<'a, [u8]>, TextEncoding), String> {
    match classify_content(bytes) {
        FileContent::Binary(kind) => {
            Err(format!("`{path}` is {kind} and is not edited: change it by a command"))
        }
        FileContent::Text(text, encoding) if encoding.is_transcoded() => {
            if encoding.encode(&text).as_deref() != Ok(bytes) {
                return Err(format!(
                    "`{path}` is not edited: not all of it is text in its encoding, and an edit would change more \
                     than it says. Convert the file by a command first (iconv)"
                ));
            }
            Ok((text.into_owned().into_bytes().into(), encoding))
        }
        FileContent::Text(_, encoding) => Ok((bytes.into(), encoding)),
    }
}

/// Encodes the edit engine's result as the file's bytes.
pub(crate) fn encode_edited<'a>(
    path: &WorkspacePath,
    encoding: TextEncoding,
    after: &'a [u8],
) -> Result<Cow<'a, [u8]>, String> {
    if !encoding.is_transcoded() {
        return Ok(after.into());
    }
    let refused = |why: String| format!("Nothing was changed in `{path}`: {why}");
    let text = std::str::from_utf8(after).map_err(|error| refused(error.to_string()))?;
    let bytes = encoding.encode(text).map_err(|error| {
        refused(format!(
            "{error}. Use characters that it has, or convert the file by a command first (iconv)"
        ))
    })?;
    Ok(bytes.into())
}

/// Returns the edits of a call, from whichever of the two arguments has them.
fn planned_edits(path: &str, edits: Option<Vec<EditArgs>>, patch: Option<&str>) -> Result<Vec<Edit>, String> {
    match (edits, patch.filter(|patch| !patch.trim().is_empty())) {
        (Some(edits), None) => Ok(edits.into_iter().map(Edit::from).collect()),
        (None, Some(patch)) => docket_edit::parse_patch(Some(path), patch).map_err(|error| error.to_string()),
        (Some(_), Some(_)) => Err("edits and patch were both given: give one of them".to_owned()),
        (None, None) => Err("there is nothing to change: give edits, a list of {search, replace}".to_owned()),
    }
}

fn edit_outcome(name: &str, before: &[u8], applied: &docket_edit::AppliedEdits, remark: &str) -> ToolOutcome {
    let note = match applied.loosest_level() {
        EditLevel::AlreadyApplied => "already applied",
        EditLevel::Exact => "matched exactly",
        EditLevel::Whitespace => "matched but for white space",
        EditLevel::Indentation => "matched but for indentation; the replacement was indented like the file",
        EditLevel::Fuzzy => "matched only by similarity: check the diff",
    };
    let head = format!("edited {name} ({note})\n{remark}");
    outcome_with_diff(&head, name, before, &applied.after)
}

/// Builds the answer for a change: the heading, then the diff.
pub(crate) fn outcome_with_diff(head: &str, name: &str, before: &[u8], after: &[u8]) -> ToolOutcome {
    let diff = docket_edit::unified_diff(name, before, after);
    let lines = count_changed_lines(&diff);
    let (shown, was_cut) = cut_middle(&diff, DIFF_CHARS_MAX);
    let mut outcome = ToolOutcome::ok(format!("{head}{shown}"));
    outcome.full_output = was_cut.then(|| diff.into_bytes());
    outcome.facts.lines = Some(lines);
    outcome
}

fn count_changed_lines(diff: &str) -> LineCounts {
    let body = || diff.lines().skip(2);
    let number =
        |sign: char| u32::try_from(body().filter(|line| line.starts_with(sign)).count()).unwrap_or(u32::MAX);
    LineCounts { added: number('+'), removed: number('-') }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::tools::testing::{TestWorkspace, has_program};

    #[test]
    fn edit_is_applied_and_shown() {
        let mut w = TestWorkspace::new(&[("a.py", "def f():\r\n    return 1\r\n")]);
        w.set_mode("a.py", 0o755);
        w.call_tool("read_file", json!({"path": "a.py"}));
        let out = w.call_tool(
            NAME,
            json!({"path": "a.py", "edits": [{"search": "return 1", "replace": "return 2"}]}),
        );
        assert!(out.text().contains("-    return 1\r\n+    return 2\r\n"), "{}", out.text());
        assert_eq!(
            (w.read_file("a.py").as_str(), w.file_mode("a.py")),
            ("def f():\r\n    return 2\r\n", 0o755)
        );
        assert_eq!(out.facts.lines, Some(LineCounts { added: 1, removed: 1 }));
        assert_eq!(out.facts.edit_level, Some(EditLevel::Exact));
        // What it wrote counts as read.
        let out = w.call_tool(
            NAME,
            json!({"path": "a.py", "edits": [{"search": "return 2", "replace": "return 3"}]}),
        );
        assert!(!out.is_error, "{}", out.text());
    }

    #[test]
    fn file_must_be_read_before_it_is_edited() {
        let mut w = TestWorkspace::new(&[("a", "one\n")]);
        let edit = json!({"path": "a", "edits": [{"search": "one", "replace": "two"}]});
        let out = w.call_tool(NAME, edit.clone());
        assert!(out.is_error && out.text().contains("was not read in this run"), "{}", out.text());
        w.call_tool("read_file", json!({"path": "a"}));
        w.write_file("a", "one\nmore\n");
        let out = w.call_tool(NAME, edit.clone());
        assert!(out.is_error && out.text().contains("changed on disk"), "{}", out.text());
        w.call_tool("read_file", json!({"path": "a"}));
        assert!(!w.call_tool(NAME, edit).is_error);
        assert_eq!(w.read_file("a"), "two\nmore\n");
    }

    #[test]
    fn refused_edit_changes_nothing_and_quotes_the_file() {
        let mut w = TestWorkspace::new(&[("a", "alpha beta gamma\ndelta epsilon\n")]);
        w.call_tool("read_file", json!({"path": "a"}));
        let out = w.call_tool(
            NAME,
            json!({"path": "a", "edits": [
                {"search": "delta epsilon", "replace": "x"},
                {"search": "alpha betta zzzzz gamma", "replace": "y"},
            ]}),
        );
        assert!(out.is_error && out.text().contains("     1| alpha beta gamma"), "{}", out.text());
        assert!(out.text().contains("edit 2 of 2") && out.facts.error_signature.is_some());
        assert_eq!(w.read_file("a"), "alpha beta gamma\ndelta epsilon\n");
        assert_eq!(w.file_names(), ["a"]);
    }

    #[test]
    fn nested_argument_errors_name_the_field() {
        let mut w = TestWorkspace::new(&[("a", "1\n")]);
        let out =
            w.call_tool(NAME, json!({"path": "a", "edits": [{"search": 1, "replace": "x", "all": true}]}));
        let text = out.text();
        assert!(
            text.contains("`edits[0].search` must be string") && text.contains("`edits[0].all` is unknown"),
            "{text}"
        );
        assert!(
            w.call_tool(NAME, json!({"path": "a", "edits": []})).text().contains("`edits` needs at least 1")
        );
    }

    #[test]
    fn patch_is_accepted_in_place_of_edits() {
        let mut w = TestWorkspace::new(&[("src/a.py", "def f():\n    return 1\n")]);
        w.call_tool("read_file", json!({"path": "src/a.py"}));
        let patch =
            "--- a/src/a.py\n+++ b/src/a.py\n@@ -9,2 +9,2 @@\n def f():\n-    return 1\n+    return 2\n";
        let out = w.call_tool(NAME, json!({"path": "src/a.py", "patch": patch}));
        assert!(!out.is_error, "{}", out.text());
        assert_eq!(w.read_file("src/a.py"), "def f():\n    return 2\n");
        let edits = json!([{"search": "2", "replace": "3"}]);
        for (args, want) in [
            (json!({"path": "src/a.py", "patch": patch, "edits": edits}), "give one of them"),
            (json!({"path": "src/a.py"}), "nothing to change"),
            (json!({"path": "src/a.py", "patch": patch.replace("a.py", "b.py")}), "one call for each file"),
            (json!({"path": "src/a.py", "patch": "@@\n-gone()\n+x\n"}), "Nothing was changed: "),
        ] {
            let out = w.call_tool(NAME, args);
            assert!(out.is_error && out.text().contains(want), "{}", out.text());
        }
        let again = w.call_tool(NAME, json!({"path": "src/a.py", "patch": patch}));
        assert!(again.text().contains("already reads so"), "{}", again.text());
        assert_eq!(w.read_file("src/a.py"), "def f():\n    return 2\n");
    }

    #[test]
    fn file_keeps_its_encoding_and_other_bytes() {
        let utf16 = |text: &str| {
            let units = text.encode_utf16().flat_map(u16::to_le_bytes);
            b"\xff\xfe".iter().copied().chain(units).collect::<Vec<u8>>()
        };
        let text = "eins \u{e9}\r\nzwei \u{fc}\r\ndrei";
        let edited = "eins \u{e9}\r\nzw\u{f6}lf \u{fc}\r\ndrei";
        let mut w = TestWorkspace::new(&[]);
        let latin = |text: &str| text.chars().map(|c| u8::try_from(u32::from(c)).expect("Latin-1")).collect();
        let with_bom = |text: &str| format!("\u{feff}{text}").into_bytes();
        let cases: [(&str, Vec<u8>, Vec<u8>); 3] = [
            ("utf16", utf16(text), utf16(edited)),
            ("latin", latin(text), latin(edited)),
            ("bom", with_bom(text), with_bom(edited)),
        ];
        for (path, before, after) in cases {
            w.write_file(path, &before);
            w.call_tool("read_file", json!({"path": path}));
            let edit = |search: &str, replace: &str| json!({"path": path, "edits": [{"search": search, "replace": replace}]});
            let out = w.call_tool(NAME, edit("zwei \u{fc}", "zw\u{f6}lf \u{fc}"));
            assert!(!out.is_error && out.text().contains("+zw\u{f6}lf \u{fc}"), "{}", out.text());
            assert_eq!(std::fs::read(w.full_path(path)).expect("reads"), after, "{path}");
            // What it wrote counts as read: the hash covers the encoded bytes, not the text.
            assert!(!w.call_tool(NAME, edit("zw\u{f6}lf", "zwei")).is_error);
            assert_eq!(std::fs::read(w.full_path(path)).expect("reads"), before, "{path}");
        }
        let out =
            w.call_tool(NAME, json!({"path": "latin", "edits": [{"search": "zwei", "replace": "\u{263a}"}]}));
        assert!(
            out.is_error && out.text().contains("`\u{263a}` cannot be written in Windows-1252"),
            "{}",
            out.text()
        );
        assert_eq!(std::fs::read(w.full_path("latin")).expect("reads"), latin(text));
        // Half a UTF-16 surrogate pair, and half a code unit: such text does not encode back to the same bytes.
        for bad in [&b"\xff\xfea\0\0\xd8b\0"[..], b"\xff\xfea\0b"] {
            w.write_file("half", bad);
            w.call_tool("read_file", json!({"path": "half"}));
            let out = w.call_tool(NAME, json!({"path": "half", "edits": [{"search": "a", "replace": "c"}]}));
            assert!(out.is_error && out.text().contains("Convert the file"), "{}", out.text());
            assert_eq!(std::fs::read(w.full_path("half")).expect("reads"), bad);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Whatever bytes a file contains, a successful edit changes its line and no other byte.
        #[test]
        fn edit_of_any_bytes_changes_only_its_line(
            before in prop::collection::vec(any::<u8>(), 0..60), after in prop::collection::vec(any::<u8>(), 0..60)
        ) {
            let mut w = TestWorkspace::new(&[]);
            let bytes = [&before[..], b"\nUNIQUE mark\n", &after].concat();
            w.write_file("f", &bytes);
            w.call_tool("read_file", json!({"path": "f"}));
            let edits = json!([{"search": "UNIQUE mark", "replace": "another mark"}]);
            let out = w.call_tool(NAME, json!({"path": "f", "edits": edits}));
            let want = if out.is_error { bytes } else { [&before[..], b"\nanother mark\n", &after].concat() };
            prop_assert_eq!(std::fs::read(w.full_path("f")).expect("reads"), want, "{}", out.text());
        }
    }

    #[test]
    fn edit_that_breaks_the_syntax_is_reported_or_refused() {
        let text = "def f(a):\n    return g(a)\n";
        let mut w = TestWorkspace::new(&[("a.py", text)]);
        w.call_tool("read_file", json!({"path": "a.py"}));
        let edit = |search: &str, replace: &str| json!({"path": "a.py", "edits": [{"search": search, "replace": replace}]});
        let out = w.call_tool(NAME, edit("g(a)", "g(a, 1)"));
        assert!(!out.is_error && !out.text().contains("syntax:"), "{}", out.text());
        let out = w.call_tool(NAME, edit("g(a, 1)", "g(a, 1"));
        assert!(!out.is_error, "{}", out.text());
        let text = out.text();
        let told = text.lines().nth(1).expect("a second line");
        assert!(told.starts_with("syntax: the edit adds 1 error (Python), at line 2, "), "{told}");
        assert!(told.ends_with(": return g(a, 1"), "{told}");
        // An edit that does not make the file worse needs no remark, and fixing it is always allowed.
        w.settings.refuse_syntax_errors = true;
        let out = w.call_tool(NAME, edit("def f(a)", "def f(a, b)"));
        assert!(!out.is_error && !out.text().contains("syntax:"), "{}", out.text());
        let out = w.call_tool(NAME, edit("g(a, 1", "g(a, 1)"));
        assert!(!out.is_error, "{}", out.text());
        let out = w.call_tool(NAME, edit("return", "return return"));
        assert!(
            out.is_error && out.text().contains("Nothing was changed: syntax: the edit would add"),
            "{}",
            out.text()
        );
        assert!(out.facts.changed.is_empty() && out.facts.error_signature.is_some());
        assert_eq!(w.read_file("a.py"), "def f(a, b):\n    return g(a, 1)\n");
        // An edit that the language's own parser accepts is never refused: here the grammar is outdated.
        if has_program("rustfmt") {
            let ahead = crate::tools::checks::syntax_check::NEWER_RUST;
            assert!(matches!(
                crate::syntax::compare_syntax("a.rs", None, ahead.as_bytes()),
                crate::syntax::SyntaxVerdict::Worse(_)
            ));
            w.write_file("a.rs", "fn f() {}\n");
            w.call_tool("read_file", json!({"path": "a.rs"}));
            let edits = json!([{"search": "fn f() {}", "replace": ahead.trim_end()}]);
            let out = w.call_tool(NAME, json!({"path": "a.rs", "edits": edits}));
            assert!(!out.is_error && out.text().contains("but rustfmt takes it"), "{}", out.text());
        }
    }

    #[test]
    fn file_too_large_to_parse_is_reported() {
        let line = "x = 1\n";
        let mut w = TestWorkspace::new(&[("a.py", &line.repeat(180_000))]);
        w.write_file("a.py", format!("first = 1\n{}", line.repeat(180_000)));
        w.call_tool("read_file", json!({"path": "a.py"}));
        let out = w.call_tool(
            NAME,
            json!({"path": "a.py", "edits": [{"search": "first = 1", "replace": "first = ("}]}),
        );
        assert!(out.text().contains("syntax: not checked: 1080010 bytes"), "{}", out.text());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn arbitrary_edits_never_corrupt_the_file(
            before in "[ab\n ]{0,40}", search in "[ab\n ]{0,8}", replace in "[abc\n ]{0,8}"
        ) {
            let mut w = TestWorkspace::new(&[("f", &before)]);
            w.call_tool("read_file", json!({"path": "f"}));
            let out = w.call_tool(NAME, json!({"path": "f", "edits": [{"search": search, "replace": replace}]}));
            if out.is_error {
                prop_assert_eq!(w.read_file("f"), before);
                prop_assert!(out.facts.changed.is_empty());
            }
            prop_assert_eq!(w.file_names(), ["f"]);
        }
    }
}

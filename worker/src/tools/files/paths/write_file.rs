//! `write_file`: writes a whole file, new or in place of one that was read.

use docket_schema::{content::WorkspacePath, ids::BlobHash, tool::LineCounts};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{
    edit_file::{editable_text, encode_edited, outcome_with_diff},
    proposal::{FileProposal, check_content},
};
use crate::calls::parse_workspace_path;
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::files::{FileError, os_path},
};

pub(crate) const NAME: &str = "write_file";
pub(crate) const DESCRIPTION: &str = "Writes a whole file: a new one, with the folders above it, or in place \
    of one that was read before. Files that configure the project are not replaced whole: edit_file changes their \
    lines.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WriteFileArgs {
    /// Path of the file, relative to the workspace.
    path: String,
    /// The whole content.
    content: String,
}

pub(crate) async fn run(context: ToolContext<'_>, args: WriteFileArgs) -> ToolOutcome {
    write_file(context, &args).await.unwrap_or_else(|text| ToolOutcome::error(NAME, text))
}

async fn write_file(context: ToolContext<'_>, args: &WriteFileArgs) -> Result<ToolOutcome, String> {
    let path = parse_workspace_path(&args.path).map_err(|error| error.to_string())?;
    if args.path.ends_with('/') {
        return Err(format!("`{}` names a folder: make_folder makes one", args.path));
    }
    check_content("content", &args.path, &args.content, "Nothing was written")?;
    match context.root.symlink_metadata(os_path(&path)) {
        Ok(_) => replace_read_file(context, path, &args.content).await,
        Err(_) => write_new_file(context, path, &args.content).await,
    }
}

async fn write_new_file(
    context: ToolContext<'_>,
    path: WorkspacePath,
    content: &str,
) -> Result<ToolOutcome, String> {
    let proposal = FileProposal::for_new_file(context, path);
    let remark = proposal.dry_run(None, content.as_bytes()).await?;
    let path = &proposal.path;
    proposal.commit(content.as_bytes()).map_err(|error| match error {
        FileError::Exists(path) => format!("`{path}` appeared meanwhile: read it, then write it"),
        other => other.to_string(),
    })?;
    let lines = content.lines().count();
    let mut out = ToolOutcome::ok(
        format!("created {path} ({lines} lines, {} bytes)\n{remark}", content.len()).trim_end(),
    );
    out.facts.lines = Some(LineCounts { added: u32::try_from(lines).unwrap_or(u32::MAX), removed: 0 });
    out.facts.changed.push(path.clone());
    Ok(out.with_seen_file(path.clone(), BlobHash::hash_bytes(content.as_bytes())))
}

async fn replace_read_file(
    context: ToolContext<'_>,
    path: WorkspacePath,
    content: &str,
) -> Result<ToolOutcome, String> {
    let proposal = FileProposal::for_read_file(context, path)?;
    let path = &proposal.path;
    let (before, encoding) = editable_text(path, proposal.old_bytes())?;
    let remark = proposal.dry_run(Some(&before), content.as_bytes()).await?;
    let after = encode_edited(path, encoding, content.as_bytes())?;
    if after == proposal.old_bytes() {
        let same = ToolOutcome::ok(format!("`{path}` already reads so: nothing was changed"));
        return Ok(same.with_seen_file(path.clone(), BlobHash::hash_bytes(&after)));
    }
    proposal.commit(&after).map_err(|error| error.to_string())?;
    let head = format!("wrote {path} ({} lines, {} bytes)\n{remark}", content.lines().count(), after.len());
    let mut out = outcome_with_diff(&head, &path.to_string(), &before, content.as_bytes());
    out.facts.changed.push(path.clone());
    Ok(out.with_seen_file(path.clone(), BlobHash::hash_bytes(&after)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn new_file_can_be_overwritten_without_being_read_again() {
        let mut w = TestWorkspace::new(&[]);
        let out = w.call_tool(NAME, json!({"path": "a/b.txt", "content": "one\n"}));
        assert_eq!(out.text(), "created a/b.txt (1 lines, 4 bytes)");
        let out = w.call_tool(NAME, json!({"path": "a/b.txt", "content": "two\n"}));
        assert!(out.text().contains("-one\n+two\n"), "{}", out.text());
        assert_eq!((w.read_file("a/b.txt").as_str(), out.facts.changed.len()), ("two\n", 1));
        let out = w.call_tool(NAME, json!({"path": "a/b.txt", "content": "two\n"}));
        assert!(!out.is_error && out.facts.changed.is_empty() && out.text().contains("already reads so"));
    }

    #[test]
    fn unread_or_changed_file_is_not_overwritten() {
        let mut w = TestWorkspace::new(&[("a.txt", "old\n")]);
        let args = json!({"path": "a.txt", "content": "new\n"});
        let out = w.call_tool(NAME, args.clone());
        assert!(out.is_error && out.text().contains("was not read in this run"), "{}", out.text());
        w.call_tool("read_file", json!({"path": "a.txt"}));
        w.write_file("a.txt", "another's\n");
        let out = w.call_tool(NAME, args.clone());
        assert!(out.is_error && out.text().contains("changed on disk"), "{}", out.text());
        assert_eq!(w.read_file("a.txt"), "another's\n");
        w.call_tool("read_file", json!({"path": "a.txt"}));
        assert!(!w.call_tool(NAME, args).is_error);
    }

    #[test]
    fn config_file_is_not_replaced_and_keeps_its_mode_when_changed() {
        let text =
            "[package]\nname = \"a\"\nversion = \"1\"\nedition = \"2024\"\n\n[dependencies]\nserde = \"1\"\n";
        let mut w = TestWorkspace::new(&[("Cargo.toml", text)]);
        w.set_mode("Cargo.toml", 0o600);
        w.call_tool("read_file", json!({"path": "Cargo.toml"}));
        let out = w.call_tool(NAME, json!({"path": "Cargo.toml", "content": "[workspace]\n"}));
        assert!(out.is_error && out.text().contains("is not replaced whole"), "{}", out.text());
        assert_eq!(w.read_file("Cargo.toml"), text);
        let more = format!("{text}log = \"0.4\"\n");
        assert!(!w.call_tool(NAME, json!({"path": "Cargo.toml", "content": more})).is_error);
        assert_eq!(w.file_mode("Cargo.toml"), 0o600);
    }

    #[test]
    fn outside_protected_or_occupied_paths_are_refused() {
        let mut w = TestWorkspace::new(&[("file", "x"), ("folder/f", "y"), ("pic.png", "\u{89}PNG\0\0")]);
        w.create_link("out", "/etc/hostname");
        w.create_link("up", "..");
        w.call_tool("read_file", json!({"path": "file"}));
        for (path, want) in [
            ("out", "link"),
            ("up/x", "link"),
            ("file/below", "link, or lies below one"),
            ("folder", "is a folder"),
            ("folder/", "names a folder"),
            ("../x", "not a path in the workspace"),
            ("/etc/passwd", "not a path in the workspace"),
            (".git/config", "protected"),
            ("sub/.GIT/hooks/x", "protected"),
            ("docket.toml", "protected"),
            ("a\0b", "not a path in the workspace"),
            ("", "not a path in the workspace"),
        ] {
            let out = w.call_tool(NAME, json!({"path": path, "content": "z\n"}));
            assert!(out.is_error && out.text().contains(want), "{path:?}: {}", out.text());
        }
        let huge = "x".repeat(super::super::super::proposal::CONTENT_BYTES_MAX + 1);
        assert!(w.call_tool(NAME, json!({"path": "huge", "content": huge})).is_error);
        let mark = json!({"path": "k", "content": "KEY=[REDACTED: AWS key]\n"});
        assert!(w.call_tool(NAME, mark).text().contains("stands for a secret"));
        assert_eq!(w.read_file("file"), "x");
    }

    /// Every tool that creates names refuses the last one, in whatever order they are created.
    #[test]
    fn no_tool_turns_a_folder_into_a_repository() {
        for (there, last) in [
            (&["wt/m/HEAD"][..], "wt/m/commondir"),
            (&["wt/m/commondir"], "wt/m/head"),
            (&["b/HEAD", "b/objects/x", "b/refs/x"], "b/config"),
            (&["b/HEAD", "b/objects/x", "b/refs/x"], "b/hooks/post-checkout"),
            (&["b/HEAD", "b/objects/x", "b/config"], "b/refs/x"),
            (&["b/objects/x", "b/refs/x", "b/config.worktree"], "b/HEAD"),
            (&["c/objects/x", "c/refs/x"], "c/Config"),
        ] {
            let mut w = TestWorkspace::new(&[("src/a", "1\n")]);
            for path in there {
                let out = w.call_tool(NAME, json!({"path": path, "content": "x\n"}));
                assert!(!out.is_error, "{path} alone is harmless: {}", out.text());
            }
            let before = w.file_names();
            for (tool, args) in [
                (NAME, json!({"path": last, "content": "x\n"})),
                ("create_file", json!({"path": last, "content": "x\n"})),
                ("copy_file", json!({"from": "src/a", "to": last})),
                ("move_file", json!({"from": "src/a", "to": last})),
            ] {
                let out = w.call_tool(tool, args);
                let told = out.text().into_owned();
                assert!(
                    out.is_error && told.contains("take its folder for a repository"),
                    "{tool} {last}: {told}"
                );
            }
            assert_eq!(w.file_names(), before, "{last}");
        }
        let mut w =
            TestWorkspace::new(&[("fix.git/HEAD", "x\n"), ("fix.git/objects/a", ""), ("fix.git/refs/b", "")]);
        for path in [
            "fix.git/objects/c",
            "fix.git/refs/heads/d",
            "src/config/a.ts",
            "src/refs/b.ts",
            "src/objects/c.ts",
        ] {
            assert!(!w.call_tool(NAME, json!({"path": path, "content": "x\n"})).is_error, "{path}");
        }
    }

    #[test]
    fn unusual_names_are_accepted_and_encoding_is_kept() {
        let mut w = TestWorkspace::new(&[]);
        for path in ["-rf", "a b'c\"d", "$(id)", "ü/ñ.txt", "new\nline"] {
            let out = w.call_tool(NAME, json!({"path": path, "content": "1\n"}));
            assert!(!out.is_error && w.read_file(path) == "1\n", "{path}: {}", out.text());
        }
        w.write_file("u16.txt", b"\xff\xfeA\0\n\0");
        w.call_tool("read_file", json!({"path": "u16.txt"}));
        let out = w.call_tool(NAME, json!({"path": "u16.txt", "content": "B\n"}));
        assert!(!out.is_error, "{}", out.text());
        assert_eq!(std::fs::read(w.full_path("u16.txt")).expect("reads"), b"\xff\xfeB\0\n\0");
    }
}

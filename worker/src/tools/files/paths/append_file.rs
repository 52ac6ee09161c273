//! `append_file`: appends text to a file.

use docket_schema::ids::BlobHash;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{
    edit_file::{editable_text, encode_edited, outcome_with_diff},
    proposal::{FileProposal, check_content},
};
use crate::calls::parse_workspace_path;
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::files::FILE_BYTES_MAX,
};

pub(crate) const NAME: &str = "append_file";
pub(crate) const DESCRIPTION: &str = "Adds text at the end of a file that was read before, on a line of its \
    own.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AppendFileArgs {
    /// Path of the file, relative to the workspace.
    path: String,
    /// What is added.
    content: String,
}

pub(crate) async fn run(context: ToolContext<'_>, args: AppendFileArgs) -> ToolOutcome {
    append_text(context, &args).await.unwrap_or_else(|text| ToolOutcome::error(NAME, text))
}

async fn append_text(context: ToolContext<'_>, args: &AppendFileArgs) -> Result<ToolOutcome, String> {
    let path = parse_workspace_path(&args.path).map_err(|error| error.to_string())?;
    if args.content.is_empty() {
        return Err("`content` is empty: there is nothing to add".to_owned());
    }
    check_content("content", &args.path, &args.content, "Nothing was added")?;
    let proposal = FileProposal::for_read_file(context, path)?;
    let path = &proposal.path;
    let (before, encoding) = editable_text(path, proposal.old_bytes())?;
    let after = append_with_line_ending(&before, &args.content);
    if after.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("`{path}` would have {} bytes, more than {FILE_BYTES_MAX}", after.len()));
    }
    let remark = proposal.dry_run(Some(&before), &after).await?;
    let bytes = encode_edited(path, encoding, &after)?;
    proposal.commit(&bytes).map_err(|error| error.to_string())?;
    let head = format!("added {} lines to {path}\n{remark}", args.content.lines().count());
    let mut out = outcome_with_diff(&head, &path.to_string(), &before, &after);
    out.facts.changed.push(path.clone());
    Ok(out.with_seen_file(path.clone(), BlobHash::hash_bytes(&bytes)))
}

/// Appends `content` to `before` on a new line, using the file's line endings.
fn append_with_line_ending(before: &[u8], content: &str) -> Vec<u8> {
    let has_crlf = before.windows(2).any(|pair| pair == b"\r\n");
    let is_crlf = has_crlf && before.iter().filter(|byte| **byte == b'\n').count() == count_crlf(before);
    let end = if is_crlf { "\r\n" } else { "\n" };
    let mut after = before.to_vec();
    if !before.is_empty() && !before.ends_with(b"\n") {
        after.extend_from_slice(end.as_bytes());
    }
    match is_crlf {
        true => after.extend_from_slice(content.replace("\r\n", "\n").replace('\n', end).as_bytes()),
        false => after.extend_from_slice(content.as_bytes()),
    }
    after
}

fn count_crlf(bytes: &[u8]) -> usize {
    bytes.windows(2).filter(|pair| *pair == b"\r\n").count()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn text_is_added_on_its_own_line_with_the_line_endings_of_the_file() {
        for (before, added, after) in [
            ("a\n", "b\n", "a\nb\n"),
            ("a", "b\n", "a\nb\n"),
            ("", "b", "b"),
            ("a\r\n", "b\nc\n", "a\r\nb\r\nc\r\n"),
            ("a\r\nb\n", "c\n", "a\r\nb\nc\n"),
        ] {
            let mut w = TestWorkspace::new(&[("f.txt", before)]);
            w.call_tool("read_file", json!({"path": "f.txt"}));
            let out = w.call_tool(NAME, json!({"path": "f.txt", "content": added}));
            assert_eq!((out.is_error, w.read_file("f.txt").as_str()), (false, after), "{}", out.text());
            // What it wrote counts as read.
            assert!(!w.call_tool(NAME, json!({"path": "f.txt", "content": "z\n"})).is_error);
        }
    }

    #[test]
    fn missing_unread_outside_or_binary_file_is_refused() {
        let mut w = TestWorkspace::new(&[("unread", "x\n"), ("d/f", "")]);
        w.write_file("bin", b"\0\0\0");
        w.create_link("out", "/etc/hostname");
        w.call_tool("read_file", json!({"path": "bin"}));
        for (path, want) in [
            ("unread", "was not read"),
            ("absent", "does not exist"),
            ("d", "is a folder"),
            ("out", "link"),
            ("bin", "was not read"),
            ("../x", "not a path"),
            (".git/x", "does not exist"),
        ] {
            let out = w.call_tool(NAME, json!({"path": path, "content": "y\n"}));
            assert!(out.is_error && out.text().contains(want), "{path}: {}", out.text());
        }
        assert!(w.call_tool(NAME, json!({"path": "unread", "content": ""})).is_error);
        assert_eq!(w.read_file("unread"), "x\n");
    }
}

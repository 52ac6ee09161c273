//! `copy_file`: copies a file to another path.

use schemars::JsonSchema;
use serde::Deserialize;

use super::move_file::{check_renamed_syntax, source_and_target};
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::{
        files::{FileError, create_file_with_mode, load_file},
        path_suggestions,
    },
};

pub(crate) const NAME: &str = "copy_file";
pub(crate) const DESCRIPTION: &str = "Copies a file, byte by byte and with its mode, and makes the folders \
    above the copy. Fails where something stands there.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CopyFileArgs {
    /// Path of the file, relative to the workspace.
    from: String,
    /// Path of the copy, with its name.
    to: String,
}

pub(crate) async fn run(context: ToolContext<'_>, args: CopyFileArgs) -> ToolOutcome {
    copy_file(context, &args).await.unwrap_or_else(|text| ToolOutcome::error(NAME, text))
}

async fn copy_file(context: ToolContext<'_>, args: &CopyFileArgs) -> Result<ToolOutcome, String> {
    let (from, to) = source_and_target(context, &args.from, &args.to)?;
    let loaded = load_file(context.root, &from).map_err(|error| match error {
        FileError::IsFolder(path) => format!("`{path}` is a folder: copy it by a command (cp -r)"),
        other => path_suggestions::format_file_error(context.root, &other),
    })?;
    let remark = check_renamed_syntax(context, &from, &to, &loaded.bytes).await?;
    create_file_with_mode(context.root, &to, &loaded.bytes, loaded.mode & 0o777)
        .map_err(|error| error.to_string())?;
    let mut out =
        ToolOutcome::ok(format!("copied {from} to {to} ({} bytes)\n{remark}", loaded.bytes.len()).trim_end());
    out.facts.changed.push(to.clone());
    Ok(match context.read_set.get(&from) {
        Some(read) if *read == loaded.hash => out.with_seen_file(to, loaded.hash),
        Some(_) | None => out,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn bytes_and_mode_are_copied_and_the_copy_counts_as_read() {
        let mut w = TestWorkspace::new(&[("run.sh", "#!/bin/sh\n")]);
        w.set_mode("run.sh", 0o4755);
        w.call_tool("read_file", json!({"path": "run.sh"}));
        let out = w.call_tool(NAME, json!({"from": "run.sh", "to": "bin/again.sh"}));
        assert!(!out.is_error, "{}", out.text());
        // Set-id bits are not copied.
        assert_eq!(
            (w.read_file("bin/again.sh").as_str(), w.file_mode("bin/again.sh")),
            ("#!/bin/sh\n", 0o755)
        );
        let edit =
            json!({"path": "bin/again.sh", "edits": [{"search": "#!/bin/sh", "replace": "#!/bin/bash"}]});
        assert!(!w.call_tool("edit_file", edit).is_error);
        assert_eq!(w.read_file("run.sh"), "#!/bin/sh\n");
    }

    #[test]
    fn copy_from_outside_or_over_a_file_is_refused() {
        let mut w = TestWorkspace::new(&[("a", "1"), ("b", "2"), ("d/e", "3")]);
        w.create_link("out", "/etc/hostname");
        w.create_link("outside", "/etc");
        std::fs::hard_link(w.full_path("a"), w.full_path("a2")).expect("links");
        for (from, to, want) in [
            ("b", "d/e", "exists already"),
            ("d", "x", "is a folder"),
            ("out", "x", "not in the workspace"),
            ("outside/passwd", "x", "leads out"),
            ("a", "x", "hard links"),
            ("absent", "x", "does not exist"),
            ("b", "../x", "not a path"),
            ("b", ".git/hooks/post-commit", "protected"),
            ("b", "outside/x", "link"),
        ] {
            let out = w.call_tool(NAME, json!({"from": from, "to": to}));
            assert!(out.is_error && out.text().contains(want), "{from} {to}: {}", out.text());
        }
        assert!(!w.full_path("x").exists());
    }
}

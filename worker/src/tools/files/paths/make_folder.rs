//! `make_folder`: creates a folder and its parents.

use schemars::JsonSchema;
use serde::Deserialize;

use super::path_operations;
use crate::calls::parse_workspace_path;
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::files::os_path,
};

pub(crate) const NAME: &str = "make_folder";
pub(crate) const DESCRIPTION: &str = "Makes a folder and those above it. One that stays empty is no part of \
    the result, for git keeps none; write_file makes the folders above a file by itself.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MakeFolderArgs {
    /// Path of the folder, relative to the workspace.
    path: String,
}

pub(crate) fn run(context: ToolContext<'_>, args: &MakeFolderArgs) -> ToolOutcome {
    make_folder(context, args).unwrap_or_else(|text| ToolOutcome::error(NAME, text))
}

fn make_folder(context: ToolContext<'_>, args: &MakeFolderArgs) -> Result<ToolOutcome, String> {
    let path = parse_workspace_path(&args.path).map_err(|error| error.to_string())?;
    match context.root.symlink_metadata(os_path(&path)) {
        Ok(meta) if meta.is_dir() => return Ok(ToolOutcome::ok(format!("`{path}` is there already"))),
        Ok(_) => return Err(format!("`{path}` exists already and is no folder")),
        Err(_) => {}
    }
    if let Err(error) = path_operations::make_folder(context.root, &path) {
        // Some parent folders may have been created already.
        return Ok(ToolOutcome::error_midway(NAME, error.to_string()));
    }
    let mut out = ToolOutcome::ok(format!("made {path}"));
    out.facts.may_have_changed_tree = true;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn folders_are_made_once_and_only_in_the_workspace() {
        let mut w = TestWorkspace::new(&[("file", "x")]);
        w.create_link("out", "/tmp");
        assert_eq!(w.call_tool(NAME, json!({"path": "a/b/c/"})).text(), "made a/b/c");
        assert_eq!(w.file_mode("a/b"), 0o755);
        assert!(w.call_tool(NAME, json!({"path": "a/b"})).text().contains("is there already"));
        for (path, want) in [
            ("file", "is no folder"),
            ("file/x", "link, or lies below one"),
            ("out", "is no folder"),
            ("out/x", "link"),
            ("../x", "not a path"),
            ("a/.git", "protected"),
            ("a/.git/x", "protected"),
            (".", "not a path"),
        ] {
            let out = w.call_tool(NAME, json!({"path": path}));
            assert!(out.is_error && out.text().contains(want), "{path}: {}", out.text());
        }
    }
}

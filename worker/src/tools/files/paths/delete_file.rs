//! `delete_file`: deletes a file, a link, or a folder with its contents.

use docket_schema::{
    content::WorkspacePath,
    message::{CallId, ToolUse},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::path_operations;
use crate::calls::parse_workspace_path;
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::{files::load_file, path_suggestions},
};

pub(crate) const NAME: &str = "delete_file";
pub(crate) const DESCRIPTION: &str = "Deletes a file, or a folder: one that is not empty only where recursive \
    is true. Of a link only the link goes.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DeleteFileArgs {
    /// Its path, relative to the workspace.
    path: String,
    /// Delete a folder with all that it holds.
    #[serde(default)]
    recursive: Option<bool>,
}

pub(crate) fn run(context: ToolContext<'_>, args: &DeleteFileArgs) -> ToolOutcome {
    delete_path(context, args).unwrap_or_else(|text| ToolOutcome::error(NAME, text))
}

fn delete_path(context: ToolContext<'_>, args: &DeleteFileArgs) -> Result<ToolOutcome, String> {
    let path = parse_workspace_path(&args.path).map_err(|error| error.to_string())?;
    let meta = path_operations::metadata_no_follow(context.root, &path)
        .map_err(|error| path_suggestions::format_file_error(context.root, &error))?;
    if meta.is_dir() {
        let below = path_operations::list_folder_names(context.root, &path)?;
        let holds = below.name_count;
        if holds > 0 && args.recursive != Some(true) {
            return Err(format!(
                "`{path}` is a folder that holds {holds} names: say recursive to delete it with them"
            ));
        }
        let one = |path: &WorkspacePath| json!({ "path": path.to_string() });
        let args = json!({ "path": args.path, "recursive": true });
        let whole = ToolUse { call: CallId::for_runtime(0), name: NAME.to_owned(), args, malformed: None };
        path_operations::check_folder_files(context, &below, &whole, one, ("deleted", "delete"))?;
        if let Err(error) = path_operations::remove_folder(context.root, &path) {
            // How far the deletion got is unknown.
            return Ok(ToolOutcome::error_midway(NAME, error.to_string()));
        }
        let mut out = ToolOutcome::ok(format!("deleted the folder {path}, {holds} names in it"));
        out.facts.may_have_changed_tree = true;
        return Ok(out);
    }
    path_operations::refuse_config_file(&path, "deleted")?;
    // A file that was read must be unchanged at its path: someone else's change must be read before it is deleted.
    // Files that were never read are not bound to a hash; the snapshot before this call keeps them.
    if let Some(read) = context.read_set.get(&path)
        && meta.is_file()
        && load_file(context.root, &path).is_ok_and(|now| now.hash != *read)
    {
        return Err(format!("`{path}` changed on disk since it was read: read it again, then delete it"));
    }
    path_operations::remove_file(context.root, &path).map_err(|error| error.to_string())?;
    let mut out = ToolOutcome::ok(format!("deleted {path}"));
    out.facts.changed.push(path);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn files_links_and_folders_are_deleted_and_link_targets_stay() {
        let mut w = TestWorkspace::new(&[("a", "1"), ("d/x", "2"), ("d/e/y", "3"), ("keep/z", "4")]);
        w.create_link("d/out", w.full_path("keep"));
        w.create_link("l", w.full_path("keep/z"));
        assert_eq!(w.call_tool(NAME, json!({"path": "a"})).text(), "deleted a");
        assert!(!w.call_tool(NAME, json!({"path": "l"})).is_error);
        let out = w.call_tool(NAME, json!({"path": "d"}));
        assert!(out.is_error && out.text().contains("holds 4 names"), "{}", out.text());
        let out = w.call_tool(NAME, json!({"path": "d/", "recursive": true}));
        assert!(!out.is_error && out.facts.may_have_changed_tree, "{}", out.text());
        assert_eq!(w.file_names(), ["keep/z"]);
        // A repeated call, as after a recovery with a restored workspace, is reported plainly.
        assert!(w.call_tool(NAME, json!({"path": "d"})).text().contains("does not exist"));
    }

    #[test]
    fn protected_outside_or_too_large_targets_are_not_deleted() {
        let mut w = TestWorkspace::new(&[
            (".git/HEAD", "1"),
            ("sub/.git/HEAD", "2"),
            ("c/.docket/x", "3"),
            ("read", "4"),
        ]);
        w.create_link("out", "/etc");
        for n in 0..=path_operations::FOLDER_NAMES_MAX {
            w.write_file(&format!("many/{n}"), "");
        }
        w.call_tool("read_file", json!({"path": "read"}));
        w.write_file("read", "changed");
        for (path, want) in [
            (".git", "protected"),
            (".git/HEAD", "protected"),
            ("sub", "protected"),
            ("c", "protected"),
            ("out/passwd", "link"),
            ("../x", "not a path"),
            (".", "not a path"),
            ("", "not a path"),
            ("many", "more than 2000 names"),
            ("read", "changed on disk"),
        ] {
            let out = w.call_tool(NAME, json!({"path": path, "recursive": true}));
            assert!(out.is_error && out.text().contains(want), "{path}: {}", out.text());
        }
        assert_eq!((w.read_file(".git/HEAD").as_str(), w.read_file("sub/.git/HEAD").as_str()), ("1", "2"));
    }
}

//! `move_file`: renames a file or a folder.

use std::{ffi::OsStr, path::Path};

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
    checks::syntax_check,
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::{
        files::{load_file, os_path},
        path_suggestions,
    },
};

pub(crate) const NAME: &str = "move_file";
pub(crate) const DESCRIPTION: &str = "Moves or renames a file or a folder, and makes the folders above its new \
    place. Fails where something stands there.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveFileArgs {
    /// Its path, relative to the workspace.
    from: String,
    /// Its new path, with its new name.
    to: String,
}

pub(crate) async fn run(context: ToolContext<'_>, args: MoveFileArgs) -> ToolOutcome {
    move_path(context, &args).await.unwrap_or_else(|text| ToolOutcome::error(NAME, text))
}

async fn move_path(context: ToolContext<'_>, args: &MoveFileArgs) -> Result<ToolOutcome, String> {
    let (from, to) = source_and_target(context, &args.from, &args.to)?;
    let meta = path_operations::metadata_no_follow(context.root, &from)
        .map_err(|error| path_suggestions::format_file_error(context.root, &error))?;
    if meta.is_dir() {
        if to.as_bytes().strip_prefix(from.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'/')) {
            return Err(format!("`{to}` lies in `{from}`: a folder cannot be moved into itself"));
        }
        return move_folder(context, args, (&from, &to));
    }
    path_operations::refuse_config_file(&from, "moved away")?;
    // A file that cannot be read in full is not source code.
    let loaded = if meta.is_file() { load_file(context.root, &from).ok() } else { None };
    let remark = match &loaded {
        Some(loaded) => check_renamed_syntax(context, &from, &to, &loaded.bytes).await?,
        None => String::new(),
    };
    // A file that was read must be unchanged: otherwise it must be read again first.
    let hash = match (context.read_set.get(&from), meta.is_file()) {
        (Some(read), true) => {
            let now = load_file(context.root, &from).map_err(|error| error.to_string())?.hash;
            if now != *read {
                return Err(format!(
                    "`{from}` changed on disk since it was read: read it again, then move it"
                ));
            }
            Some(now)
        }
        (Some(_) | None, _) => None,
    };
    if let Err(error) = path_operations::rename_path(context.root, &from, &to) {
        // The parent folders of the target may have been created already.
        return Ok(ToolOutcome::error_midway(NAME, error.to_string()));
    }
    let mut out = ToolOutcome::ok(format!("moved {from} to {to}\n{remark}").trim_end());
    out.facts.changed.extend([from, to.clone()]);
    Ok(match hash {
        Some(hash) => out.with_seen_file(to, hash),
        None => out,
    })
}

/// Moves a folder; files read inside it still count as read.
fn move_folder(
    context: ToolContext<'_>,
    args: &MoveFileArgs,
    (from, to): (&WorkspacePath, &WorkspacePath),
) -> Result<ToolOutcome, String> {
    let below = path_operations::list_folder_names(context.root, from)?;
    let call = |args| ToolUse { call: CallId::for_runtime(0), name: NAME.to_owned(), args, malformed: None };
    let whole = call(json!({ "from": args.from, "to": args.to }));
    let moved = |path: &WorkspacePath| {
        let rest = path.as_bytes().strip_prefix(from.as_bytes()).unwrap_or_default();
        WorkspacePath::new([to.as_bytes(), rest].concat())
    };
    let one = |path: &WorkspacePath| {
        let to = moved(path).map_or_else(|| args.to.clone(), |to| to.to_string());
        json!({ "from": path.to_string(), "to": to })
    };
    let read = path_operations::check_folder_files(context, &below, &whole, one, ("moved away", "move"))?;
    if let Err(error) = path_operations::rename_path(context.root, from, to) {
        return Ok(ToolOutcome::error_midway(NAME, error.to_string()));
    }
    let mut out =
        ToolOutcome::ok(format!("moved the folder {from} to {to}, {} names in it", below.name_count));
    out.facts.may_have_changed_tree = true;
    let read = read.iter().filter_map(|(path, hash)| Some((moved(path)?, *hash)));
    Ok(read.fold(out, |out, (path, hash)| out.with_seen_file(path, hash)))
}

/// Dry run of renaming a file (E9): checks its syntax in the language of the new name. If the language stays the
/// same, it is no worse than before.
///
/// # Errors
/// Returns the refusal for the model.
pub(super) async fn check_renamed_syntax(
    context: ToolContext<'_>,
    from: &WorkspacePath,
    to: &WorkspacePath,
    bytes: &[u8],
) -> Result<String, String> {
    let ending = |path: &WorkspacePath| Path::new(&path.to_string()).extension().map(OsStr::to_owned);
    let before = (ending(from) == ending(to)).then_some(bytes);
    syntax_check::check_edit_syntax(context, to, before, bytes).await
}

/// Returns both paths, provided that the target does not exist.
pub(super) fn source_and_target(
    context: ToolContext<'_>,
    from: &str,
    to: &str,
) -> Result<(WorkspacePath, WorkspacePath), String> {
    let path =
        |field: &str, text: &str| parse_workspace_path(text).map_err(|error| format!("`{field}`: {error}"));
    let (from, into) = (path("from", from)?, path("to", to)?);
    if to.ends_with('/') {
        return Err(format!("`to`: `{to}` names a folder: give the new path with the name in it"));
    }
    if context.root.symlink_metadata(os_path(&into)).is_ok() {
        return Err(format!("`{into}` exists already: nothing is replaced; delete_file removes it"));
    }
    Ok((from, into))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::PathVisibility;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn moved_files_and_folders_still_count_as_read() {
        let mut w = TestWorkspace::new(&[("a.txt", "one\n"), ("d/x/y", "2\n")]);
        w.set_mode("a.txt", 0o755);
        w.call_tool("read_file", json!({"path": "a.txt"}));
        let out = w.call_tool(NAME, json!({"from": "a.txt", "to": "new/b.txt"}));
        assert_eq!((out.text().as_ref(), out.facts.changed.len()), ("moved a.txt to new/b.txt", 2));
        assert_eq!((w.read_file("new/b.txt").as_str(), w.file_mode("new/b.txt")), ("one\n", 0o755));
        let edit = json!({"path": "new/b.txt", "edits": [{"search": "one", "replace": "two"}]});
        assert!(!w.call_tool("edit_file", edit).is_error);
        let out = w.call_tool(NAME, json!({"from": "d", "to": "e/f"}));
        assert!(!out.is_error && out.facts.may_have_changed_tree, "{}", out.text());
        assert_eq!(w.file_names(), ["e/f/x/y", "new/b.txt"]);
    }

    #[test]
    fn link_is_moved_itself_and_targets_outside_or_occupied_are_refused() {
        let mut w = TestWorkspace::new(&[
            ("a", "1"),
            ("b", "2"),
            ("d/e", "3"),
            (".git/config", "4"),
            ("repo/.git/HEAD", "5"),
            ("cfg/docket.toml", "6"),
        ]);
        w.create_link("out", "/etc");
        assert!(!w.call_tool(NAME, json!({"from": "out", "to": "still"})).is_error);
        assert_eq!(std::fs::read_link(w.full_path("still")).expect("a link"), std::path::Path::new("/etc"));
        for (from, to, want) in [
            ("a", "b", "exists already"),
            ("a", "d", "exists already"),
            ("a", "d/", "names a folder"),
            ("d", "d/e/f", "into itself"),
            ("absent", "x", "does not exist"),
            ("a", "../x", "not a path"),
            ("a", "/tmp/x", "not a path"),
            ("../x", "a2", "not a path"),
            ("a", "still/x", "link"),
            ("still/hostname", "x", "link"),
            ("a", ".git/hooks/x", "protected"),
            (".git/config", "x", "protected"),
            (".git", "x", "protected"),
            ("repo", "elsewhere", "protected"),
            ("cfg", "elsewhere", "protected"),
            ("a", "docket.toml", "protected"),
            ("a", "b/c", "link, or lies below one"),
        ] {
            let out = w.call_tool(NAME, json!({"from": from, "to": to}));
            assert!(out.is_error && out.text().contains(want), "{from} {to}: {}", out.text());
        }
        assert_eq!(
            (w.read_file("a").as_str(), w.read_file("b").as_str(), w.read_file(".git/config").as_str()),
            ("1", "2", "4")
        );
    }

    #[test]
    fn move_obeys_the_limits_of_an_edit() {
        let mut w = TestWorkspace::new(&[
            ("a.txt", "def f(:\n"),
            ("bad.py", "def g(:\n"),
            ("good.txt", "x = 1\n"),
            ("pyproject.toml", "[project]\nname = \"a\"\n"),
        ]);
        w.settings.refuse_syntax_errors = true;
        for tool in [NAME, "copy_file"] {
            let out = w.call_tool(tool, json!({"from": "a.txt", "to": "a.py"}));
            assert!(out.is_error && out.text().contains("syntax"), "{tool}: {}", out.text());
        }
        for (tool, to) in [("copy_file", "one.py"), (NAME, "two.py")] {
            let out = w.call_tool(tool, json!({"from": "bad.py", "to": to}));
            assert!(!out.is_error, "it is no worse than it was: {}", out.text());
        }
        assert!(!w.call_tool(NAME, json!({"from": "good.txt", "to": "good.py"})).is_error);
        let kept = [
            (NAME, json!({"from": "pyproject.toml", "to": "old.toml"})),
            ("delete_file", json!({"path": "pyproject.toml"})),
        ];
        for (tool, args) in kept {
            let out = w.call_tool(tool, args);
            assert!(out.is_error && out.text().contains("configures the project"), "{}", out.text());
        }
        assert_eq!(w.file_names(), ["a.txt", "good.py", "one.py", "pyproject.toml", "two.py"]);
        w.settings.refuse_syntax_errors = false;
        let out = w.call_tool("copy_file", json!({"from": "a.txt", "to": "a.py"}));
        assert!(!out.is_error && out.text().contains("syntax:"), "told: {}", out.text());
    }

    #[test]
    fn limits_for_a_file_apply_to_each_file_of_a_moved_folder() {
        let mut w = TestWorkspace::new(&[
            ("lib/package.json", "{}"),
            ("lib/a", "1\n"),
            ("src/deep/read", "1\n"),
            ("src/main.tf", "2\n"),
        ]);
        for (tool, args) in [
            (NAME, json!({"from": "lib", "to": "old"})),
            ("delete_file", json!({"path": "lib", "recursive": true})),
        ] {
            let out = w.call_tool(tool, args);
            assert!(out.is_error && out.text().contains("`lib/package.json` configures"), "{}", out.text());
        }
        w.call_tool("read_file", json!({"path": "src/deep/read"}));
        let policy = "[[rules]]\nid = \"tf\"\nverdict = \"ask\"\npaths = [\"*.tf\"]\n";
        w.settings.visibility =
            PathVisibility::new(&[crate::policy::parse_policy_text(policy).expect("a policy")]);
        let calls = [
            (NAME, json!({"from": "src", "to": "new"}), "move its files one by one"),
            ("delete_file", json!({"path": "src", "recursive": true}), "delete its files one by one"),
        ];
        for (tool, args, want) in &calls {
            let out = w.call_tool(tool, args.clone());
            let told = out.text().into_owned();
            assert!(out.is_error && told.contains("`src/main.tf`") && told.contains("`tf`"), "{told}");
            assert!(told.contains(want), "{told}");
        }
        w.settings.visibility = PathVisibility::default();
        w.write_file("src/deep/read", "another's\n");
        for (tool, args, _) in &calls {
            let out = w.call_tool(tool, args.clone());
            assert!(out.is_error && out.text().contains("changed on disk"), "{}", out.text());
        }
        assert_eq!(w.file_names(), ["lib/a", "lib/package.json", "src/deep/read", "src/main.tf"]);
        w.settings.visibility = PathVisibility::for_legacy_run();
        let out = w.call_tool(NAME, json!({"from": "lib", "to": "old"}));
        assert!(!out.is_error && out.facts.read.is_empty(), "as in older logs: {}", out.text());
        w.settings.visibility = PathVisibility::default();
        w.call_tool("read_file", json!({"path": "src/deep/read"}));
        assert!(!w.call_tool(NAME, json!({"from": "src", "to": "new"})).is_error);
        let edit = json!({"path": "new/deep/read", "edits": [{"search": "another's", "replace": "mine"}]});
        assert!(!w.call_tool("edit_file", edit).is_error, "what was read stays read");
    }

    #[test]
    fn file_changed_since_it_was_read_is_not_moved() {
        let mut w = TestWorkspace::new(&[("a", "1\n")]);
        w.call_tool("read_file", json!({"path": "a"}));
        w.write_file("a", "another's\n");
        let out = w.call_tool(NAME, json!({"from": "a", "to": "b"}));
        assert!(out.is_error && out.text().contains("changed on disk"), "{}", out.text());
        assert_eq!(w.file_names(), ["a"]);
    }
}

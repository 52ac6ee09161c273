//! `delete_file`: a file, a link, or a folder and what it holds.

use docket_schema::{
    content::WorkPath,
    message::{CallId, ToolUse},
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::names;
use crate::calls::work_path;
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::{files::load, near},
};

pub(crate) const NAME: &str = "delete_file";
pub(crate) const DESCRIPTION: &str = "Deletes a file, or a folder: one that is not empty only where recursive \
    is true. Of a link only the link goes.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    /// Its path, relative to the workspace.
    path: String,
    /// Delete a folder with all that it holds.
    #[serde(default)]
    recursive: Option<bool>,
}

pub(crate) fn run(context: ToolContext<'_>, args: &Args) -> ToolOutcome {
    deleted(context, args).unwrap_or_else(|text| ToolOutcome::error(NAME, text))
}

fn deleted(context: ToolContext<'_>, args: &Args) -> Result<ToolOutcome, String> {
    let path = work_path(&args.path).map_err(|error| error.to_string())?;
    let meta = names::look(context.root, &path).map_err(|error| near::told(context.root, &error))?;
    if meta.is_dir() {
        let below = names::below(context.root, &path)?;
        let holds = below.names;
        if holds > 0 && args.recursive != Some(true) {
            return Err(format!(
                "`{path}` is a folder that holds {holds} names: say recursive to delete it with them"
            ));
        }
        let one = |path: &WorkPath| json!({ "path": path.to_string() });
        let args = json!({ "path": args.path, "recursive": true });
        let whole = ToolUse { call: CallId::own(0), name: NAME.to_owned(), args, malformed: None };
        names::go_along(context, &below, &whole, one, ("deleted", "delete"))?;
        if let Err(error) = names::remove_folder(context.root, &path) {
            // How far it came nobody knows.
            return Ok(ToolOutcome::error_midway(NAME, error.to_string()));
        }
        let mut out = ToolOutcome::ok(format!("deleted the folder {path}, {holds} names in it"));
        out.facts.may_have_changed_tree = true;
        return Ok(out);
    }
    names::stays(&path, "deleted")?;
    // Bound to what was read, where it was: somebody else's change is looked at before it goes. What nobody read is no part of
    // the proposal, and the snapshot before this call keeps it.
    if let Some(read) = context.read_set.get(&path)
        && meta.is_file()
        && load(context.root, &path).is_ok_and(|now| now.hash != *read)
    {
        return Err(format!("`{path}` changed on disk since it was read: read it again, then delete it"));
    }
    names::remove_file(context.root, &path).map_err(|error| error.to_string())?;
    let mut out = ToolOutcome::ok(format!("deleted {path}"));
    out.facts.changed.push(path);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Workspace;

    #[test]
    fn files_links_and_folders_go_and_what_links_lead_to_stays() {
        let mut w = Workspace::new(&[("a", "1"), ("d/x", "2"), ("d/e/y", "3"), ("keep/z", "4")]);
        w.link("d/out", w.path("keep"));
        w.link("l", w.path("keep/z"));
        assert_eq!(w.call(NAME, json!({"path": "a"})).text(), "deleted a");
        assert!(!w.call(NAME, json!({"path": "l"})).is_error);
        let out = w.call(NAME, json!({"path": "d"}));
        assert!(out.is_error && out.text().contains("holds 4 names"), "{}", out.text());
        let out = w.call(NAME, json!({"path": "d/", "recursive": true}));
        assert!(!out.is_error && out.facts.may_have_changed_tree, "{}", out.text());
        assert_eq!(w.names(), ["keep/z"]);
        // Again, as a recovery would on a workspace that is restored: it is told plainly.
        assert!(w.call(NAME, json!({"path": "d"})).text().contains("does not exist"));
    }

    #[test]
    fn what_is_protected_elsewhere_or_too_much_stays() {
        let mut w = Workspace::new(&[
            (".git/HEAD", "1"),
            ("sub/.git/HEAD", "2"),
            ("c/.docket/x", "3"),
            ("read", "4"),
        ]);
        w.link("out", "/etc");
        for n in 0..=names::BELOW_MAX {
            w.write(&format!("many/{n}"), "");
        }
        w.call("read_file", json!({"path": "read"}));
        w.write("read", "changed");
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
            let out = w.call(NAME, json!({"path": path, "recursive": true}));
            assert!(out.is_error && out.text().contains(want), "{path}: {}", out.text());
        }
        assert_eq!((w.read(".git/HEAD").as_str(), w.read("sub/.git/HEAD").as_str()), ("1", "2"));
    }
}

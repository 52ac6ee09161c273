//! `create_file`: creates a new file and its parent folders.

use docket_schema::{ids::BlobHash, tool::LineCounts};
use schemars::JsonSchema;
use serde::Deserialize;

use super::proposal::{FileProposal, check_content};
use crate::calls::parse_workspace_path;
use crate::{
    project::config_files::is_config_file,
    tools::{
        context::tool_context::{ToolContext, ToolOutcome},
        file_access::files::{FileError, load_file},
    },
};

pub(crate) const NAME: &str = "create_file";
pub(crate) const DESCRIPTION: &str = "Makes a new file with the given content, and the folders above it. Fails where \
    the file exists: edit_file changes files.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CreateFileArgs {
    /// Path of the new file, relative to the workspace.
    path: String,
    /// The whole content.
    content: String,
}

pub(crate) async fn run(context: ToolContext<'_>, args: CreateFileArgs) -> ToolOutcome {
    let fail = |text: String| ToolOutcome::error(NAME, text);
    let path = match parse_workspace_path(&args.path) {
        Ok(path) => path,
        Err(error) => return fail(error.to_string()),
    };
    if args.path.ends_with('/') {
        return fail(format!("`{}` names a folder: folders are made with the files in them", args.path));
    }
    if let Err(text) = check_content("content", &args.path, &args.content, "Nothing was made") {
        return fail(text);
    }
    let proposal = FileProposal::for_new_file(context, path);
    let remark = match proposal.dry_run(None, args.content.as_bytes()).await {
        Ok(remark) => remark,
        Err(text) => return fail(text),
    };
    let done = proposal.commit(args.content.as_bytes());
    let path = proposal.path;
    match done {
        Ok(()) => {
            let lines = args.content.lines().count();
            let mut out = ToolOutcome::ok(
                format!("created {path} ({lines} lines, {} bytes)\n{remark}", args.content.len()).trim_end(),
            );
            out.facts.lines =
                Some(LineCounts { added: u32::try_from(lines).unwrap_or(u32::MAX), removed: 0 });
            out.facts.changed.push(path.clone());
            out.with_seen_file(path, BlobHash::hash_bytes(args.content.as_bytes()))
        }
        Err(FileError::Exists(path))
            if load_file(context.root, &path).is_ok_and(|file| file.bytes.trim_ascii().is_empty()) =>
        {
            fail(format!(
                "`{path}` exists already and is empty: read it, then fill it with edit_file, with an empty search"
            ))
        }
        Err(FileError::Exists(path)) if is_config_file(&path) => fail(format!(
            "`{path}` exists already and configures the project, so it is never replaced whole: read it, then \
             change the lines in question with edit_file"
        )),
        Err(FileError::Exists(path)) => {
            fail(format!("`{path}` exists already: read it, then change it with edit_file"))
        }
        Err(error) => fail(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn redaction_marks_are_not_written_back() {
        let mut w = TestWorkspace::new(&[]);
        let out = w.call_tool(NAME, json!({"path": "a.env", "content": "KEY=[REDACTED: AWS key]\n"}));
        assert!(out.is_error && out.text().contains("stands for a secret"), "{}", out.text());
        assert!(out.facts.changed.is_empty());
    }

    #[test]
    fn file_is_created_once() {
        let mut w = TestWorkspace::new(&[]);
        let args = json!({"path": "src/deep/a.rs", "content": "fn a() {}\n"});
        let out = w.call_tool(NAME, args.clone());
        assert_eq!(out.text(), "created src/deep/a.rs (1 lines, 10 bytes)");
        assert_eq!((w.read_file("src/deep/a.rs").as_str(), out.facts.changed.len()), ("fn a() {}\n", 1));
        let again = w.call_tool(NAME, args);
        assert!(again.is_error && again.text().contains("edit_file"), "{}", again.text());
        // A file created by a call can be edited without reading it first.
        let edit = json!({"path": "src/deep/a.rs", "edits": [{"search": "fn a", "replace": "fn b"}]});
        assert!(!w.call_tool("edit_file", edit).is_error);
    }

    #[test]
    fn wrapper_markup_is_not_written_into_a_new_file() {
        let mut w = TestWorkspace::new(&[]);
        for content in
            ["```python\nx = 1\n```\n", "     1| x = 1\n     2| y = 2\n", "# ... existing code ...\n"]
        {
            let out = w.call_tool(NAME, json!({"path": "a.py", "content": content}));
            assert!(out.is_error && out.text().contains("Nothing was made"), "{}", out.text());
        }
        assert!(w.file_names().is_empty());
    }

    #[test]
    fn empty_file_is_filled_by_an_edit() {
        let mut w = TestWorkspace::new(&[("a.py", ""), ("b.py", "\n")]);
        for path in ["a.py", "b.py"] {
            let out = w.call_tool(NAME, json!({"path": path, "content": "x = 1\n"}));
            assert!(out.is_error && out.text().contains("with an empty search"), "{}", out.text());
            w.call_tool("read_file", json!({"path": path}));
        }
        let out = w
            .call_tool("edit_file", json!({"path": "a.py", "edits": [{"search": "", "replace": "x = 1\n"}]}));
        assert!(!out.is_error, "{}", out.text());
        let out = w.call_tool("edit_file", json!({"path": "b.py", "patch": "@@ -0,0 +1 @@\n+x = 1\n"}));
        assert!(!out.is_error, "{}", out.text());
        assert_eq!((w.read_file("a.py").as_str(), w.read_file("b.py").as_str()), ("x = 1\n", "x = 1\n"));
    }

    #[test]
    fn unparsable_new_file_is_reported_or_refused() {
        let mut w = TestWorkspace::new(&[]);
        let out = w.call_tool(NAME, json!({"path": "a.json", "content": "{\n  \"a\": [1, 2\n}\n"}));
        assert!(
            !out.is_error && out.text().contains("\nsyntax: the file has 1 error (JSON), at line "),
            "{}",
            out.text()
        );
        w.settings.refuse_syntax_errors = true;
        let out = w.call_tool(NAME, json!({"path": "b.rs", "content": "fn a( {}\n"}));
        assert!(
            out.is_error && out.text().contains("Nothing was made: syntax: the file would have"),
            "{}",
            out.text()
        );
        assert_eq!(w.file_names(), ["a.json"]);
    }

    #[test]
    fn existing_file_is_never_replaced() {
        let mut w = TestWorkspace::new(&[("package.json", "{}\n"), ("file", "x")]);
        w.create_link("dangling", "nowhere");
        for (path, want) in [
            ("package.json", "configures the project"),
            ("dangling", "exists already"),
            ("file/below", "symbolic link, or lies below one"),
            (".git/hooks/pre-commit", "protected"),
            ("../out", "not a path in the workspace"),
            ("folder/", "names a folder"),
        ] {
            let out = w.call_tool(NAME, json!({"path": path, "content": "y"}));
            assert!(out.is_error && out.text().contains(want), "{path}: {}", out.text());
        }
        assert_eq!(w.file_names().len(), 2 + usize::from(w.full_path("dangling").symlink_metadata().is_ok()));
    }
}

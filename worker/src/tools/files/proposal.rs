//! Transaction by which file tools change a file (E9): a proposal bound to the hash of the old content, its dry run,
//! and an atomic commit that refuses if the file has changed since the proposal.
//!
//! Every tool that writes a file's bytes uses it, so that all of them refuse the same changes.

use docket_schema::{content::WorkspacePath, redact};

use crate::{
    project::config_files::{is_config_file, is_full_replacement},
    tools::{
        checks::syntax_check,
        context::tool_context::ToolContext,
        file_access::{
            files::{FileError, LoadedFile, create_file, load_file, replace_file},
            path_suggestions,
        },
    },
};
use docket_edit::new_file_markup_reason;

/// Largest file that a model may write in one call, in bytes.
pub(crate) const CONTENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// A change of a file that a call proposes.
pub(crate) struct FileProposal<'a> {
    context: ToolContext<'a>,
    pub(crate) path: WorkspacePath,
    /// The file it is bound to; `None` if it creates a new one.
    old_file: Option<LoadedFile>,
}

impl<'a> FileProposal<'a> {
    /// Proposes a new file.
    pub(crate) const fn for_new_file(context: ToolContext<'a>, path: WorkspacePath) -> Self {
        Self { context, path, old_file: None }
    }

    /// Proposes a change of a file that this run has read and that is unchanged since (A10).
    ///
    /// # Errors
    /// Returns the refusal for the model.
    pub(crate) fn for_read_file(context: ToolContext<'a>, path: WorkspacePath) -> Result<Self, String> {
        let loaded = load_file(context.root, &path)
            .map_err(|error| path_suggestions::format_file_error(context.root, &error))?;
        match context.read_set.get(&path) {
            None => Err(format!("`{path}` was not read in this run: read it with read_file, then edit it")),
            Some(hash) if *hash != loaded.hash => {
                Err(format!("`{path}` changed on disk since it was read: read it again, then edit it"))
            }
            Some(_) => Ok(Self { context, path, old_file: Some(loaded) }),
        }
    }

    /// The file's current bytes; empty for a new file.
    pub(crate) fn old_bytes(&self) -> &[u8] {
        self.old_file.as_ref().map_or(&[], |old| &old.bytes)
    }

    /// Checks whether `after` may replace `before`, both as text: that enough of a configuration file is kept, and
    /// what the syntax check says. Returns the remark for the model: one line with its newline, or nothing.
    ///
    /// # Errors
    /// Returns the refusal for the model.
    pub(crate) async fn dry_run(&self, before: Option<&[u8]>, after: &[u8]) -> Result<String, String> {
        let path = &self.path;
        if let Some(before) = before
            && is_config_file(path)
            && is_full_replacement(before, after)
        {
            return Err(format!(
                "`{path}` configures the project and is not replaced whole: change the lines in question"
            ));
        }
        syntax_check::check_edit_syntax(self.context, path, before, after).await
    }

    /// Writes `bytes` as the whole file.
    ///
    /// # Errors
    /// Returns a [`FileError`] and leaves the file unchanged; [`FileError::Raced`] if the file has changed since.
    pub(crate) fn commit(&self, bytes: &[u8]) -> Result<(), FileError> {
        match &self.old_file {
            Some(old) => replace_file(self.context.root, &self.path, old, bytes),
            None => create_file(self.context.root, &self.path, bytes),
        }
    }
}

/// Refuses text that does not belong in a file: too much of it, redaction marks, and the frames in which models see
/// files. `field` is the argument it came in, `given` the path as the model wrote it.
///
/// # Errors
/// Returns the refusal for the model.
pub(crate) fn check_content(field: &str, given: &str, content: &str, undone: &str) -> Result<(), String> {
    if content.len() > CONTENT_BYTES_MAX {
        return Err(format!("`{field}` has {} bytes, more than {CONTENT_BYTES_MAX}", content.len()));
    }
    if redact::has_redaction(content) {
        return Err(format!(
            "`{field}` holds a mark that stands for a secret you were not shown. Leave that value out, or let the \
             program read it from its environment"
        ));
    }
    new_file_markup_reason(given, content).map_or(Ok(()), |why| Err(format!("{undone}: {why}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::tools::testing::TestWorkspace;

    const GOOD: &str = "def f():\n    return 1\n";
    const CONFIG: &str =
        "[project]\nname = \"a\"\nversion = \"1\"\ndependencies = []\n\n[tool.ruff]\nline-length = 99\n";

    /// The tools that change a file's bytes, each with a call that makes `line` its last line.
    fn calls(path: &str, old: &str, line: &str) -> Vec<(&'static str, Value)> {
        let last = old.trim_end().lines().last().unwrap_or_default();
        let whole = old.replace(last, line);
        vec![
            ("edit_file", json!({ "path": path, "edits": [{ "search": last, "replace": line }] })),
            ("write_file", json!({ "path": path, "content": whole })),
            ("append_file", json!({ "path": path, "content": format!("{line}\n") })),
        ]
    }

    #[test]
    fn no_tool_writes_a_file_that_changed_since_it_was_read() {
        for (tool, args) in calls("a.py", GOOD, "    return 2") {
            let mut w = TestWorkspace::new(&[("a.py", GOOD)]);
            let out = w.call_tool(tool, args.clone());
            assert!(
                out.is_error && out.text().contains("was not read in this run"),
                "{tool}: {}",
                out.text()
            );
            w.call_tool("read_file", json!({ "path": "a.py" }));
            let theirs = format!("# theirs\n{GOOD}");
            w.write_file("a.py", &theirs);
            let out = w.call_tool(tool, args.clone());
            assert!(out.is_error && out.text().contains("changed on disk"), "{tool}: {}", out.text());
            assert!(w.read_file("a.py") == theirs && w.file_names() == ["a.py"], "{tool} left something");
            w.call_tool("read_file", json!({ "path": "a.py" }));
            assert!(!w.call_tool(tool, args).is_error, "{tool}");
        }
    }

    #[test]
    fn change_refused_by_the_dry_run_is_not_committed() {
        for (tool, args) in calls("a.py", GOOD, "    return (") {
            let mut w = TestWorkspace::new(&[("a.py", GOOD)]);
            w.settings.refuse_syntax_errors = true;
            w.call_tool("read_file", json!({ "path": "a.py" }));
            let out = w.call_tool(tool, args);
            assert!(out.is_error && w.read_file("a.py") == GOOD, "{tool}: {}", out.text());
        }
        let mut w = TestWorkspace::new(&[]);
        w.settings.refuse_syntax_errors = true;
        let new = json!({ "path": "b.py", "content": "def f(:\n" });
        for tool in ["create_file", "write_file"] {
            let out = w.call_tool(tool, new.clone());
            assert!(out.is_error && w.file_names().is_empty(), "{tool}: {}", out.text());
        }
        let mut w = TestWorkspace::new(&[("pyproject.toml", CONFIG)]);
        w.call_tool("read_file", json!({ "path": "pyproject.toml" }));
        let edits = json!([{ "search": CONFIG, "replace": "[project]\nname = \"b\"\n" }]);
        for (tool, args) in [
            ("write_file", json!({ "path": "pyproject.toml", "content": "[project]\nname = \"b\"\n" })),
            ("edit_file", json!({ "path": "pyproject.toml", "edits": edits })),
        ] {
            let out = w.call_tool(tool, args);
            assert!(out.is_error && w.read_file("pyproject.toml") == CONFIG, "{tool}: {}", out.text());
        }
    }

    #[test]
    fn repeated_change_is_a_no_op() {
        for (tool, args) in calls("a.py", GOOD, "    return 2").into_iter().take(2) {
            let mut w = TestWorkspace::new(&[("a.py", GOOD)]);
            w.call_tool("read_file", json!({ "path": "a.py" }));
            assert_eq!(w.call_tool(tool, args.clone()).facts.changed.len(), 1, "{tool}");
            let once = w.read_file("a.py");
            let again = w.call_tool(tool, args);
            assert!(
                again.facts.changed.is_empty() && w.read_file("a.py") == once,
                "{tool}: {}",
                again.text()
            );
        }
        let mut w = TestWorkspace::new(&[]);
        let new = json!({ "path": "b.py", "content": GOOD });
        assert!(!w.call_tool("create_file", new.clone()).is_error);
        assert!(
            w.call_tool("create_file", new).is_error
                && w.read_file("b.py") == GOOD
                && w.file_names() == ["b.py"]
        );
    }
}

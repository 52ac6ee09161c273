//! The one way in which file tools change a file (E9): a proposal, bound to the hash of what it changes; its dry run;
//! its commit, atomic, which refuses where the file is no longer what the proposal was made for.
//!
//! Every tool that writes a file's bytes goes through here, so that what is refused to one is refused to all.

use docket_schema::{content::WorkPath, redact};

use crate::{
    project::config_files::{is_config, is_replaced_whole},
    tools::{
        checks::gate,
        context::tool_context::ToolContext,
        file_access::{
            files::{FileError, Loaded, create, load, replace},
            near,
        },
    },
};
use docket_edit::framed;

/// Largest file that a model may write in one call, in bytes.
pub(crate) const CONTENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// What a call is about to make of a file.
pub(crate) struct Proposal<'a> {
    context: ToolContext<'a>,
    pub(crate) path: WorkPath,
    /// The file it is bound to; none where it makes a new one.
    old: Option<Loaded>,
}

impl<'a> Proposal<'a> {
    /// A new file.
    pub(crate) const fn new_file(context: ToolContext<'a>, path: WorkPath) -> Self {
        Self { context, path, old: None }
    }

    /// A change of a file that this run has read and that is still what it read (A10).
    ///
    /// # Errors
    /// The refusal, for the model.
    pub(crate) fn of_read(context: ToolContext<'a>, path: WorkPath) -> Result<Self, String> {
        let loaded = load(context.root, &path).map_err(|error| near::told(context.root, &error))?;
        match context.read_set.get(&path) {
            None => Err(format!("`{path}` was not read in this run: read it with read_file, then edit it")),
            Some(hash) if *hash != loaded.hash => {
                Err(format!("`{path}` changed on disk since it was read: read it again, then edit it"))
            }
            Some(_) => Ok(Self { context, path, old: Some(loaded) }),
        }
    }

    /// The file's bytes; none of a new one.
    pub(crate) fn old(&self) -> &[u8] {
        self.old.as_ref().map_or(&[], |old| &old.bytes)
    }

    /// Says whether `after` may stand in place of `before`, both as text: whether it leaves of a configuration what it
    /// must, and what the language's grammar says. Gives the remark for the model, a line with its break or nothing.
    ///
    /// # Errors
    /// The refusal, for the model.
    pub(crate) async fn dry_run(&self, before: Option<&[u8]>, after: &[u8]) -> Result<String, String> {
        let path = &self.path;
        if let Some(before) = before
            && is_config(path)
            && is_replaced_whole(before, after)
        {
            return Err(format!(
                "`{path}` configures the project and is not replaced whole: change the lines in question"
            ));
        }
        gate::syntax(self.context, path, before, after).await
    }

    /// Writes `bytes` as the whole file.
    ///
    /// # Errors
    /// [`FileError`]: nothing is changed then; [`FileError::Raced`] where the file is another by now.
    pub(crate) fn commit(&self, bytes: &[u8]) -> Result<(), FileError> {
        match &self.old {
            Some(old) => replace(self.context.root, &self.path, old, bytes),
            None => create(self.context.root, &self.path, bytes),
        }
    }
}

/// Refuses text that no file is to hold: too much of it, marks of secrets, and the frames in which models are shown
/// files. `field` is the argument it came in, `given` the path as the model wrote it.
///
/// # Errors
/// The refusal, for the model.
pub(crate) fn check_content(field: &str, given: &str, content: &str, undone: &str) -> Result<(), String> {
    if content.len() > CONTENT_BYTES_MAX {
        return Err(format!("`{field}` has {} bytes, more than {CONTENT_BYTES_MAX}", content.len()));
    }
    if redact::holds_mark(content) {
        return Err(format!(
            "`{field}` holds a mark that stands for a secret you were not shown. Leave that value out, or let the \
             program read it from its environment"
        ));
    }
    framed(given, content).map_or(Ok(()), |why| Err(format!("{undone}: {why}")))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::tools::testing::Workspace;

    const GOOD: &str = "def f():\n    return 1\n";
    const CONFIG: &str =
        "[project]\nname = \"a\"\nversion = \"1\"\ndependencies = []\n\n[tool.ruff]\nline-length = 99\n";

    /// The tools that give a file other bytes, each with a call that makes `line` of the file's last one.
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
    fn no_tool_writes_a_file_that_is_not_the_one_it_was_read_as() {
        for (tool, args) in calls("a.py", GOOD, "    return 2") {
            let mut w = Workspace::new(&[("a.py", GOOD)]);
            let out = w.call(tool, args.clone());
            assert!(
                out.is_error && out.text().contains("was not read in this run"),
                "{tool}: {}",
                out.text()
            );
            w.call("read_file", json!({ "path": "a.py" }));
            let theirs = format!("# theirs\n{GOOD}");
            w.write("a.py", &theirs);
            let out = w.call(tool, args.clone());
            assert!(out.is_error && out.text().contains("changed on disk"), "{tool}: {}", out.text());
            assert!(w.read("a.py") == theirs && w.names() == ["a.py"], "{tool} left something");
            w.call("read_file", json!({ "path": "a.py" }));
            assert!(!w.call(tool, args).is_error, "{tool}");
        }
    }

    #[test]
    fn what_its_dry_run_refuses_no_tool_commits() {
        for (tool, args) in calls("a.py", GOOD, "    return (") {
            let mut w = Workspace::new(&[("a.py", GOOD)]);
            w.settings.refuse_syntax_errors = true;
            w.call("read_file", json!({ "path": "a.py" }));
            let out = w.call(tool, args);
            assert!(out.is_error && w.read("a.py") == GOOD, "{tool}: {}", out.text());
        }
        let mut w = Workspace::new(&[]);
        w.settings.refuse_syntax_errors = true;
        let new = json!({ "path": "b.py", "content": "def f(:\n" });
        for tool in ["create_file", "write_file"] {
            let out = w.call(tool, new.clone());
            assert!(out.is_error && w.names().is_empty(), "{tool}: {}", out.text());
        }
        let mut w = Workspace::new(&[("pyproject.toml", CONFIG)]);
        w.call("read_file", json!({ "path": "pyproject.toml" }));
        let edits = json!([{ "search": CONFIG, "replace": "[project]\nname = \"b\"\n" }]);
        for (tool, args) in [
            ("write_file", json!({ "path": "pyproject.toml", "content": "[project]\nname = \"b\"\n" })),
            ("edit_file", json!({ "path": "pyproject.toml", "edits": edits })),
        ] {
            let out = w.call(tool, args);
            assert!(out.is_error && w.read("pyproject.toml") == CONFIG, "{tool}: {}", out.text());
        }
    }

    #[test]
    fn a_change_that_is_made_already_is_no_second_one() {
        for (tool, args) in calls("a.py", GOOD, "    return 2").into_iter().take(2) {
            let mut w = Workspace::new(&[("a.py", GOOD)]);
            w.call("read_file", json!({ "path": "a.py" }));
            assert_eq!(w.call(tool, args.clone()).facts.changed.len(), 1, "{tool}");
            let once = w.read("a.py");
            let again = w.call(tool, args);
            assert!(again.facts.changed.is_empty() && w.read("a.py") == once, "{tool}: {}", again.text());
        }
        let mut w = Workspace::new(&[]);
        let new = json!({ "path": "b.py", "content": GOOD });
        assert!(!w.call("create_file", new.clone()).is_error);
        assert!(w.call("create_file", new).is_error && w.read("b.py") == GOOD && w.names() == ["b.py"]);
    }
}

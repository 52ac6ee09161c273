//! `show_file`: a file as it is, for a role that changes it. The runtime calls it; no model is told of it.

use docket_schema::ids::BlobHash;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    context::{ToolContext, ToolOutcome},
    encoding::{Held, held},
    files::{FileError, load, work_path},
    near,
};

/// The name.
pub const NAME: &str = "show_file";
pub(super) const DESCRIPTION: &str = "Shows a file as it is.";
/// What is answered where there is no such file, which is no error: it is to be made.
pub const NOT_THERE: &str = "(there is no such file yet)";

/// Most of a file that is shown, in bytes: what a request can hold.
const BYTES_MAX: usize = 400 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Path of the file, relative to the workspace.
    path: String,
    /// Most bytes to show.
    bytes_max: Option<usize>,
}

pub(super) fn run(context: ToolContext<'_>, args: &Args) -> ToolOutcome {
    show(context, args).unwrap_or_else(|text| ToolOutcome::error(NAME, text))
}

fn show(context: ToolContext<'_>, args: &Args) -> Result<ToolOutcome, String> {
    let path = work_path(&args.path).map_err(|error| error.to_string())?;
    let loaded = match load(context.root, &path) {
        Ok(loaded) => loaded,
        Err(FileError::Missing(_)) => return Ok(ToolOutcome::ok(NOT_THERE)),
        Err(error) => return Err(near::told(context.root, &error)),
    };
    let text = match held(&loaded.bytes) {
        Held::Text(text, _) => text.into_owned(),
        Held::Data(kind) => {
            return Err(format!("`{path}` is {kind}: it is no text that a patch could change"));
        }
    };
    let most = args.bytes_max.unwrap_or(BYTES_MAX).min(BYTES_MAX);
    if text.len() > most {
        return Err(format!(
            "`{path}` has {} bytes, more than the {most} that can be shown whole",
            text.len()
        ));
    }
    Ok(ToolOutcome::ok(text).seen(path, BlobHash::of(&loaded.bytes)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::testing::Workspace, *};

    #[test]
    fn a_file_is_shown_as_it_is_and_counts_as_read() {
        let mut w = Workspace::new(&[("a.py", "x = 1\n"), ("b.bin", "\0\u{1}\u{2}")]);
        assert_eq!(w.call(NAME, json!({"path": "a.py"})).text(), "x = 1\n");
        let edit = json!({"path": "a.py", "edits": [{"search": "x = 1", "replace": "x = 2"}]});
        assert!(!w.call("edit_file", edit).is_error);
        let none = w.call(NAME, json!({"path": "none.py"}));
        assert_eq!((none.text().as_ref(), none.is_error), (NOT_THERE, false));
        for (args, why) in [
            (json!({"path": "a.py", "bytes_max": 3}), "more than the 3"),
            (json!({"path": "b.bin"}), "no text"),
            (json!({"path": "../a"}), ""),
        ] {
            let out = w.call(NAME, args);
            assert!(out.is_error && out.text().contains(why), "{}", out.text());
        }
    }
}

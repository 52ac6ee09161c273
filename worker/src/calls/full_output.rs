//! Whole outputs of earlier calls: a result that shows a part names where the rest is, and `read_file` shows it.
//!
//! No file: nothing in the workspace, so no snapshot holds it and no command can change what was recorded.

use std::collections::BTreeMap;

use bytes::Bytes;
use docket_schema::message::{CallId, ToolUse};

/// What a path begins with that means the whole output of a call.
const OUTPUT_PATH_PREFIX: &str = "output:";

/// The whole outputs that a batch of calls asks for, by the call that put them out, or why one is not at hand.
pub type FullOutputs = BTreeMap<CallId, Result<Bytes, String>>;

/// The call whose whole output a path means.
pub(crate) fn parse_output_path(path: &str) -> Option<CallId> {
    path.trim().strip_prefix(OUTPUT_PATH_PREFIX).map(|call| CallId(call.trim().to_owned()))
}

/// The call that a reference means, with or without what a path to its output begins with.
pub(crate) fn parse_call_reference(reference: &str) -> CallId {
    parse_output_path(reference).unwrap_or_else(|| CallId(reference.trim().to_owned()))
}

/// The call whose whole output `tool` wants to read.
#[must_use]
pub fn requested_full_output(tool: &ToolUse) -> Option<CallId> {
    if tool.name == "read_output" {
        return tool.args.get("call").and_then(|call| call.as_str()).map(parse_call_reference);
    }
    let path = tool.args.get("path").filter(|_| tool.name == "read_file")?;
    parse_output_path(path.as_str()?)
}

/// What a result that shows a part of `full` says at its end; nothing where there is nothing to show.
#[must_use]
pub fn full_output_note(call: &CallId, full: &[u8]) -> String {
    let lines = String::from_utf8_lossy(full).lines().count();
    if lines == 0 {
        return String::new();
    }
    format!(
        "\n[whole output: {lines} lines; read_file shows them, with the path `{OUTPUT_PATH_PREFIX}{call}`]\n"
    )
}

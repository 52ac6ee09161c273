//! Full outputs of earlier calls: a shortened result names the path of the full output, and `read_file` shows it.
//!
//! The path is not a file: it lies outside the workspace, so no snapshot contains it and no command can change what
//! was recorded.

use std::collections::BTreeMap;

use bytes::Bytes;
use docket_schema::message::{CallId, ToolUse};

/// Prefix of paths that refer to the full output of a call.
const OUTPUT_PATH_PREFIX: &str = "output:";

/// The full outputs requested by a batch of calls, by the call that produced them, or why one is unavailable.
pub type FullOutputs = BTreeMap<CallId, Result<Bytes, String>>;

/// Returns the call whose full output a path refers to.
pub(crate) fn parse_output_path(path: &str) -> Option<CallId> {
    path.trim().strip_prefix(OUTPUT_PATH_PREFIX).map(|call| CallId(call.trim().to_owned()))
}

/// Returns the call that a reference names, with or without the prefix of output paths.
pub(crate) fn parse_call_reference(reference: &str) -> CallId {
    parse_output_path(reference).unwrap_or_else(|| CallId(reference.trim().to_owned()))
}

/// Returns the call whose full output `tool` wants to read.
#[must_use]
pub fn requested_full_output(tool: &ToolUse) -> Option<CallId> {
    if tool.name == "read_output" {
        return tool.args.get("call").and_then(|call| call.as_str()).map(parse_call_reference);
    }
    let path = tool.args.get("path").filter(|_| tool.name == "read_file")?;
    parse_output_path(path.as_str()?)
}

/// Returns the note at the end of a result that shows a part of `full`; empty if there is nothing to read.
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

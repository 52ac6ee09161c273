//! `memory_save`: stores a value beyond the run.

use docket_schema::{
    api::{MemoryOperation, RunMemoryResponse},
    system::{MEMORY_KEY_CHARS_MAX, MEMORY_VALUE_BYTES_MAX, is_memory_key},
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::context::tool_context::{ToolContext, ToolOutcome},
    memory_request::{MemoryScope, send_request, unexpected_response},
};

pub(in super::super) const NAME: &str = "memory_save";
pub(in super::super) const DESCRIPTION: &str = "Remembers a text under a key, for later runs on the same repository or \
    in the same queue; what the key held before is forgotten. Secrets are struck out.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct MemorySaveArgs {
    /// A short name, one line of at most 128 characters, as build/how-to-test.
    key: String,
    /// What is remembered, at most 16 KiB.
    value: String,
    /// Who shares it: runs on this repository (the default), or runs of this queue.
    #[serde(default)]
    scope: Option<MemoryScope>,
}

pub(in super::super) async fn run(context: ToolContext<'_>, args: MemorySaveArgs) -> ToolOutcome {
    let MemorySaveArgs { key, value, scope } = args;
    // Rejected here as the coordinator would reject it, without a request.
    if !is_memory_key(&key) {
        return ToolOutcome::error(
            NAME,
            format!(
                "`key` must be one line of 1 to {MEMORY_KEY_CHARS_MAX} characters, without spaces at its ends"
            ),
        );
    }
    let redactor = &context.settings.redactor;
    if redactor.redact_text(&key) != key {
        return ToolOutcome::error(NAME, "`key` holds a secret: call it otherwise");
    }
    let value = redactor.redact_text(&value).into_owned();
    if value.len() > MEMORY_VALUE_BYTES_MAX {
        let text =
            format!("`value` has {} bytes, more than {MEMORY_VALUE_BYTES_MAX}: say it shorter", value.len());
        return ToolOutcome::error(NAME, text);
    }
    let act = MemoryOperation::Save { key: key.clone(), value };
    send_request(context, NAME, scope, act, |answer| match answer {
        RunMemoryResponse::Saved { keys } => Ok(format!("remembered under `{key}`; {keys} keys are kept")),
        other => unexpected_response(other),
    })
    .await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::super::testing::TestWorkspace, *};

    /// Invalid calls are rejected before any request to the coordinator; valid ones are tested with a real
    /// coordinator (`tests/it/tool_set.rs`).
    #[test]
    fn invalid_keys_and_values_are_rejected_at_once() {
        let mut w = TestWorkspace::new(&[]);
        let secret = concat!("AKIA", "IOSFODNN7", "EXAMPLE");
        for (args, want) in [
            (json!({"key": "", "value": "v"}), "one line of 1 to 128 characters"),
            (json!({"key": "a\nb", "value": "v"}), "one line of 1 to 128 characters"),
            (json!({"key": "k".repeat(129), "value": "v"}), "one line of 1 to 128 characters"),
            (json!({"key": secret, "value": "v"}), "holds a secret"),
            (json!({"key": "k", "value": "x".repeat(MEMORY_VALUE_BYTES_MAX + 1)}), "more than 16384"),
            (json!({"key": "k", "value": "v", "scope": "everybody"}), "bad arguments"),
            (json!({"key": "k"}), "`value`"),
            (json!({"key": "k", "value": "v"}), "there is no memory here"),
        ] {
            let out = w.call_tool(NAME, args.clone());
            assert!(out.is_error && out.text().contains(want), "{args}: {}", out.text());
        }
        for tool in ["memory_recall", "memory_delete"] {
            let out = w.call_tool(tool, json!({"key": "k"}));
            assert!(out.is_error && out.text().contains("there is no memory here"), "{}", out.text());
        }
    }
}

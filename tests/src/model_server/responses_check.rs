//! Refuses what OpenAI Responses refuses if nothing is stored. Pure.

use std::collections::BTreeSet;

use docket_worker::model::thinking_signature;
use serde_json::{Map, Value};

use super::request_check::{
    CheckResult, check_effort, check_envelope, refuse, reject_unknown_fields, require_list, require_name,
    require_text,
};

const ENCRYPTED_REASONING: &str = "reasoning.encrypted_content";

/// Checks a body for OpenAI Responses without server-side state.
pub(super) fn check_responses(body: &Value) -> CheckResult {
    let known = [
        "model",
        "instructions",
        "input",
        "tools",
        "temperature",
        "reasoning",
        "max_output_tokens",
        "include",
        "store",
        "stream",
    ];
    check_envelope(body, &known)?;
    check_effort(&body["reasoning"]["effort"], "reasoning.effort")?;
    if body["store"] != false {
        return refuse("store: this organization keeps nothing; it must be false");
    }
    if body["max_output_tokens"].as_u64().is_none_or(|tokens| tokens < 16) {
        return refuse("max_output_tokens: must be at least 16");
    }
    if !body["instructions"].is_null() {
        require_text(&body["instructions"], "instructions")?;
    }
    let includes = body["include"].as_array().map(Vec::as_slice).unwrap_or_default();
    if includes.iter().any(|include| include != ENCRYPTED_REASONING) {
        return refuse("include: unknown value");
    }
    if !includes.is_empty() && body["model"].as_str().is_some_and(|model| model.starts_with("gpt-4")) {
        return refuse("include: encrypted content is not supported with this model");
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        require_name(&tool["name"], "tools.name")?;
        reject_unknown_fields(
            require_object(tool, "tools")?,
            &["type", "name", "description", "parameters", "strict"],
            "tools.",
        )?;
        if tool["type"] != "function" || tool["parameters"]["type"] != "object" {
            return refuse("tools: must be functions with parameters of type object");
        }
        if tool["strict"] != false {
            return refuse("tools.parameters: 'additionalProperties' is required to be false where strict");
        }
    }
    check_items(require_list(&body["input"], "input")?)
}

fn check_items(input: &[Value]) -> CheckResult {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    // Reasoning precedes the items it led to.
    let mut reasoned = false;
    for (index, item) in input.iter().enumerate() {
        let at = format!("input[{index}]");
        let kind = item["type"].as_str().unwrap_or_default();
        let of_model = kind == "function_call" || item["role"] == "assistant" || kind == "reasoning";
        if reasoned && !of_model {
            return refuse(format!("{at}: an item of type 'reasoning' without its required following item"));
        }
        reasoned = kind == "reasoning";
        match kind {
            "message" => check_message(item, &at, &open)?,
            "reasoning" => check_reasoning(item, &at)?,
            "function_call" => {
                reject_unknown_fields(
                    require_object(item, &at)?,
                    &["type", "call_id", "name", "arguments"],
                    &format!("{at}."),
                )?;
                require_name(&item["call_id"], &format!("{at}.call_id"))?;
                require_name(&item["name"], &format!("{at}.name"))?;
                let arguments = item["arguments"].as_str().unwrap_or_default();
                if serde_json::from_str::<Map<String, Value>>(arguments).is_err() {
                    return refuse(format!("{at}.arguments: must be a JSON object"));
                }
                let id = item["call_id"].as_str().unwrap_or_default();
                if !used.insert(id) {
                    return refuse(format!("{at}: call_id {id} stands twice"));
                }
                open.insert(id);
            }
            "function_call_output" => {
                reject_unknown_fields(
                    require_object(item, &at)?,
                    &["type", "call_id", "output"],
                    &format!("{at}."),
                )?;
                require_text(&item["output"], &at)?;
                let id = item["call_id"].as_str().unwrap_or_default();
                if !open.remove(id) {
                    return refuse(format!("{at}: no tool call found for function call output {id}"));
                }
            }
            _ => return refuse(format!("{at}.type: unknown")),
        }
    }
    if reasoned {
        return refuse("an item of type 'reasoning' without its required following item");
    }
    if !open.is_empty() {
        return refuse(format!("no tool output found for function call {open:?}"));
    }
    let first = input.first().is_some_and(|item| item["role"] == "user");
    let last =
        input.last().is_some_and(|item| item["role"] == "user" || item["type"] == "function_call_output");
    // The protocol accepts more than this, but docket never sends it.
    if first && last { Ok(()) } else { refuse("input: must begin and end with the user's side") }
}

fn check_message(item: &Value, at: &str, open: &BTreeSet<&str>) -> CheckResult {
    reject_unknown_fields(require_object(item, at)?, &["type", "role", "content"], &format!("{at}."))?;
    let kind = match item["role"].as_str() {
        Some("user") if !open.is_empty() => {
            return refuse(format!("{at}: no tool output found for function call {open:?}"));
        }
        Some("user") => "input_text",
        Some("assistant") => "output_text",
        _ => return refuse(format!("{at}.role: must be user or assistant")),
    };
    for piece in require_list(&item["content"], &format!("{at}.content"))? {
        if piece["type"] != kind {
            return refuse(format!("{at}.content: must be of type {kind}"));
        }
        require_text(&piece["text"], at)?;
    }
    Ok(())
}

fn check_reasoning(item: &Value, at: &str) -> CheckResult {
    let fields = require_object(item, at)?;
    if fields.contains_key("id") {
        return refuse(format!("{at}: item with id {} not found; items are not persisted", item["id"]));
    }
    reject_unknown_fields(fields, &["type", "summary", "encrypted_content"], &format!("{at}."))?;
    let Some(summary) = item["summary"].as_array() else {
        return refuse(format!("{at}.summary: missing required parameter"));
    };
    let text: String = summary.iter().filter_map(|piece| piece["text"].as_str()).collect();
    if item["encrypted_content"] != thinking_signature(&text) {
        return refuse(format!("{at}: the encrypted content could not be verified"));
    }
    Ok(())
}

fn require_object<'a>(value: &'a Value, at: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{at}: must be an object"))
}

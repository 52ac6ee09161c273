//! What OpenAI Responses refuses where nothing is stored, refused here as well. Pure.

use std::collections::BTreeSet;

use docket_worker::model::thinking_signature;
use serde_json::{Map, Value};

use super::check::{Check, effort, envelope, list, name, only, refuse, spoken};

const CIPHER: &str = "reasoning.encrypted_content";

/// A body for OpenAI Responses, without state on the server's side.
pub(super) fn responses(body: &Value) -> Check {
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
    envelope(body, &known)?;
    effort(&body["reasoning"]["effort"], "reasoning.effort")?;
    if body["store"] != false {
        return refuse("store: this organization keeps nothing; it must be false");
    }
    if body["max_output_tokens"].as_u64().is_none_or(|tokens| tokens < 16) {
        return refuse("max_output_tokens: must be at least 16");
    }
    if !body["instructions"].is_null() {
        spoken(&body["instructions"], "instructions")?;
    }
    let includes = body["include"].as_array().map(Vec::as_slice).unwrap_or_default();
    if includes.iter().any(|include| include != CIPHER) {
        return refuse("include: unknown value");
    }
    if !includes.is_empty() && body["model"].as_str().is_some_and(|model| model.starts_with("gpt-4")) {
        return refuse("include: encrypted content is not supported with this model");
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        name(&tool["name"], "tools.name")?;
        only(object(tool, "tools")?, &["type", "name", "description", "parameters", "strict"], "tools.")?;
        if tool["type"] != "function" || tool["parameters"]["type"] != "object" {
            return refuse("tools: must be functions with parameters of type object");
        }
        if tool["strict"] != false {
            return refuse("tools.parameters: 'additionalProperties' is required to be false where strict");
        }
    }
    items(list(&body["input"], "input")?)
}

fn items(input: &[Value]) -> Check {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    // Reasoning stands before what it led to.
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
            "message" => message(item, &at, &open)?,
            "reasoning" => reasoning(item, &at)?,
            "function_call" => {
                only(object(item, &at)?, &["type", "call_id", "name", "arguments"], &format!("{at}."))?;
                name(&item["call_id"], &format!("{at}.call_id"))?;
                name(&item["name"], &format!("{at}.name"))?;
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
                only(object(item, &at)?, &["type", "call_id", "output"], &format!("{at}."))?;
                spoken(&item["output"], &at)?;
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
    // The protocol takes more than this; docket never means to send it.
    if first && last { Ok(()) } else { refuse("input: must begin and end with the user's side") }
}

fn message(item: &Value, at: &str, open: &BTreeSet<&str>) -> Check {
    only(object(item, at)?, &["type", "role", "content"], &format!("{at}."))?;
    let kind = match item["role"].as_str() {
        Some("user") if !open.is_empty() => {
            return refuse(format!("{at}: no tool output found for function call {open:?}"));
        }
        Some("user") => "input_text",
        Some("assistant") => "output_text",
        _ => return refuse(format!("{at}.role: must be user or assistant")),
    };
    for piece in list(&item["content"], &format!("{at}.content"))? {
        if piece["type"] != kind {
            return refuse(format!("{at}.content: must be of type {kind}"));
        }
        spoken(&piece["text"], at)?;
    }
    Ok(())
}

fn reasoning(item: &Value, at: &str) -> Check {
    let fields = object(item, at)?;
    if fields.contains_key("id") {
        return refuse(format!("{at}: item with id {} not found; items are not persisted", item["id"]));
    }
    only(fields, &["type", "summary", "encrypted_content"], &format!("{at}."))?;
    let Some(summary) = item["summary"].as_array() else {
        return refuse(format!("{at}.summary: missing required parameter"));
    };
    let text: String = summary.iter().filter_map(|piece| piece["text"].as_str()).collect();
    if item["encrypted_content"] != thinking_signature(&text) {
        return refuse(format!("{at}: the encrypted content could not be verified"));
    }
    Ok(())
}

fn object<'a>(value: &'a Value, at: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{at}: must be an object"))
}

//! Refuses what the real providers refuse: each rule stands for a 400 that users of careless
//! harnesses have met. Pure.

use std::collections::BTreeSet;

use docket_worker::model::thinking_signature;
use serde_json::{Map, Value};

pub(super) type CheckResult = Result<(), String>;

pub(super) fn refuse<T>(message: impl Into<String>) -> Result<T, String> {
    Err(message.into())
}

pub(super) fn require_list<'a>(value: &'a Value, what: &str) -> Result<&'a [Value], String> {
    match value {
        Value::Array(items) if !items.is_empty() => Ok(items),
        _ => refuse(format!("{what}: must be a list with at least one element")),
    }
}

pub(super) fn require_text(value: &Value, what: &str) -> CheckResult {
    match value.as_str() {
        Some(text) if !text.trim().is_empty() => Ok(()),
        Some(_) => refuse(format!("{what}: text must not be empty")),
        None => refuse(format!("{what}: text is required")),
    }
}

pub(super) fn require_name(value: &Value, what: &str) -> CheckResult {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    match value.as_str() {
        Some(name) if (1..=64).contains(&name.len()) && name.chars().all(legal) => Ok(()),
        _ => refuse(format!("{what}: must match ^[a-zA-Z0-9_-]{{1,64}}$")),
    }
}

pub(super) fn reject_unknown_fields(object: &Map<String, Value>, known: &[&str], what: &str) -> CheckResult {
    match object.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => refuse(format!("{what}{key}: extra inputs are not permitted")),
        None => Ok(()),
    }
}

/// Checks the fields that all protocols share: model, streaming, and the allowed keys.
pub(super) fn check_envelope(body: &Value, known: &[&str]) -> CheckResult {
    let Some(object) = body.as_object() else { return refuse("the body must be a JSON object") };
    reject_unknown_fields(object, known, "")?;
    require_text(&body["model"], "model")?;
    if body["stream"] != true {
        return refuse("stream: this server only streams");
    }
    Ok(())
}

/// Checks a body for Anthropic Messages.
pub(super) fn check_anthropic(body: &Value) -> CheckResult {
    let known = [
        "model",
        "max_tokens",
        "temperature",
        "thinking",
        "output_config",
        "system",
        "tools",
        "messages",
        "stream",
    ];
    check_envelope(body, &known)?;
    check_anthropic_thinking(body)?;
    if body["max_tokens"].as_u64().is_none_or(|tokens| tokens == 0) {
        return refuse("max_tokens: field required");
    }
    for block in body["system"].as_array().into_iter().flatten() {
        require_text(&block["text"], "system")?;
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        require_name(&tool["name"], "tools.name")?;
        if tool["input_schema"]["type"] != "object" {
            return refuse("tools.input_schema: must be of type object");
        }
    }
    if body.to_string().matches("\"cache_control\":").count() > 4 {
        return refuse("a maximum of 4 blocks with cache_control may be provided");
    }
    let messages = require_list(&body["messages"], "messages")?;
    let of_tools = |message| {
        ["tool_use", "tool_result"].iter().any(|kind| block_ids(message, kind, "type").next().is_some())
    };
    if body["tools"].is_null() && messages.iter().any(of_tools) {
        return refuse("requests which include tool_use or tool_result blocks must define tools");
    }
    if messages[0]["role"] != "user" {
        return refuse("messages: first message must use the user role");
    }
    if messages.last().is_some_and(|message| message["role"] != "user") {
        return refuse("messages: the conversation must end with a user message");
    }
    let mut open: BTreeSet<&str> = BTreeSet::new();
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages.{index}");
        if let Value::String(_) = message["content"] {
            require_text(&message["content"], &at)?;
        } else {
            require_list(&message["content"], &at)?;
        }
        match message["role"].as_str() {
            Some("user") => check_anthropic_user(message, &at, &open)?,
            Some("assistant") if open.is_empty() => check_anthropic_assistant(message, &at)?,
            Some("assistant") => {}
            _ => return refuse(format!("{at}.role: must be user or assistant")),
        }
        if !open.is_empty() && message["role"] != "user" {
            return refuse(format!("{at}: tool_use ids without tool_result in the next message"));
        }
        open = block_ids(message, "tool_use", "id").collect();
        if let Some(id) = open.iter().find(|id| !used.insert(id)) {
            return refuse(format!("{at}: tool_use id {id} stands twice"));
        }
    }
    Ok(())
}

fn check_anthropic_thinking(body: &Value) -> CheckResult {
    let (thinking, effort) = (&body["thinking"], &body["output_config"]["effort"]);
    if !effort.is_null() && !matches!(effort.as_str(), Some("low" | "medium" | "high" | "xhigh" | "max")) {
        return refuse("output_config.effort: unknown value");
    }
    if !thinking.is_null() && !body["temperature"].is_null() && body["temperature"] != 1 {
        return refuse("`temperature` may only be set to 1 when thinking is enabled");
    }
    match thinking["type"].as_str() {
        None if thinking.is_null() => Ok(()),
        Some("adaptive") => Ok(()),
        Some("enabled") => {
            let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
            if budget < 1024 {
                return refuse("thinking.enabled.budget_tokens: must be at least 1024");
            }
            if body["max_tokens"].as_u64().is_some_and(|tokens| tokens <= budget) {
                return refuse("`max_tokens` must be greater than `thinking.budget_tokens`");
            }
            Ok(())
        }
        _ => refuse("thinking.type: unknown value"),
    }
}

/// Checks the reasoning effort for OpenAI's models.
pub(super) fn check_effort(value: &Value, what: &str) -> CheckResult {
    let known = ["none", "minimal", "low", "medium", "high", "xhigh"];
    match value.as_str() {
        None if value.is_null() => Ok(()),
        Some(effort) if known.contains(&effort) => Ok(()),
        _ => refuse(format!("{what}: unknown value")),
    }
}

fn block_ids<'a>(message: &'a Value, kind: &'a str, field: &'a str) -> impl Iterator<Item = &'a str> {
    let blocks = message["content"].as_array().into_iter().flatten();
    blocks.filter(move |block| block["type"] == kind).filter_map(move |block| block[field].as_str())
}

fn check_anthropic_user(message: &Value, at: &str, open: &BTreeSet<&str>) -> CheckResult {
    let mut text_seen = false;
    for block in message["content"].as_array().into_iter().flatten() {
        match block["type"].as_str() {
            Some("text") => {
                require_text(&block["text"], at)?;
                text_seen = true;
            }
            Some("tool_result") if text_seen => {
                return refuse(format!("{at}: tool_result blocks must come first"));
            }
            Some("tool_result") => require_text(&block["content"], at)?,
            _ => return refuse(format!("{at}: block of a kind that a user cannot say")),
        }
    }
    let answered: Vec<&str> = block_ids(message, "tool_result", "tool_use_id").collect();
    if let Some(id) = answered.iter().find(|id| !open.contains(*id)) {
        return refuse(format!("{at}: unexpected tool_use_id {id} in tool_result blocks"));
    }
    let distinct: BTreeSet<&str> = answered.iter().copied().collect();
    if distinct.len() != answered.len() {
        return refuse(format!("{at}: each tool_use must have a single result"));
    }
    if let Some(id) = open.iter().find(|id| !distinct.contains(*id)) {
        return refuse(format!("{at}: tool_use id {id} without tool_result in the next message"));
    }
    Ok(())
}

fn check_anthropic_assistant(message: &Value, at: &str) -> CheckResult {
    let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    for block in blocks {
        match block["type"].as_str() {
            Some("text") => require_text(&block["text"], at)?,
            Some("tool_use") => {
                require_name(&block["id"], &format!("{at}: tool_use.id"))?;
                require_name(&block["name"], &format!("{at}: tool_use.name"))?;
                if !block["input"].is_object() {
                    return refuse(format!("{at}: tool_use.input must be an object"));
                }
            }
            Some("thinking") => {
                let text = block["thinking"].as_str().unwrap_or_default();
                if block["signature"] != thinking_signature(text) {
                    return refuse(format!("{at}: invalid signature in thinking block"));
                }
            }
            _ => return refuse(format!("{at}: block of a kind that the model cannot say")),
        }
    }
    if blocks.last().is_some_and(|block| block["type"] == "thinking") {
        return refuse(format!("{at}: the final block must not be thinking"));
    }
    Ok(())
}

/// Checks a body for OpenAI Chat Completions.
pub(super) fn check_openai(body: &Value) -> CheckResult {
    let known = [
        "model",
        "messages",
        "tools",
        "temperature",
        "max_tokens",
        "max_completion_tokens",
        "reasoning_effort",
        "stream",
        "stream_options",
    ];
    check_envelope(body, &known)?;
    check_effort(&body["reasoning_effort"], "reasoning_effort")?;
    let thinks = |name: &str| ["o1", "o3", "o4", "gpt-5"].iter().any(|begin| name.starts_with(begin));
    if !body["max_tokens"].is_null() && body["model"].as_str().is_some_and(thinks) {
        return refuse(
            "unsupported parameter: 'max_tokens' is not supported with this model; use 'max_completion_tokens'",
        );
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        require_name(&tool["function"]["name"], "tools.function.name")?;
        if tool["type"] != "function" || tool["function"]["parameters"]["type"] != "object" {
            return refuse("tools: must be functions with parameters of type object");
        }
    }
    let messages = require_list(&body["messages"], "messages")?;
    let first = messages.iter().find(|message| message["role"] != "system");
    if first.is_none_or(|message| message["role"] != "user") {
        return refuse("messages: the first message after the system's must be the user's");
    }
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for (index, message) in messages.iter().enumerate() {
        let at = format!("messages.[{index}]");
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            return refuse(format!("{at}: tool_call_ids without response messages: {open:?}"));
        }
        match role {
            "system" | "user" => require_text(&message["content"], &at)?,
            "assistant" => open = check_openai_calls(message, &at)?,
            "tool" => {
                require_text(&message["content"], &at)?;
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                if !open.remove(id) {
                    return refuse(format!("{at}: tool_call_id {id} answers no preceding tool_calls"));
                }
            }
            _ => return refuse(format!("{at}.role: unknown")),
        }
    }
    if open.is_empty() {
        Ok(())
    } else {
        refuse(format!("tool_call_ids without response messages: {open:?}"))
    }
}

fn check_openai_calls<'a>(message: &'a Value, at: &str) -> Result<BTreeSet<&'a str>, String> {
    let calls = &message["tool_calls"];
    if calls.is_null() {
        require_text(&message["content"], at)?;
        return Ok(BTreeSet::new());
    }
    if !message["content"].is_null() {
        require_text(&message["content"], at)?;
    }
    let mut open = BTreeSet::new();
    for call in require_list(calls, &format!("{at}.tool_calls"))? {
        let id = call["id"].as_str().unwrap_or_default();
        if id.is_empty() || !open.insert(id) {
            return refuse(format!("{at}.tool_calls: ids must be given and differ"));
        }
        require_name(&call["function"]["name"], &format!("{at}.tool_calls.function.name"))?;
        // OpenAI accepts any text; servers with their own chat templates fail on anything but an object.
        let arguments = call["function"]["arguments"].as_str().unwrap_or_default();
        if serde_json::from_str::<Map<String, Value>>(arguments).is_err() {
            return refuse(format!("{at}.tool_calls.function.arguments: must be a JSON object"));
        }
    }
    Ok(open)
}

//! JSON that holds many objects: one a line, or all in an array. Gives each with the line it begins at, and
//! bounds it before it is looked into.

use crate::config::values;
use docket_schema::system::Budget;
use serde_json::{Value, value::RawValue};

use super::{
    BacklogFaults,
    line::{BacklogLine, format_json_error},
};

/// Longest object, in bytes: the longest text with every character escaped, and room.
pub(super) const OBJECT_BYTES_MAX: usize = 1024 * 1024;

/// Calls `each` with every object of `text` and its line; what is none is a fault.
pub(super) fn for_each_object<'a>(
    text: &'a str,
    faults: &mut BacklogFaults,
    mut each: impl FnMut(usize, &'a str, &mut BacklogFaults),
) {
    if text.trim_start().starts_with('[') {
        return for_each_array_item(text, faults, each);
    }
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        // A budget is looked for to the end: it is never left out.
        if faults.has_reached_limit() && !is_budget_object(line) {
            continue;
        }
        if line.len() > OBJECT_BYTES_MAX {
            faults.add(at + 1, too_long_message(line.len()));
        } else {
            each(at + 1, line.trim(), faults);
        }
    }
}

fn too_long_message(bytes: usize) -> String {
    format!("it has {bytes} bytes, and a task may have {OBJECT_BYTES_MAX}")
}

fn for_each_array_item<'a>(
    text: &'a str,
    faults: &mut BacklogFaults,
    mut each: impl FnMut(usize, &'a str, &mut BacklogFaults),
) {
    let elements: Vec<&'a RawValue> = match serde_json::from_str(text) {
        Ok(elements) => elements,
        Err(error) => {
            return faults
                .add(error.line(), format!("this is no array of objects: {}", format_json_error(&error)));
        }
    };
    let (mut line, mut counted) = (1, 0);
    for element in elements {
        let element = element.get();
        if faults.has_reached_limit() && !is_budget_object(element) {
            continue;
        }
        // A raw value is a part of the text it was read from.
        let begins = (element.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
        line += memchr::memchr_iter(b'\n', &text.as_bytes()[counted..begins]).count();
        counted = begins;
        if element.len() > OBJECT_BYTES_MAX {
            faults.add(line, too_long_message(element.len()));
        } else {
            each(line, element, faults);
        }
    }
}

/// What an object of docket's own form says.
pub(super) enum BacklogItem {
    Task(Box<BacklogLine>),
    /// What all tasks of the file may use together: `{"budget": {"usd": "20", "tokens": 5000000}}`.
    Budget(Budget),
}

/// Reads an object of docket's own form.
pub(super) fn parse_item(object: &str) -> Result<BacklogItem, String> {
    let parsed: Result<serde_json::Map<String, Value>, _> = serde_json::from_str(object);
    match parsed {
        Ok(fields) if fields.len() == 1 && fields.contains_key("budget") => {
            parse_budget(&fields["budget"]).map(BacklogItem::Budget)
        }
        Ok(_) | Err(_) => BacklogLine::parse(object).map(|line| BacklogItem::Task(Box::new(line))),
    }
}

/// Whether what cannot be read was to be a budget: no task has such a field, nor is it made of one object alone. In what
/// is no JSON the word is enough: within a text its quotes would be escaped.
pub(super) fn is_budget_object(object: &str) -> bool {
    match serde_json::from_str::<serde_json::Map<String, Value>>(object) {
        Ok(fields) => {
            fields.keys().any(|name| name.eq_ignore_ascii_case("budget"))
                || fields.len() == 1 && fields.values().all(Value::is_object)
        }
        Err(_) => object.to_ascii_lowercase().contains("\"budget\""),
    }
}

fn parse_budget(said: &Value) -> Result<Budget, String> {
    let Value::Object(fields) = said else {
        return Err("`budget` is an object, as {\"usd\": 20, \"tokens\": 5000000}".to_owned());
    };
    let mut budget = Budget::default();
    for (name, value) in fields {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
        };
        match name.as_str() {
            "usd" => {
                budget.cost_nusd =
                    Some(values::parse_dollars(&text).map_err(|why| format!("`budget.usd`: {why}"))?)
            }
            "tokens" => {
                let tokens = text.parse().ok().filter(|tokens| *tokens > 0);
                budget.tokens = Some(tokens.ok_or("`budget.tokens` must be a whole number of at least 1")?);
            }
            other => return Err(format!("unknown field `budget.{other}`; it has `usd` and `tokens`")),
        }
    }
    if budget.is_none() {
        return Err("`budget` has neither `usd` nor `tokens`".to_owned());
    }
    Ok(budget)
}

/// Reads an object of somebody else's: fields that are not asked for are theirs.
pub(super) fn parse_foreign_object<'a, T: serde::Deserialize<'a>>(object: &'a str) -> Result<T, String> {
    let mut from = serde_json::Deserializer::from_str(object);
    serde_path_to_error::deserialize(&mut from).map_err(|error| {
        let (path, words) = (error.path().to_string(), format_json_error(error.inner()));
        if path == "." { words } else { format!("`{path}`: {words}") }
    })
}

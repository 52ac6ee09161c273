//! Splits JSON with many objects, one per line or in an array. Yields each with its line, and checks its size
//! before it is parsed.

use crate::config::values;
use docket_schema::system::Budget;
use serde_json::{Value, value::RawValue};

use super::{
    BacklogFaults,
    line::{BacklogLine, format_json_error},
};

/// Maximum size of an object in bytes: the longest text with every character escaped, and some room.
pub(super) const OBJECT_BYTES_MAX: usize = 1024 * 1024;

/// Calls `each` with every object of `text` and its line; anything else is a fault.
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
        // Budgets are looked for to the end of the file: one is never skipped.
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
    format!("it has {bytes} bytes; the limit of a task is {OBJECT_BYTES_MAX}")
}

fn for_each_array_item<'a>(
    text: &'a str,
    faults: &mut BacklogFaults,
    mut each: impl FnMut(usize, &'a str, &mut BacklogFaults),
) {
    let elements: Vec<&'a RawValue> = match serde_json::from_str(text) {
        Ok(elements) => elements,
        Err(error) => {
            return faults.add(
                error.line(),
                format!("this is not an array of objects: {}", format_json_error(&error)),
            );
        }
    };
    let (mut line, mut counted) = (1, 0);
    for element in elements {
        let element = element.get();
        if faults.has_reached_limit() && !is_budget_object(element) {
            continue;
        }
        // A raw value is a slice of the text it was parsed from.
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

/// An object of docket's own format.
pub(super) enum BacklogItem {
    Task(Box<BacklogLine>),
    /// The shared budget of all tasks of the file: `{"budget": {"usd": "20", "tokens": 5000000}}`.
    Budget(Budget),
}

/// Parses an object of docket's own format.
pub(super) fn parse_item(object: &str) -> Result<BacklogItem, String> {
    let parsed: Result<serde_json::Map<String, Value>, _> = serde_json::from_str(object);
    match parsed {
        Ok(fields) if fields.len() == 1 && fields.contains_key("budget") => {
            parse_budget(&fields["budget"]).map(BacklogItem::Budget)
        }
        Ok(_) | Err(_) => BacklogLine::parse(object).map(|line| BacklogItem::Task(Box::new(line))),
    }
}

/// Whether an unreadable object was meant as a budget: no task has that field, and no task is a single object.
/// In invalid JSON the word is sufficient: inside a text its quotes would be escaped.
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
        return Err("`budget` must be an object such as {\"usd\": 20, \"tokens\": 5000000}".to_owned());
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
        return Err("`budget` needs `usd` or `tokens`".to_owned());
    }
    Ok(budget)
}

/// Parses an object of another tool; its other fields are ignored.
pub(super) fn parse_foreign_object<'a, T: serde::Deserialize<'a>>(object: &'a str) -> Result<T, String> {
    let mut from = serde_json::Deserializer::from_str(object);
    serde_path_to_error::deserialize(&mut from).map_err(|error| {
        let (path, words) = (error.path().to_string(), format_json_error(error.inner()));
        if path == "." { words } else { format!("`{path}`: {words}") }
    })
}

//! Parses tool arguments as models send them. They are checked against the tool's own schema first, so that the error
//! names the field and what it expects.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::lenient_args::normalize_args;

/// Mistakes named by one error: enough to fix a call at once.
const ARGUMENT_ERRORS_MAX: usize = 8;

/// Returns the JSON Schema of `T` without keywords that models do not need.
pub(crate) fn argument_schema<T: JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let mut schema = Value::from(settings.into_generator().into_root_schema_for::<T>());
    simplify_schema(&mut schema);
    schema
}

fn simplify_schema(schema: &mut Value) {
    match schema {
        Value::Object(map) => {
            for key in ["$schema", "title", "format"] {
                // A property may have the name of a keyword; only the keyword's own value is a string.
                if map.get(key).is_some_and(Value::is_string) {
                    map.remove(key);
                }
            }
            // An optional argument may be null as well, see `check_object`: saying so in the schema only costs
            // tokens.
            if map.get("default").is_some_and(Value::is_null) {
                map.remove("default");
            }
            if let Some(Value::Array(types)) = map.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    map.insert("type".to_owned(), only);
                }
            }
            if let Some(Value::Array(values)) = map.get_mut("enum") {
                values.retain(|value| !value.is_null());
            }
            map.values_mut().for_each(simplify_schema);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify_schema),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Parses arguments.
///
/// # Errors
/// A message about the mistakes, for the model.
pub(crate) fn parse_args<T: JsonSchema + DeserializeOwned>(tool: &str, args: &Value) -> Result<T, String> {
    let mut mistakes = Vec::new();
    let schema = argument_schema::<T>();
    let args = &normalize_args(&schema, tool, args);
    check_value(&schema, args, "", &mut mistakes);
    if mistakes.is_empty() {
        return serde_json::from_value(args.clone())
            .map_err(|error| format!("bad arguments for {tool}: {error}"));
    }
    mistakes.truncate(ARGUMENT_ERRORS_MAX);
    Err(format!("bad arguments for {tool}: {}", mistakes.join("; ")))
}

fn check_value(schema: &Value, value: &Value, at: &str, mistakes: &mut Vec<String>) {
    let name = if at.is_empty() { "the arguments".to_owned() } else { format!("`{at}`") };
    let types: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    };
    if !types.is_empty() && !types.iter().any(|kind| matches_type(kind, value)) {
        let wanted: Vec<&str> = types.into_iter().filter(|kind| *kind != "null").collect();
        mistakes.push(format!("{name} must be {}, not {}", wanted.join(" or "), json_type_name(value)));
        return;
    }
    match value {
        Value::Object(map) => check_object(schema, map, at, mistakes),
        Value::Array(items) => {
            if let Some(inner) = schema.get("items") {
                for (index, item) in items.iter().enumerate() {
                    check_value(inner, item, &format!("{at}[{index}]"), mistakes);
                }
            }
            let least = schema.get("minItems").and_then(Value::as_u64).unwrap_or(0);
            if (items.len() as u64) < least {
                mistakes.push(format!("{name} needs at least {least} entry"));
            }
        }
        Value::Number(number) => {
            let bound = |key: &str| schema.get(key).and_then(Value::as_f64);
            let number = number.as_f64().unwrap_or(f64::NAN);
            if bound("minimum").is_some_and(|least| number < least) {
                mistakes.push(format!("{name} must be at least {}", schema["minimum"]));
            }
            if bound("maximum").is_some_and(|most| number > most) {
                mistakes.push(format!("{name} must be at most {}", schema["maximum"]));
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn check_object(schema: &Value, map: &Map<String, Value>, at: &str, mistakes: &mut Vec<String>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    let full = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
    let required: Vec<&str> = schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for key in required.iter().copied() {
        if !map.contains_key(key) {
            let kind =
                properties.get(key).and_then(|p| p.get("type")).and_then(Value::as_str).unwrap_or("value");
            mistakes.push(format!("`{}` is missing ({kind})", full(key)));
        }
    }
    for (key, value) in map {
        match properties.get(key) {
            Some(_) if value.is_null() && !required.contains(&key.as_str()) => {}
            Some(inner) => check_value(inner, value, &full(key), mistakes),
            None => {
                let known: Vec<&str> = properties.keys().map(String::as_str).collect();
                mistakes.push(format!("`{}` is unknown (known: {})", full(key), known.join(", ")));
            }
        }
    }
}

fn matches_type(kind: &str, value: &Value) -> bool {
    match kind {
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        other => json_type_name(value) == other,
    }
}

const fn json_type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

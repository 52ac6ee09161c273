//! Lenient reading of arguments that narrowly miss the schema: each accepted form is one that models really send and
//! has only one meaning. The log keeps arguments as they were sent. Pure.

use serde_json::{Map, Value, json};

/// A time limit named `timeout` of at least this value is in milliseconds; values up to the longest limit are in
/// seconds. Values in between are not guessed.
const TIMEOUT_MILLISECONDS_MIN: u64 = 1000;
const TIMEOUT_SECONDS_MAX: u64 = 300;

/// Returns the arguments in the form of the tool's schema if their meaning is unambiguous; otherwise unchanged.
pub(crate) fn normalize_args(schema: &Value, tool: &str, args: &Value) -> Value {
    let Value::Object(map) = args else { return args.clone() };
    let mut map = map.clone();
    match tool {
        "edit_file" => wrap_single_edit(&mut map),
        "run_command" | "venv_run" => normalize_timeout(&mut map),
        _ => {}
    }
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, value) in &mut map {
        if let Some(schema) = properties.and_then(|properties| properties.get(name)) {
            coerce_to_schema(schema, value);
        }
    }
    if tool == "edit_file" {
        drop_empty_alternative(&mut map);
    }
    Value::Object(map)
}

/// Wraps a single edit given without its list: `search` and `replace` next to the path.
fn wrap_single_edit(map: &mut Map<String, Value>) {
    let is_one =
        map.get("search").is_some_and(Value::is_string) && map.get("replace").is_some_and(Value::is_string);
    let has = |name: &str| map.get(name).is_some_and(|value| !is_empty_value(value));
    if !is_one || has("edits") || has("patch") {
        return;
    }
    let mut edit = Map::new();
    for name in ["search", "replace", "near_line", "occurrence", "replace_all"] {
        if let Some(value) = map.remove(name) {
            edit.insert(name.to_owned(), value);
        }
    }
    map.insert("edits".to_owned(), json!([edit]));
}

/// Drops the empty one of `edits` and `patch` if the other has content.
fn drop_empty_alternative(map: &mut Map<String, Value>) {
    for (empty, full) in [("edits", "patch"), ("patch", "edits")] {
        let says = |name: &str| map.get(name).is_some_and(|value| !is_empty_value(value));
        if !says(empty) && says(full) {
            map.remove(empty);
        }
    }
}

fn is_empty_value(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.trim().is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::Object(_) => false,
    }
}

fn normalize_timeout(map: &mut Map<String, Value>) {
    if map.get("timeout_s").is_some_and(|value| !value.is_null()) {
        return;
    }
    let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
    let seconds = match map.get("timeout").and_then(number) {
        Some(limit @ 1..=TIMEOUT_SECONDS_MAX) => limit,
        Some(limit) if limit >= TIMEOUT_MILLISECONDS_MIN => limit.div_ceil(1000),
        Some(_) | None => return,
    };
    map.remove("timeout");
    map.insert("timeout_s".to_owned(), seconds.into());
}

/// Converts quoted numbers and booleans, lists given as JSON strings, and a single item given instead of a list.
fn coerce_to_schema(schema: &Value, value: &mut Value) {
    let wants = |kind: &str| match schema.get("type") {
        Some(Value::String(one)) => one == kind,
        Some(Value::Array(many)) => many.iter().any(|one| one == kind),
        Some(_) | None => false,
    };
    if let Value::String(text) = &*value
        && !wants("string")
    {
        let read = match text.trim() {
            text if wants("integer") => text.parse::<u64>().ok().map(Value::from),
            "true" if wants("boolean") => Some(Value::Bool(true)),
            "false" if wants("boolean") => Some(Value::Bool(false)),
            text if wants("array") => {
                serde_json::from_str(text).ok().filter(|read: &Value| read.is_array() || read.is_object())
            }
            _ => None,
        };
        if let Some(read) = read {
            *value = read;
        }
    }
    let items = schema.get("items");
    if value.is_object() && wants("array") && items.is_some_and(|items| items["type"] == "object") {
        *value = Value::Array(vec![value.take()]);
    }
    match value {
        Value::Array(values) => {
            if let Some(items) = items {
                values.iter_mut().for_each(|value| coerce_to_schema(items, value));
            }
        }
        Value::Object(map) => {
            let properties = schema.get("properties").and_then(Value::as_object);
            for (name, value) in map {
                if let Some(schema) = properties.and_then(|properties| properties.get(name)) {
                    coerce_to_schema(schema, value);
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::TestWorkspace;

    /// Reads a file of two lines, then calls an edit with these arguments added to its path.
    fn run_edit(args: Value) -> (bool, String) {
        let mut w = TestWorkspace::new(&[("a.txt", "x\nb\n")]);
        w.call_tool("read_file", json!({"path": "a.txt"}));
        let mut all = json!({"path": "a.txt"});
        all.as_object_mut().expect("is one").extend(args.as_object().expect("is one").clone());
        let out = w.call_tool("edit_file", all);
        (!out.is_error, w.dir.read_to_string("a.txt").expect("is there"))
    }

    #[test]
    fn slightly_malformed_edits_are_applied() {
        let edit = json!({"search": "x", "replace": "y"});
        let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-x\n+y\n b\n";
        for args in [
            json!({"edits": [edit]}),
            json!({"edits": json!([edit]).to_string()}),
            json!({"edits": edit.to_string()}),
            json!({"edits": edit}),
            edit.clone(),
            json!({"edits": [], "search": "x", "replace": "y"}),
            json!({"edits": [{"search": "x", "replace": "y", "occurrence": "1"}]}),
            json!({"edits": [edit], "patch": ""}),
            json!({"edits": [], "patch": patch}),
            json!({"edits": "", "patch": patch}),
        ] {
            assert_eq!(run_edit(args.clone()), (true, "y\nb\n".to_owned()), "{args}");
        }
        // Ambiguous or meaningless.
        for args in [
            json!({"edits": []}),
            json!({"edits": "x to y"}),
            json!({"edits": [{"search": "b", "replace": "c"}], "search": "x", "replace": "y"}),
            json!({"search": "x"}),
            json!({"edits": [{"search": 1, "replace": "y"}]}),
        ] {
            assert_eq!(run_edit(args.clone()), (false, "x\nb\n".to_owned()), "{args}");
        }
    }

    #[test]
    fn quoted_numbers_and_timeout_alias_are_accepted() {
        let mut w = TestWorkspace::new(&[("a.txt", "one\ntwo\nthree\n")]);
        let out = w.call_tool("read_file", json!({"path": "a.txt", "start_line": "2", "end_line": "2"}));
        assert!(
            !out.is_error && out.text().contains("two") && !out.text().contains("three"),
            "{}",
            out.text()
        );
        assert!(w.call_tool("read_file", json!({"path": "a.txt", "start_line": "two"})).is_error);
        for limit in [json!(1), json!("1"), json!(1000)] {
            let out = w.call_tool("run_command", json!({"command": "sleep 30", "timeout": limit}));
            assert!(
                out.facts.timed_out && out.text().contains("time limit of 1 s"),
                "{limit}: {}",
                out.text()
            );
        }
        let unclear = w.call_tool("run_command", json!({"command": "true", "timeout": 500}));
        assert!(unclear.is_error && unclear.text().contains("`timeout` is unknown"), "{}", unclear.text());
        // A string stays a string if the schema wants one.
        let out = w.call_tool("create_file", json!({"path": "n.txt", "content": "1"}));
        assert!(!out.is_error && w.dir.read_to_string("n.txt").expect("is there") == "1");
    }
}

//! Validates a value against a JSON Schema, for the keywords that docket's own schemas use. An unknown
//! keyword is an error: an unchecked constraint must not pass.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value};

/// Checks `value` against `schema`.
///
/// # Errors
/// Returns the first violation, or an unknown keyword.
pub fn validate(schema: &Value, value: &Value) -> Result<()> {
    let definitions = schema["$defs"].as_object().cloned().unwrap_or_default();
    SchemaValidator { definitions }.check_value("", schema, value)
}

struct SchemaValidator {
    definitions: Map<String, Value>,
}

impl SchemaValidator {
    fn check_value(&self, path: &str, schema: &Value, value: &Value) -> Result<()> {
        let keywords = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(keywords) => keywords,
            other => bail!("{path}: {other} is not a supported schema"),
        };
        for (keyword, says) in keywords {
            self.check_keyword(path, (keyword, says), (keywords, value))
                .with_context(|| format!("{path}: {keyword}"))?;
        }
        Ok(())
    }

    fn check_keyword(
        &self,
        path: &str,
        (keyword, says): (&str, &Value),
        (beside, value): (&Map<String, Value>, &Value),
    ) -> Result<()> {
        match keyword {
            "$schema" | "$defs" | "title" | "description" | "default" | "format" => {}
            "$ref" => {
                let name =
                    says.as_str().and_then(|text| text.strip_prefix("#/$defs/")).context("a reference")?;
                self.check_value(path, self.definitions.get(name).with_context(|| name.to_owned())?, value)?;
            }
            "type" => {
                let types: Vec<&str> = match says {
                    Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
                    one => one.as_str().into_iter().collect(),
                };
                ensure!(types.iter().any(|name| is_type(name, value)), "{value} is none of {types:?}");
            }
            "properties" => {
                for (name, schema) in says.as_object().context("properties")? {
                    if let Some(value) = value.get(name) {
                        self.check_value(&format!("{path}/{name}"), schema, value)?;
                    }
                }
                // docket's reports have no other fields: a name missing from the schema is a
                // mistake.
                let known =
                    |name: &String| says.get(name).is_some() || beside.contains_key("additionalProperties");
                let all = value.as_object().into_iter().flat_map(Map::keys);
                let unknown: Vec<&String> = all.filter(|name| !known(name)).collect();
                ensure!(unknown.is_empty(), "{unknown:?}");
            }
            "additionalProperties" => {
                let named = |name: &str| beside.get("properties").is_some_and(|all| all.get(name).is_some());
                for (name, value) in value.as_object().into_iter().flatten().filter(|(name, _)| !named(name))
                {
                    self.check_value(&format!("{path}/{name}"), says, value)?;
                }
            }
            "required" => {
                for name in says.as_array().context("names")? {
                    let name = name.as_str().context("a name")?;
                    ensure!(value.get(name).is_some(), "{name} is missing");
                }
            }
            "items" => {
                for (nth, item) in value.as_array().into_iter().flatten().enumerate() {
                    self.check_value(&format!("{path}/{nth}"), says, item)?;
                }
            }
            "enum" => ensure!(says.as_array().context("values")?.contains(value), "{value}"),
            "const" => ensure!(says == value, "{value}"),
            "minimum" => ensure!(value.as_f64() >= says.as_f64(), "{value}"),
            "maximum" => ensure!(value.as_f64() <= says.as_f64(), "{value}"),
            "pattern" => {
                let pattern = says.as_str().context("a pattern")?;
                ensure!(value.as_str().is_none_or(|text| matches_pattern(pattern, text)), "{value}");
            }
            "anyOf" | "oneOf" => {
                let held =
                    says.as_array().context("schemas")?.iter().map(|one| self.check_value(path, one, value));
                let held: Vec<Result<()>> = held.collect();
                let count = held.iter().filter(|one| one.is_ok()).count();
                ensure!(count == 1 || (keyword == "anyOf" && count > 1), "{value}: {held:?}");
            }
            other => bail!("the keyword `{other}` is not known here"),
        }
        Ok(())
    }
}

fn matches_pattern(pattern: &str, text: &str) -> bool {
    regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text))
}

fn is_type(name: &str, value: &Value) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::validate;

    #[test]
    fn schema_violations_are_found() {
        let schema = json!({
            "$defs": { "side": { "type": "string", "enum": ["a", "b"] } },
            "type": "object",
            "required": ["side"],
            "properties": {
                "side": { "$ref": "#/$defs/side" },
                "count": { "type": ["integer", "null"], "minimum": 0 },
                "all": { "type": "array", "items": { "anyOf": [{ "type": "null" }, { "$ref": "#/$defs/side" }] } },
                "word": { "type": "string", "pattern": "^x+$" },
            },
        });
        validate(&schema, &json!({ "side": "a", "count": 3, "all": ["b", null], "word": "xx" }))
            .expect("holds");
        for wrong in [
            json!({}),
            json!({ "side": "c" }),
            json!({ "side": "a", "count": -1 }),
            json!({ "side": "a", "count": 1.5 }),
            json!({ "side": "a", "all": ["c"] }),
            json!({ "side": "a", "word": "y" }),
            json!({ "side": "a", "more": 1 }),
            json!([]),
        ] {
            validate(&schema, &wrong).expect_err(&wrong.to_string());
        }
        let unknown = json!({ "prefixItems": [] });
        validate(&unknown, &json!([])).expect_err("an unsupported keyword");
    }
}

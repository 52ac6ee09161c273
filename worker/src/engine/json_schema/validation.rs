//! Validates a value against a checked schema, and describes the violations. Pure.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::{escape_pointer_token, resolve_reference};

/// Problems reported at once: a model can fix several in one go.
const VIOLATIONS_MAX: usize = 5;
/// Schemas evaluated for one reply: if a schema's references multiply beyond this, the reply is rejected.
const STEPS_MAX: u32 = 20_000;
/// Characters of a quoted value.
const QUOTED_CHARS_MAX: usize = 60;

/// A place where a value violates its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaViolation {
    /// The place, as a JSON pointer; empty = the value itself.
    pub pointer: String,
    /// The problem there.
    pub message: String,
}

impl std::fmt::Display for SchemaViolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.pointer.is_empty() {
            write!(f, "{}", self.message)
        } else {
            write!(f, "`{}`: {}", self.pointer, self.message)
        }
    }
}

/// Returns the first few violations; empty if the value matches.
pub fn find_violations(schema: &Value, value: &Value) -> Vec<SchemaViolation> {
    let mut steps = 0;
    let mut found = ValueValidator { root: schema, steps: &mut steps }.validate_value(schema, value, "");
    if steps > STEPS_MAX {
        found.insert(0, new_violation("", "it takes too much to check it".to_owned()));
    }
    found.truncate(VIOLATIONS_MAX);
    found
}

fn new_violation(at: &str, what: String) -> SchemaViolation {
    SchemaViolation { pointer: at.to_owned(), message: what }
}

struct ValueValidator<'a> {
    root: &'a Value,
    steps: &'a mut u32,
}

impl ValueValidator<'_> {
    fn validate_value(&mut self, schema: &Value, value: &Value, at: &str) -> Vec<SchemaViolation> {
        *self.steps += 1;
        if *self.steps > STEPS_MAX {
            return Vec::new();
        }
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(false) => return vec![new_violation(at, "nothing may stand here".to_owned())],
            Value::Bool(true) | Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Vec::new();
            }
        };
        let mut found = Vec::new();
        if let Some(told) = check_type(keywords, value) {
            // The remaining keywords apply to another type of value.
            return vec![new_violation(at, told)];
        }
        let reference = keywords.get("$ref").and_then(Value::as_str);
        if let Some(leads) = reference.and_then(|reference| resolve_reference(self.root, reference)) {
            found.extend(self.validate_value(leads, value, at));
        }
        match value {
            Value::Object(map) => found.extend(self.validate_object(keywords, map, at)),
            Value::Array(items) => found.extend(self.validate_array(keywords, items, at)),
            Value::String(text) => {
                found.extend(check_string(keywords, text).map(|what| new_violation(at, what)))
            }
            Value::Number(_) => {
                found.extend(check_number(keywords, value).map(|what| new_violation(at, what)))
            }
            Value::Null | Value::Bool(_) => {}
        }
        found.extend(self.validate_combinators(keywords, value, at));
        found
    }

    fn is_valid(&mut self, schema: &Value, value: &Value) -> bool {
        // When the step limit is exceeded, nothing matches.
        self.validate_value(schema, value, "").is_empty() && *self.steps <= STEPS_MAX
    }

    fn validate_object(
        &mut self,
        keywords: &Map<String, Value>,
        map: &Map<String, Value>,
        at: &str,
    ) -> Vec<SchemaViolation> {
        let below = |name: &str| format!("{at}/{}", escape_pointer_token(name));
        let mut found = Vec::new();
        let required = keywords.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str).filter(|name| !map.contains_key(*name)) {
            found.push(new_violation(&below(name), "it is missing".to_owned()));
        }
        let named = keywords.get("properties").and_then(Value::as_object);
        for (name, value) in map {
            if let Some(of_name) = keywords.get("propertyNames")
                && !self.is_valid(of_name, &Value::String(name.clone()))
            {
                found.push(new_violation(&below(name), "no property may be called so".to_owned()));
            }
            match (named.and_then(|named| named.get(name)), keywords.get("additionalProperties")) {
                (Some(schema), _) => found.extend(self.validate_value(schema, value, &below(name))),
                (None, Some(Value::Bool(false))) => {
                    let known: Vec<&str> =
                        named.into_iter().flat_map(Map::keys).map(String::as_str).collect();
                    found.push(new_violation(
                        &below(name),
                        format!("it is not known; there are {}", known.join(", ")),
                    ));
                }
                (None, Some(schema)) => found.extend(self.validate_value(schema, value, &below(name))),
                (None, None) => {}
            }
        }
        let told = check_count(keywords, map.len() as u64, ("minProperties", "maxProperties"), "properties");
        found.extend(told.map(|what| new_violation(at, what)));
        found
    }

    fn validate_array(
        &mut self,
        keywords: &Map<String, Value>,
        items: &[Value],
        at: &str,
    ) -> Vec<SchemaViolation> {
        let mut found = Vec::new();
        let first = keywords.get("prefixItems").and_then(Value::as_array);
        for (nth, item) in items.iter().enumerate() {
            let of_place = first.and_then(|first| first.get(nth));
            if let Some(schema) = of_place.or_else(|| keywords.get("items")) {
                found.extend(self.validate_value(schema, item, &format!("{at}/{nth}")));
            }
        }
        let told = check_count(keywords, items.len() as u64, ("minItems", "maxItems"), "items");
        found.extend(told.map(|what| new_violation(at, what)));
        if keywords.get("uniqueItems") == Some(&Value::Bool(true)) {
            let twice =
                (1..items.len()).find(|nth| items[..*nth].iter().any(|one| json_equal(one, &items[*nth])));
            found.extend(
                twice.map(|nth| new_violation(&format!("{at}/{nth}"), "it stands there twice".to_owned())),
            );
        }
        if let Some(schema) = keywords.get("contains")
            && !items.iter().any(|item| self.is_valid(schema, item))
        {
            found.push(new_violation(at, "none of its items is of the form that one must have".to_owned()));
        }
        found
    }

    /// Validates the keywords that combine several schemas for one value.
    fn validate_combinators(
        &mut self,
        keywords: &Map<String, Value>,
        value: &Value,
        at: &str,
    ) -> Vec<SchemaViolation> {
        let list = |keyword: &str| keywords.get(keyword).and_then(Value::as_array);
        let mut found = Vec::new();
        for schema in list("allOf").into_iter().flatten() {
            found.extend(self.validate_value(schema, value, at));
        }
        if let Some(schemas) = list("anyOf")
            && !schemas.iter().any(|schema| self.is_valid(schema, value))
        {
            found.push(self.no_alternative_matches(schemas, value, at));
        }
        if let Some(schemas) = list("oneOf") {
            match schemas.iter().filter(|schema| self.is_valid(schema, value)).count() {
                0 => found.push(self.no_alternative_matches(schemas, value, at)),
                1 => {}
                many => {
                    found.push(new_violation(
                        at,
                        format!("it is of {many} of the forms that it must be one of"),
                    ));
                }
            }
        }
        if let Some(schema) = keywords.get("not")
            && self.is_valid(schema, value)
        {
            found.push(new_violation(at, "it is of a form that it must not be of".to_owned()));
        }
        if let Some(schema) = keywords.get("if") {
            let which = if self.is_valid(schema, value) { "then" } else { "else" };
            found.extend(
                keywords.get(which).into_iter().flat_map(|schema| self.validate_value(schema, value, at)),
            );
        }
        found
    }

    /// Describes why a value matches none of the alternatives.
    fn no_alternative_matches(&mut self, schemas: &[Value], value: &Value, at: &str) -> SchemaViolation {
        let told = schemas
            .iter()
            .take(VIOLATIONS_MAX)
            .filter_map(|schema| self.validate_value(schema, value, at).into_iter().next());
        let told: Vec<String> = told.map(|problem| problem.to_string()).collect();
        new_violation(
            at,
            format!("it is of none of the {} forms that it may have ({})", schemas.len(), told.join("; or ")),
        )
    }
}

/// Checks the type of a value.
fn check_type(keywords: &Map<String, Value>, value: &Value) -> Option<String> {
    if let Some(types) = keywords.get("type") {
        let types: Vec<&str> = match types {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        if !types.iter().any(|name| matches_type(name, value)) {
            return Some(format!(
                "it must be of type {}, and is {}",
                types.join(" or "),
                describe_type(value)
            ));
        }
    }
    if let Some(Value::Array(values)) = keywords.get("enum")
        && !values.iter().any(|one| json_equal(one, value))
    {
        let values: Vec<String> = values.iter().map(quote_value).collect();
        return Some(format!("it must be one of {}, and is {}", values.join(", "), quote_value(value)));
    }
    let only = keywords.get("const").filter(|only| !json_equal(only, value))?;
    Some(format!("it must be {}, and is {}", quote_value(only), quote_value(value)))
}

fn matches_type(name: &str, value: &Value) -> bool {
    match value {
        Value::Null => name == "null",
        Value::Bool(_) => name == "boolean",
        Value::Object(_) => name == "object",
        Value::Array(_) => name == "array",
        Value::String(_) => name == "string",
        Value::Number(number) => {
            let whole = || {
                number.is_i64()
                    || number.is_u64()
                    || number.as_f64().is_some_and(|float| float.fract() == 0.0)
            };
            name == "number" || (name == "integer" && whole())
        }
    }
}

const fn describe_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Object(_) => "an object",
        Value::Array(_) => "an array",
        Value::String(_) => "a string",
        Value::Number(_) => "a number",
    }
}

fn check_string(keywords: &Map<String, Value>, text: &str) -> Option<String> {
    let chars = text.chars().count() as u64;
    if let Some(told) = check_count(keywords, chars, ("minLength", "maxLength"), "characters") {
        return Some(told);
    }
    let pattern = keywords.get("pattern").and_then(Value::as_str)?;
    // A checked schema has no pattern that does not compile.
    let meets = regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
    (!meets).then(|| format!("it must match the pattern {pattern}"))
}

fn check_number(keywords: &Map<String, Value>, value: &Value) -> Option<String> {
    [
        ("minimum", "at least", &[Ordering::Greater, Ordering::Equal][..]),
        ("maximum", "at most", &[Ordering::Less, Ordering::Equal]),
        ("exclusiveMinimum", "more than", &[Ordering::Greater]),
        ("exclusiveMaximum", "less than", &[Ordering::Less]),
    ]
    .into_iter()
    .find_map(|(keyword, words, right)| {
        let bound = keywords.get(keyword)?;
        let is_right = compare_numbers(value, bound).is_some_and(|order| right.contains(&order));
        (!is_right).then(|| format!("it must be {words} {bound}, and is {value}"))
    })
}

fn check_count(
    keywords: &Map<String, Value>,
    count: u64,
    (least, most): (&str, &str),
    what: &str,
) -> Option<String> {
    let bound = |keyword: &str| keywords.get(keyword).and_then(Value::as_u64);
    if let Some(least) = bound(least).filter(|least| count < *least) {
        return Some(format!("it must have at least {least} {what}, and has {count}"));
    }
    let most = bound(most).filter(|most| count > *most)?;
    Some(format!("it must have at most {most} {what}, and has {count}"))
}

/// Compares two numbers.
fn compare_numbers(one: &Value, other: &Value) -> Option<Ordering> {
    if let (Some(one), Some(other)) = (one.as_i64(), other.as_i64()) {
        return Some(one.cmp(&other));
    }
    if let (Some(one), Some(other)) = (one.as_u64(), other.as_u64()) {
        return Some(one.cmp(&other));
    }
    one.as_f64()?.partial_cmp(&other.as_f64()?)
}

/// Whether two values are equal to a schema: 1 equals 1.0.
fn json_equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(_), Value::Number(_)) => compare_numbers(one, other) == Some(Ordering::Equal),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| json_equal(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, value)| other.get(name).is_some_and(|other| json_equal(value, other)))
        }
        (one, other) => one == other,
    }
}

fn quote_value(value: &Value) -> String {
    let text = value.to_string();
    let short: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if short.len() < text.len() { format!("{short}…") } else { text }
}

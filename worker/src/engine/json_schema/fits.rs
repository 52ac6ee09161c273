//! Whether a value meets a schema, and where it does not. Pure; of a schema that was checked.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::{part, within};

/// Problems that are told at once: a model mends several in one go.
const TOLD_MAX: usize = 5;
/// Schemas looked at for one answer: a schema whose references multiply ends here, and the answer is not taken.
const STEPS_MAX: u32 = 20_000;
/// Characters of a value that is quoted.
const QUOTED_CHARS_MAX: usize = 60;

/// A place where a value does not meet its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where, as a JSON pointer; empty = the value itself.
    pub at: String,
    /// What is wrong there.
    pub what: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.at.is_empty() {
            write!(f, "{}", self.what)
        } else {
            write!(f, "`{}`: {}", self.at, self.what)
        }
    }
}

/// Where a value does not meet its schema, the first few places; none where it does.
pub fn problems(schema: &Value, value: &Value) -> Vec<Problem> {
    let mut steps = 0;
    let mut found = Walk { root: schema, steps: &mut steps }.of(schema, value, "");
    if steps > STEPS_MAX {
        found.insert(0, problem("", "it takes too much to check it".to_owned()));
    }
    found.truncate(TOLD_MAX);
    found
}

fn problem(at: &str, what: String) -> Problem {
    Problem { at: at.to_owned(), what }
}

struct Walk<'a> {
    root: &'a Value,
    steps: &'a mut u32,
}

impl Walk<'_> {
    fn of(&mut self, schema: &Value, value: &Value, at: &str) -> Vec<Problem> {
        *self.steps += 1;
        if *self.steps > STEPS_MAX {
            return Vec::new();
        }
        let keywords = match schema {
            Value::Object(keywords) => keywords,
            Value::Bool(false) => return vec![problem(at, "nothing may stand here".to_owned())],
            Value::Bool(true) | Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Vec::new();
            }
        };
        let mut found = Vec::new();
        if let Some(told) = of_kind(keywords, value) {
            // What else it says is of another kind of value.
            return vec![problem(at, told)];
        }
        let reference = keywords.get("$ref").and_then(Value::as_str);
        if let Some(leads) = reference.and_then(|reference| within(self.root, reference)) {
            found.extend(self.of(leads, value, at));
        }
        match value {
            Value::Object(map) => found.extend(self.object(keywords, map, at)),
            Value::Array(items) => found.extend(self.array(keywords, items, at)),
            Value::String(text) => found.extend(of_text(keywords, text).map(|what| problem(at, what))),
            Value::Number(_) => found.extend(of_number(keywords, value).map(|what| problem(at, what))),
            Value::Null | Value::Bool(_) => {}
        }
        found.extend(self.several(keywords, value, at));
        found
    }

    fn fits(&mut self, schema: &Value, value: &Value) -> bool {
        // What cannot be looked at any more fits nothing.
        self.of(schema, value, "").is_empty() && *self.steps <= STEPS_MAX
    }

    fn object(&mut self, keywords: &Map<String, Value>, map: &Map<String, Value>, at: &str) -> Vec<Problem> {
        let below = |name: &str| format!("{at}/{}", part(name));
        let mut found = Vec::new();
        let required = keywords.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str).filter(|name| !map.contains_key(*name)) {
            found.push(problem(&below(name), "it is missing".to_owned()));
        }
        let named = keywords.get("properties").and_then(Value::as_object);
        for (name, value) in map {
            if let Some(of_name) = keywords.get("propertyNames")
                && !self.fits(of_name, &Value::String(name.clone()))
            {
                found.push(problem(&below(name), "no property may be called so".to_owned()));
            }
            match (named.and_then(|named| named.get(name)), keywords.get("additionalProperties")) {
                (Some(schema), _) => found.extend(self.of(schema, value, &below(name))),
                (None, Some(Value::Bool(false))) => {
                    let known: Vec<&str> =
                        named.into_iter().flat_map(Map::keys).map(String::as_str).collect();
                    found.push(problem(
                        &below(name),
                        format!("it is not known; there are {}", known.join(", ")),
                    ));
                }
                (None, Some(schema)) => found.extend(self.of(schema, value, &below(name))),
                (None, None) => {}
            }
        }
        let told = of_count(keywords, map.len() as u64, ("minProperties", "maxProperties"), "properties");
        found.extend(told.map(|what| problem(at, what)));
        found
    }

    fn array(&mut self, keywords: &Map<String, Value>, items: &[Value], at: &str) -> Vec<Problem> {
        let mut found = Vec::new();
        let first = keywords.get("prefixItems").and_then(Value::as_array);
        for (nth, item) in items.iter().enumerate() {
            let of_place = first.and_then(|first| first.get(nth));
            if let Some(schema) = of_place.or_else(|| keywords.get("items")) {
                found.extend(self.of(schema, item, &format!("{at}/{nth}")));
            }
        }
        let told = of_count(keywords, items.len() as u64, ("minItems", "maxItems"), "items");
        found.extend(told.map(|what| problem(at, what)));
        if keywords.get("uniqueItems") == Some(&Value::Bool(true)) {
            let twice = (1..items.len()).find(|nth| items[..*nth].iter().any(|one| same(one, &items[*nth])));
            found
                .extend(twice.map(|nth| problem(&format!("{at}/{nth}"), "it stands there twice".to_owned())));
        }
        if let Some(schema) = keywords.get("contains")
            && !items.iter().any(|item| self.fits(schema, item))
        {
            found.push(problem(at, "none of its items is of the form that one must have".to_owned()));
        }
        found
    }

    /// What is said by several schemas of the same value.
    fn several(&mut self, keywords: &Map<String, Value>, value: &Value, at: &str) -> Vec<Problem> {
        let list = |keyword: &str| keywords.get(keyword).and_then(Value::as_array);
        let mut found = Vec::new();
        for schema in list("allOf").into_iter().flatten() {
            found.extend(self.of(schema, value, at));
        }
        if let Some(schemas) = list("anyOf")
            && !schemas.iter().any(|schema| self.fits(schema, value))
        {
            found.push(self.of_no_form(schemas, value, at));
        }
        if let Some(schemas) = list("oneOf") {
            match schemas.iter().filter(|schema| self.fits(schema, value)).count() {
                0 => found.push(self.of_no_form(schemas, value, at)),
                1 => {}
                many => {
                    found.push(problem(at, format!("it is of {many} of the forms that it must be one of")));
                }
            }
        }
        if let Some(schema) = keywords.get("not")
            && self.fits(schema, value)
        {
            found.push(problem(at, "it is of a form that it must not be of".to_owned()));
        }
        if let Some(schema) = keywords.get("if") {
            let which = if self.fits(schema, value) { "then" } else { "else" };
            found.extend(keywords.get(which).into_iter().flat_map(|schema| self.of(schema, value, at)));
        }
        found
    }

    /// What keeps a value from each of the forms that it might have.
    fn of_no_form(&mut self, schemas: &[Value], value: &Value, at: &str) -> Problem {
        let told =
            schemas.iter().take(TOLD_MAX).filter_map(|schema| self.of(schema, value, at).into_iter().next());
        let told: Vec<String> = told.map(|problem| problem.to_string()).collect();
        problem(
            at,
            format!("it is of none of the {} forms that it may have ({})", schemas.len(), told.join("; or ")),
        )
    }
}

/// What is wrong with the kind of a value.
fn of_kind(keywords: &Map<String, Value>, value: &Value) -> Option<String> {
    if let Some(types) = keywords.get("type") {
        let types: Vec<&str> = match types {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        if !types.iter().any(|name| is_of(name, value)) {
            return Some(format!("it must be of type {}, and is {}", types.join(" or "), kind(value)));
        }
    }
    if let Some(Value::Array(values)) = keywords.get("enum")
        && !values.iter().any(|one| same(one, value))
    {
        let values: Vec<String> = values.iter().map(quoted).collect();
        return Some(format!("it must be one of {}, and is {}", values.join(", "), quoted(value)));
    }
    let only = keywords.get("const").filter(|only| !same(only, value))?;
    Some(format!("it must be {}, and is {}", quoted(only), quoted(value)))
}

fn is_of(name: &str, value: &Value) -> bool {
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

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Object(_) => "an object",
        Value::Array(_) => "an array",
        Value::String(_) => "a string",
        Value::Number(_) => "a number",
    }
}

fn of_text(keywords: &Map<String, Value>, text: &str) -> Option<String> {
    let chars = text.chars().count() as u64;
    if let Some(told) = of_count(keywords, chars, ("minLength", "maxLength"), "characters") {
        return Some(told);
    }
    let pattern = keywords.get("pattern").and_then(Value::as_str)?;
    // A schema that was checked has none that does not compile.
    let meets = regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(text));
    (!meets).then(|| format!("it must match the pattern {pattern}"))
}

fn of_number(keywords: &Map<String, Value>, value: &Value) -> Option<String> {
    [
        ("minimum", "at least", &[Ordering::Greater, Ordering::Equal][..]),
        ("maximum", "at most", &[Ordering::Less, Ordering::Equal]),
        ("exclusiveMinimum", "more than", &[Ordering::Greater]),
        ("exclusiveMaximum", "less than", &[Ordering::Less]),
    ]
    .into_iter()
    .find_map(|(keyword, words, right)| {
        let bound = keywords.get(keyword)?;
        let is_right = compared(value, bound).is_some_and(|order| right.contains(&order));
        (!is_right).then(|| format!("it must be {words} {bound}, and is {value}"))
    })
}

fn of_count(
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

/// The order of two numbers.
fn compared(one: &Value, other: &Value) -> Option<Ordering> {
    if let (Some(one), Some(other)) = (one.as_i64(), other.as_i64()) {
        return Some(one.cmp(&other));
    }
    if let (Some(one), Some(other)) = (one.as_u64(), other.as_u64()) {
        return Some(one.cmp(&other));
    }
    one.as_f64()?.partial_cmp(&other.as_f64()?)
}

/// Whether two values are the same to a schema: 1 is 1.0.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(_), Value::Number(_)) => compared(one, other) == Some(Ordering::Equal),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| same(value, other)))
        }
        (one, other) => one == other,
    }
}

fn quoted(value: &Value) -> String {
    let text = value.to_string();
    let short: String = text.chars().take(QUOTED_CHARS_MAX).collect();
    if short.len() < text.len() { format!("{short}…") } else { text }
}

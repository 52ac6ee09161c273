//! Which schemas are taken: each keyword is known and has the form that it must have. Pure.

use serde_json::Value;

use super::{part, within};

/// Schemas within schemas: deeper is no person's.
const DEPTH_MAX: usize = 64;
/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1000;

/// A schema that is not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at `#{at}`: {what}")]
pub struct SchemaError {
    /// Where, as a JSON pointer.
    pub at: String,
    /// What is wrong there.
    pub what: String,
}

/// What a keyword's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Anything: it says nothing that is checked.
    Note,
    /// A type, or several.
    Types,
    /// A list of values.
    Values,
    /// A value.
    Any,
    /// A schema.
    Schema,
    /// A list of schemas.
    Schemas,
    /// Schemas by name.
    Named,
    /// A count.
    Count,
    /// A number.
    Number,
    /// A list of names.
    Names,
    /// A truth value.
    Flag,
    /// A regular expression.
    Pattern,
    /// A reference.
    Reference,
}

const KEYWORDS: [(&str, Form); 40] = [
    ("$schema", Form::Note),
    ("$comment", Form::Note),
    ("title", Form::Note),
    ("description", Form::Note),
    ("default", Form::Note),
    ("examples", Form::Note),
    ("deprecated", Form::Note),
    ("format", Form::Note),
    ("$ref", Form::Reference),
    ("$defs", Form::Named),
    ("definitions", Form::Named),
    ("type", Form::Types),
    ("enum", Form::Values),
    ("const", Form::Any),
    ("properties", Form::Named),
    ("additionalProperties", Form::Schema),
    ("propertyNames", Form::Schema),
    ("required", Form::Names),
    ("minProperties", Form::Count),
    ("maxProperties", Form::Count),
    ("items", Form::Schema),
    ("prefixItems", Form::Schemas),
    ("contains", Form::Schema),
    ("minItems", Form::Count),
    ("maxItems", Form::Count),
    ("uniqueItems", Form::Flag),
    ("minLength", Form::Count),
    ("maxLength", Form::Count),
    ("pattern", Form::Pattern),
    ("minimum", Form::Number),
    ("maximum", Form::Number),
    ("exclusiveMinimum", Form::Number),
    ("exclusiveMaximum", Form::Number),
    ("allOf", Form::Schemas),
    ("anyOf", Form::Schemas),
    ("oneOf", Form::Schemas),
    ("not", Form::Schema),
    ("if", Form::Schema),
    ("then", Form::Schema),
    ("else", Form::Schema),
];

/// Types that a schema names.
pub(super) const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "integer", "string"];

/// Checks a schema whole.
///
/// # Errors
/// The first thing that is not taken.
pub fn check(schema: &Value) -> Result<(), SchemaError> {
    if !schema.is_object() {
        return Err(wrong("", "a schema of an answer must be an object"));
    }
    Walk { root: schema }.schema(schema, "", 0)
}

struct Walk<'a> {
    root: &'a Value,
}

fn wrong(at: &str, what: impl Into<String>) -> SchemaError {
    SchemaError { at: at.to_owned(), what: what.into() }
}

impl Walk<'_> {
    fn schema(&self, schema: &Value, at: &str, depth: usize) -> Result<(), SchemaError> {
        let keywords = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(keywords) => keywords,
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(wrong(at, "a schema must be an object, true or false"));
            }
        };
        if depth > DEPTH_MAX {
            return Err(wrong(at, format!("it is nested deeper than {DEPTH_MAX}")));
        }
        for (keyword, value) in keywords {
            let at = format!("{at}/{}", part(keyword));
            let Some((_, form)) = KEYWORDS.iter().find(|(known, _)| known == keyword) else {
                let known: Vec<&str> = KEYWORDS.iter().map(|(known, _)| *known).collect();
                return Err(wrong(
                    &at,
                    format!("`{keyword}` is not held here; what is: {}", known.join(", ")),
                ));
            };
            self.keyword(*form, value, &at, depth)?;
        }
        self.ends(schema, at)
    }

    fn keyword(&self, form: Form, value: &Value, at: &str, depth: usize) -> Result<(), SchemaError> {
        let must = |holds: bool, what: &str| {
            if holds { Ok(()) } else { Err(wrong(at, format!("it must be {what}"))) }
        };
        match form {
            Form::Note | Form::Any => Ok(()),
            Form::Types => {
                let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
                let several = value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(is_type));
                must(is_type(value) || several, &format!("one of {}, or a list of them", TYPES.join(", ")))
            }
            Form::Values => must(
                value.as_array().is_some_and(|all| !all.is_empty()),
                "a list of values, not an empty one",
            ),
            Form::Schema => self.schema(value, at, depth + 1),
            Form::Schemas => {
                let all = value.as_array().filter(|all| !all.is_empty());
                let all = all.ok_or_else(|| wrong(at, "it must be a list of schemas, not an empty one"))?;
                all.iter()
                    .enumerate()
                    .try_for_each(|(nth, one)| self.schema(one, &format!("{at}/{nth}"), depth + 1))
            }
            Form::Named => {
                let all = value.as_object().ok_or_else(|| wrong(at, "it must be an object of schemas"))?;
                all.iter()
                    .try_for_each(|(name, one)| self.schema(one, &format!("{at}/{}", part(name)), depth + 1))
            }
            Form::Count => must(value.as_u64().is_some(), "a whole number from 0"),
            Form::Number => must(value.is_number(), "a number"),
            Form::Names => {
                must(value.as_array().is_some_and(|all| all.iter().all(Value::is_string)), "a list of names")
            }
            Form::Flag => must(value.is_boolean(), "true or false"),
            Form::Pattern => {
                let text = value.as_str().filter(|text| text.len() <= PATTERN_BYTES_MAX);
                let pattern = text.map(regex::Regex::new);
                match pattern {
                    Some(Ok(_)) => Ok(()),
                    Some(Err(_)) | None => {
                        must(false, "a regular expression without look-around and back-references")
                    }
                }
            }
            Form::Reference => {
                let reference = value.as_str().unwrap_or_default();
                let leads = within(self.root, reference).is_some();
                must(leads, "a pointer into this schema, as #/$defs/step; nothing is fetched from elsewhere")
            }
        }
    }

    /// Whether what holds for the same value comes to an end: a reference that leads back to itself never does.
    fn ends(&self, schema: &Value, at: &str) -> Result<(), SchemaError> {
        let mut open = vec![(schema, Vec::new())];
        let mut steps = 0_usize;
        while let Some((schema, path)) = open.pop() {
            steps += 1;
            if steps > STEPS_MAX {
                return Err(wrong(at, "it says too much of one value"));
            }
            for (next, reference) in same_value(self.root, schema) {
                let mut path: Vec<&str> = path.clone();
                if let Some(reference) = reference {
                    if path.contains(&reference) {
                        return Err(wrong(at, format!("`{reference}` leads back to itself")));
                    }
                    path.push(reference);
                }
                open.push((next, path));
            }
        }
        Ok(())
    }
}

/// Schemas that hold for one value, looked at.
const STEPS_MAX: usize = 2000;

/// The schemas that hold for the same value as this one, with the reference that leads there.
fn same_value<'a>(root: &'a Value, schema: &'a Value) -> Vec<(&'a Value, Option<&'a str>)> {
    let mut all = Vec::new();
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str)
        && let Some(leads) = within(root, reference)
    {
        all.push((leads, Some(reference)));
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        all.extend(
            schema.get(keyword).and_then(Value::as_array).into_iter().flatten().map(|one| (one, None)),
        );
    }
    for keyword in ["not", "if", "then", "else"] {
        all.extend(schema.get(keyword).map(|one| (one, None)));
    }
    all
}

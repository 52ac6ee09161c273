//! Checks whether a schema is supported: each keyword is known and has a valid value. Pure.

use serde_json::Value;

use super::{escape_pointer_token, resolve_reference};

/// Nesting depth of schemas: no person writes deeper ones.
const DEPTH_MAX: usize = 64;
/// Longest pattern, in bytes.
const PATTERN_BYTES_MAX: usize = 1000;

/// An unsupported schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("at `#{at}`: {what}")]
pub struct SchemaError {
    /// The location, as a JSON pointer.
    pub at: String,
    /// The problem there.
    pub what: String,
}

/// What a keyword's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeywordForm {
    /// Anything: the keyword is not validated.
    Annotation,
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
    SchemaMap,
    /// A count.
    Count,
    /// A number.
    Number,
    /// A list of names.
    StringList,
    /// A boolean.
    Boolean,
    /// A regular expression.
    Pattern,
    /// A reference.
    Reference,
}

const KEYWORDS: [(&str, KeywordForm); 40] = [
    ("$schema", KeywordForm::Annotation),
    ("$comment", KeywordForm::Annotation),
    ("title", KeywordForm::Annotation),
    ("description", KeywordForm::Annotation),
    ("default", KeywordForm::Annotation),
    ("examples", KeywordForm::Annotation),
    ("deprecated", KeywordForm::Annotation),
    ("format", KeywordForm::Annotation),
    ("$ref", KeywordForm::Reference),
    ("$defs", KeywordForm::SchemaMap),
    ("definitions", KeywordForm::SchemaMap),
    ("type", KeywordForm::Types),
    ("enum", KeywordForm::Values),
    ("const", KeywordForm::Any),
    ("properties", KeywordForm::SchemaMap),
    ("additionalProperties", KeywordForm::Schema),
    ("propertyNames", KeywordForm::Schema),
    ("required", KeywordForm::StringList),
    ("minProperties", KeywordForm::Count),
    ("maxProperties", KeywordForm::Count),
    ("items", KeywordForm::Schema),
    ("prefixItems", KeywordForm::Schemas),
    ("contains", KeywordForm::Schema),
    ("minItems", KeywordForm::Count),
    ("maxItems", KeywordForm::Count),
    ("uniqueItems", KeywordForm::Boolean),
    ("minLength", KeywordForm::Count),
    ("maxLength", KeywordForm::Count),
    ("pattern", KeywordForm::Pattern),
    ("minimum", KeywordForm::Number),
    ("maximum", KeywordForm::Number),
    ("exclusiveMinimum", KeywordForm::Number),
    ("exclusiveMaximum", KeywordForm::Number),
    ("allOf", KeywordForm::Schemas),
    ("anyOf", KeywordForm::Schemas),
    ("oneOf", KeywordForm::Schemas),
    ("not", KeywordForm::Schema),
    ("if", KeywordForm::Schema),
    ("then", KeywordForm::Schema),
    ("else", KeywordForm::Schema),
];

/// Types that a schema may name.
pub(super) const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "integer", "string"];

/// Checks a full schema.
///
/// # Errors
/// The first unsupported part.
pub fn check_schema(schema: &Value) -> Result<(), SchemaError> {
    if !schema.is_object() {
        return Err(schema_error("", "a schema of an answer must be an object"));
    }
    SchemaChecker { root: schema }.check_subschema(schema, "", 0)
}

struct SchemaChecker<'a> {
    root: &'a Value,
}

fn schema_error(at: &str, what: impl Into<String>) -> SchemaError {
    SchemaError { at: at.to_owned(), what: what.into() }
}

impl SchemaChecker<'_> {
    fn check_subschema(&self, schema: &Value, at: &str, depth: usize) -> Result<(), SchemaError> {
        let keywords = match schema {
            Value::Bool(_) => return Ok(()),
            Value::Object(keywords) => keywords,
            Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                return Err(schema_error(at, "a schema must be an object, true or false"));
            }
        };
        if depth > DEPTH_MAX {
            return Err(schema_error(at, format!("it is nested deeper than {DEPTH_MAX}")));
        }
        for (keyword, value) in keywords {
            let at = format!("{at}/{}", escape_pointer_token(keyword));
            let Some((_, form)) = KEYWORDS.iter().find(|(known, _)| known == keyword) else {
                let known: Vec<&str> = KEYWORDS.iter().map(|(known, _)| *known).collect();
                return Err(schema_error(
                    &at,
                    format!("`{keyword}` is not held here; what is: {}", known.join(", ")),
                ));
            };
            self.check_keyword(*form, value, &at, depth)?;
        }
        self.check_termination(schema, at)
    }

    fn check_keyword(
        &self,
        form: KeywordForm,
        value: &Value,
        at: &str,
        depth: usize,
    ) -> Result<(), SchemaError> {
        let must = |holds: bool, what: &str| {
            if holds { Ok(()) } else { Err(schema_error(at, format!("it must be {what}"))) }
        };
        match form {
            KeywordForm::Annotation | KeywordForm::Any => Ok(()),
            KeywordForm::Types => {
                let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
                let several = value.as_array().is_some_and(|all| !all.is_empty() && all.iter().all(is_type));
                must(is_type(value) || several, &format!("one of {}, or a list of them", TYPES.join(", ")))
            }
            KeywordForm::Values => must(
                value.as_array().is_some_and(|all| !all.is_empty()),
                "a list of values, not an empty one",
            ),
            KeywordForm::Schema => self.check_subschema(value, at, depth + 1),
            KeywordForm::Schemas => {
                let all = value.as_array().filter(|all| !all.is_empty());
                let all =
                    all.ok_or_else(|| schema_error(at, "it must be a list of schemas, not an empty one"))?;
                all.iter()
                    .enumerate()
                    .try_for_each(|(nth, one)| self.check_subschema(one, &format!("{at}/{nth}"), depth + 1))
            }
            KeywordForm::SchemaMap => {
                let all =
                    value.as_object().ok_or_else(|| schema_error(at, "it must be an object of schemas"))?;
                all.iter().try_for_each(|(name, one)| {
                    self.check_subschema(one, &format!("{at}/{}", escape_pointer_token(name)), depth + 1)
                })
            }
            KeywordForm::Count => must(value.as_u64().is_some(), "a whole number from 0"),
            KeywordForm::Number => must(value.is_number(), "a number"),
            KeywordForm::StringList => {
                must(value.as_array().is_some_and(|all| all.iter().all(Value::is_string)), "a list of names")
            }
            KeywordForm::Boolean => must(value.is_boolean(), "true or false"),
            KeywordForm::Pattern => {
                let text = value.as_str().filter(|text| text.len() <= PATTERN_BYTES_MAX);
                let pattern = text.map(regex::Regex::new);
                match pattern {
                    Some(Ok(_)) => Ok(()),
                    Some(Err(_)) | None => {
                        must(false, "a regular expression without look-around and back-references")
                    }
                }
            }
            KeywordForm::Reference => {
                let reference = value.as_str().unwrap_or_default();
                let leads = resolve_reference(self.root, reference).is_some();
                must(leads, "a pointer into this schema, as #/$defs/step; nothing is fetched from elsewhere")
            }
        }
    }

    /// Checks that validating one value terminates: a reference that leads back to itself never does.
    fn check_termination(&self, schema: &Value, at: &str) -> Result<(), SchemaError> {
        let mut open = vec![(schema, Vec::new())];
        let mut steps = 0_usize;
        while let Some((schema, path)) = open.pop() {
            steps += 1;
            if steps > STEPS_MAX {
                return Err(schema_error(at, "it says too much of one value"));
            }
            for (next, reference) in in_place_subschemas(self.root, schema) {
                let mut path: Vec<&str> = path.clone();
                if let Some(reference) = reference {
                    if path.contains(&reference) {
                        return Err(schema_error(at, format!("`{reference}` leads back to itself")));
                    }
                    path.push(reference);
                }
                open.push((next, path));
            }
        }
        Ok(())
    }
}

/// Schemas inspected that apply to one value.
const STEPS_MAX: usize = 2000;

/// Returns the schemas that apply to the same value as this one, with the reference that leads there.
fn in_place_subschemas<'a>(root: &'a Value, schema: &'a Value) -> Vec<(&'a Value, Option<&'a str>)> {
    let mut all = Vec::new();
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str)
        && let Some(leads) = resolve_reference(root, reference)
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

//! JSON Schema for model replies: draft 2020-12 without anything that reaches beyond the schema. Pure.
//!
//! Implemented here instead of with a library because validation errors are part of decisions: every later build must
//! derive the text and the verdict of a log again, byte for byte. A schema is checked in full when its role is
//! registered: an unsupported keyword is rejected there and never ignored, and a `$ref` must point into the same
//! schema; nothing is ever fetched.

mod schema_check;
mod validation;

pub use schema_check::{SchemaError, check_schema};
pub use validation::{SchemaViolation, find_violations};

use serde_json::Value;

/// Resolves a JSON pointer in a fragment (`#/$defs/step`).
fn resolve_reference<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    // An anchor name is not a pointer.
    if pointer.is_empty() || pointer.starts_with('/') { root.pointer(pointer) } else { None }
}

/// Escapes a key as a part of a JSON pointer.
fn escape_pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;

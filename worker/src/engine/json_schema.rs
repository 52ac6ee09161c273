//! JSON Schema of answers, as far as answers need it: draft 2020-12 without what reaches beyond the schema. Pure.
//!
//! It is our own, and not a library's, for what is wrong with an answer is part of a decision: the words, and the verdict,
//! of a log must be derived again by any later build to the byte. A schema is checked whole where its role is registered:
//! a keyword that is not held here is refused there and never ignored, and a `$ref` leads into the same schema or is refused;
//! nothing is ever fetched.

mod schema_check;
mod validation;

pub use schema_check::{SchemaError, check_schema};
pub use validation::{SchemaViolation, find_violations};

use serde_json::Value;

/// Where a JSON pointer of a fragment (`#/$defs/step`) leads.
fn resolve_reference<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    // A name of a place is none of a pointer.
    if pointer.is_empty() || pointer.starts_with('/') { root.pointer(pointer) } else { None }
}

/// A key as a part of a JSON pointer.
fn escape_pointer_token(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;

//! JSON that holds many objects: one a line, or all in an array. Gives each with the line it begins at, and
//! bounds it before it is looked into.

use serde_json::value::RawValue;

use super::{Faults, line::said};

/// Longest object, in bytes: the longest text with every character escaped, and room.
pub(super) const OBJECT_BYTES_MAX: usize = 1024 * 1024;

/// Calls `each` with every object of `text` and its line; what is none is a fault.
pub(super) fn objects<'a>(
    text: &'a str,
    faults: &mut Faults,
    mut each: impl FnMut(usize, &'a str, &mut Faults),
) {
    if text.trim_start().starts_with('[') {
        return array(text, faults, each);
    }
    for (at, line) in text.lines().enumerate() {
        if line.trim().is_empty() {
            continue;
        }
        if line.len() > OBJECT_BYTES_MAX {
            faults.add(at + 1, too_long(line.len()));
        } else {
            each(at + 1, line.trim(), faults);
        }
    }
}

fn too_long(bytes: usize) -> String {
    format!("it has {bytes} bytes, and a task may have {OBJECT_BYTES_MAX}")
}

fn array<'a>(text: &'a str, faults: &mut Faults, mut each: impl FnMut(usize, &'a str, &mut Faults)) {
    let elements: Vec<&'a RawValue> = match serde_json::from_str(text) {
        Ok(elements) => elements,
        Err(error) => {
            return faults.add(error.line(), format!("this is no array of objects: {}", said(&error)));
        }
    };
    let (mut line, mut counted) = (1, 0);
    for element in elements {
        let element = element.get();
        // A raw value is a part of the text it was read from.
        let begins = (element.as_ptr() as usize).saturating_sub(text.as_ptr() as usize).min(text.len());
        line += memchr::memchr_iter(b'\n', &text.as_bytes()[counted..begins]).count();
        counted = begins;
        if element.len() > OBJECT_BYTES_MAX {
            faults.add(line, too_long(element.len()));
        } else {
            each(line, element, faults);
        }
    }
}

/// Reads an object of somebody else's: fields that are not asked for are theirs.
pub(super) fn foreign<'a, T: serde::Deserialize<'a>>(object: &'a str) -> Result<T, String> {
    let mut from = serde_json::Deserializer::from_str(object);
    serde_path_to_error::deserialize(&mut from).map_err(|error| {
        let (path, words) = (error.path().to_string(), said(error.inner()));
        if path == "." { words } else { format!("`{path}`: {words}") }
    })
}

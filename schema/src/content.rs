//! Contents of payloads: inline text, inline bytes that are not UTF-8, or a reference to a blob.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::ids::BlobHash;

/// Maximum size of an inline part of a payload, in bytes; larger parts go into a blob. This keeps events
/// small enough that a page of several hundred can be read at once.
pub const INLINE_BYTES_MAX: usize = 8 * 1024;

/// A blob and its uncompressed size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct BlobRef {
    /// BLAKE3 of the uncompressed bytes.
    pub hash: BlobHash,
    /// Uncompressed size.
    pub bytes: u64,
}

impl BlobRef {
    /// Returns the reference for `bytes`.
    pub fn for_bytes(bytes: &[u8]) -> Self {
        Self { hash: BlobHash::hash_bytes(bytes), bytes: bytes.len() as u64 }
    }
}

/// Data that may be long or not UTF-8: output, prompt text, an argument.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Inline UTF-8 text.
    Text(String),
    /// Other inline bytes, as base64.
    B64(String),
    /// A reference to a blob.
    Blob(BlobRef),
}

impl Content {
    /// Stores `bytes` inline, whatever their size. Callers that may exceed [`INLINE_BYTES_MAX`] use
    /// [`Content::inline_or_blob`].
    pub fn inline(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::B64(STANDARD.encode(bytes)),
        }
    }

    /// Stores up to [`INLINE_BYTES_MAX`] bytes inline; otherwise returns a reference together with the bytes
    /// that the append must upload.
    pub fn inline_or_blob(bytes: Vec<u8>) -> (Self, Option<Vec<u8>>) {
        if bytes.len() <= INLINE_BYTES_MAX {
            (Self::inline(&bytes), None)
        } else {
            (Self::Blob(BlobRef::for_bytes(&bytes)), Some(bytes))
        }
    }

    /// Returns the referenced blob, if there is one.
    pub const fn blob_ref(&self) -> Option<BlobRef> {
        match self {
            Self::Blob(blob) => Some(*blob),
            Self::Text(_) | Self::B64(_) => None,
        }
    }

    /// Returns the inline bytes; `None` for a blob and for invalid base64.
    pub fn inline_bytes(&self) -> Option<Vec<u8>> {
        match self {
            Self::Text(text) => Some(text.clone().into_bytes()),
            Self::B64(text) => STANDARD.decode(text).ok(),
            Self::Blob(_) => None,
        }
    }

    /// Returns the inline text; for a blob, only its size.
    pub fn text_or_size(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::B64(_) => match self.inline_bytes() {
                Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
                None => "(damaged)".to_owned(),
            },
            Self::Blob(blob) => format!("({} bytes out of line)", blob.bytes),
        }
    }
}

impl Default for Content {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// A path in a workspace: relative, `/`-separated, any bytes except NUL. In JSON: a string, or `{"b64": …}`
/// if it is not UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspacePath(Vec<u8>);

impl WorkspacePath {
    /// Creates a path that is relative, without empty, `.` or `..` components and without NUL. Returns `None`
    /// for any other, because such a path could lead out of the workspace.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        let legal = !bytes.is_empty()
            && !bytes.contains(&0)
            && bytes.split(|b| *b == b'/').all(|part| !matches!(part, b"" | b"." | b".."));
        legal.then_some(Self(bytes))
    }

    /// Returns the path's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the components between the slashes.
    pub fn components(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|b| *b == b'/')
    }
}

impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

impl fmt::Debug for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkPath({self})")
    }
}

impl Serialize for WorkspacePath {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap as _;
        match std::str::from_utf8(&self.0) {
            Ok(text) => s.serialize_str(text),
            Err(_) => {
                let mut map = s.serialize_map(Some(1))?;
                map.serialize_entry("b64", &STANDARD.encode(&self.0))?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for WorkspacePath {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> de::Visitor<'de> for Form {
            type Value = WorkspacePath;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a relative path, or {\"b64\": …}")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<WorkspacePath, E> {
                WorkspacePath::new(text).ok_or_else(|| E::custom("the path would leave the workspace"))
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<WorkspacePath, A::Error> {
                let Some((key, text)) = map.next_entry::<String, String>()? else {
                    return Err(de::Error::custom("an empty path object"));
                };
                if key != "b64" {
                    return Err(de::Error::unknown_field(&key, &["b64"]));
                }
                let bytes = STANDARD.decode(text).map_err(de::Error::custom)?;
                WorkspacePath::new(bytes)
                    .ok_or_else(|| de::Error::custom("the path would leave the workspace"))
            }
        }
        d.deserialize_any(Form)
    }
}

impl JsonSchema for WorkspacePath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "WorkspacePath".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [
            { "type": "string", "minLength": 1 },
            { "type": "object", "required": ["b64"], "properties": { "b64": { "type": "string" } } },
        ] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_escape_the_workspace_are_rejected() {
        for bad in ["", "/etc/passwd", "a//b", "../x", "a/../b", "./a", "a/", "a\0b"] {
            assert!(WorkspacePath::new(bad).is_none(), "{bad:?}");
        }
        assert!(WorkspacePath::new("a/b..c/.d").is_some());
    }

    #[test]
    fn non_utf8_bytes_round_trip_through_json() {
        let path = WorkspacePath::new(b"caf\xe9/x".to_vec()).expect("legal");
        let json = serde_json::to_string(&path).expect("serializes");
        assert_eq!(json, r#"{"b64":"Y2Fm6S94"}"#);
        assert_eq!(serde_json::from_str::<WorkspacePath>(&json).expect("reads back"), path);
        assert!(serde_json::from_str::<WorkspacePath>(r#""../x""#).is_err());

        let content = Content::inline(b"\xff\x00");
        assert_eq!(content.inline_bytes().as_deref(), Some(&b"\xff\x00"[..]));
    }

    #[test]
    fn content_over_the_limit_becomes_a_blob() {
        assert!(Content::inline_or_blob(vec![b'a'; INLINE_BYTES_MAX]).1.is_none());
        let (content, blob) = Content::inline_or_blob(vec![b'a'; INLINE_BYTES_MAX + 1]);
        assert_eq!(content.blob_ref(), blob.as_deref().map(BlobRef::for_bytes));
    }
}

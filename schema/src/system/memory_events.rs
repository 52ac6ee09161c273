//! Events that save and delete memory that outlives a run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    content::BlobRef,
    ids::{QueueName, RunId},
    message::CallId,
};

/// Maximum length of a key, in characters.
pub const MEMORY_KEY_CHARS_MAX: usize = 128;
/// Maximum length of a value, in bytes: a note, not a file.
pub const MEMORY_VALUE_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of keys in one scope, so that their list remains readable.
pub const MEMORY_KEYS_MAX: usize = 1000;
/// Number of characters of a value shown in lists.
pub const MEMORY_PREVIEW_CHARS: usize = 80;
/// Maximum length of a repository's name, in bytes.
pub const MEMORY_REPOSITORY_BYTES_MAX: usize = 4096;

/// Whether the key is valid: one printable line.
pub fn is_memory_key(key: &str) -> bool {
    let chars = key.chars().count();
    (1..=MEMORY_KEY_CHARS_MAX).contains(&chars) && key.trim() == key && !key.chars().any(char::is_control)
}

/// Returns the beginning of a value, on one line.
pub fn memory_preview(value: &str) -> String {
    let mut begin: String =
        value.trim().lines().next().unwrap_or_default().chars().take(MEMORY_PREVIEW_CHARS).collect();
    if begin.len() < value.trim().len() {
        begin.push('…');
    }
    begin
}

/// The runs that share a memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemoryScope {
    /// Runs whose base came from this source: a local folder or a remote's address.
    Repository(String),
    /// Runs of tasks of this queue.
    Queue(QueueName),
}

/// The call of a run that changed a memory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct MemoryCall {
    /// The run.
    pub run: RunId,
    /// Its call.
    pub call: CallId,
}

/// A value was saved under a key, replacing the previous one. Recorded in `system/memory`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemorySaved {
    /// The memory's scope.
    pub scope: MemoryScope,
    /// The key.
    pub key: String,
    /// The value.
    pub value: BlobRef,
    /// The value's beginning, for lists.
    pub begins: String,
    /// The call that saved it.
    pub by: MemoryCall,
}

/// A key was deleted. Recorded in `system/memory`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemoryForgotten {
    /// The key's scope.
    pub scope: MemoryScope,
    /// The key.
    pub key: String,
    /// The call that deleted it; none if a person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<MemoryCall>,
    /// Who deleted it: a token's name, or the run.
    pub by: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_key_is_a_single_line() {
        for (key, good) in [
            ("a", true),
            ("build/how to test", true),
            ("ü", true),
            ("", false),
            (" a", false),
            ("a\nb", false),
            ("a\u{0}", false),
        ] {
            assert_eq!(is_memory_key(key), good, "{key:?}");
        }
        assert!(is_memory_key(&"ü".repeat(128)) && !is_memory_key(&"a".repeat(129)));
        assert_eq!(memory_preview("\n one\ntwo"), "one…");
        assert_eq!(memory_preview(""), "");
    }
}

//! A provider's API key, in a type that cannot be printed. The key comes from the supervisor's environment
//! through an inherited pipe; this type keeps it out of log lines, errors and panics. Code that needs the
//! text calls [`Secret::expose`], which a reviewer can search for.

use std::fmt;

use docket_schema::redact::{REDACTED_KEY, is_secret_key};

/// An API key. `Debug` and `Display` print [`REDACTED_KEY`]; the memory is overwritten on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Creates a key from the text of an environment variable. Surrounding white space is a copying mistake
    /// and is removed. Returns `None` if nothing remains.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.as_bytes().to_vec()))
    }

    /// The key itself, for the request header and for redacting it from a server's response.
    pub fn expose(&self) -> &str {
        std::str::from_utf8(&self.0).expect("created from a str and never changed")
    }

    /// Returns `text` with every occurrence of the key redacted. A key too short to be secret is left alone:
    /// `x` is part of half of all words.
    pub fn redact_from(&self, text: &str) -> String {
        if is_secret_key(self.expose(), false) {
            text.replace(self.expose(), REDACTED_KEY)
        } else {
            text.to_owned()
        }
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without a reader the optimizer may remove the write.
        std::hint::black_box(&self.0);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED_KEY)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED_KEY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_never_printed() {
        let key = Secret::new(" sk-abcdef\n").expect("not empty");
        assert_eq!(format!("{key} {key:?}"), "[secret] [secret]");
        assert_eq!(key.expose(), "sk-abcdef");
        assert_eq!(key.redact_from("bad key sk-abcdef, sk-abcdef"), "bad key [secret], [secret]");
        let word = Secret::new("ollama").expect("not empty");
        assert_eq!(word.redact_from("ollama serves"), "ollama serves");
        assert!(Secret::new(" \n").is_none());
    }
}

//! A provider's key, in a type that cannot be printed. It comes from the environment of the
//! supervisor by way of an inherited pipe; this file only keeps it from leaking into a log line, an
//! error or a panic. Whoever needs the text says [`Secret::expose`], which a reviewer can search for.

use std::fmt;

use docket_schema::redact::{REDACTED_KEY, is_secret_key};

/// A key. `Debug` and `Display` show [`STRUCK_KEY`]; the memory is overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes a key as it stands in the environment; surrounding white space is a copying mistake and
    /// is cut off. `None` when nothing remains.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.as_bytes().to_vec()))
    }

    /// The key itself: for the request's header, and to strike it out of what a server echoes.
    pub fn expose(&self) -> &str {
        std::str::from_utf8(&self.0).expect("made from a str and never changed")
    }

    /// `text` with every occurrence of the key struck out. A key that is no secret stays: `x` is in half of all words.
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
        // Without a reader the optimizer may leave the write out.
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

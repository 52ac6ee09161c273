//! A token or key in a type that cannot be printed by accident.
//!
//! Whoever needs the text says [`Secret::expose`], which a reviewer can search for. It has no
//! `Serialize`: what crosses a process boundary is copied out deliberately.

use std::fmt;

/// A token or key. `Debug` shows `[secret]`; the bytes are overwritten when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes the text as it stands in a file or the environment: white space around it comes from
    /// copying and is cut off. `None` where nothing remains.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim();
        (!text.is_empty()).then(|| Self(text.as_bytes().to_vec()))
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        std::str::from_utf8(&self.0).expect("made from a str and never changed")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.fill(0);
        // Nobody reads the bytes again, so the optimizer may leave the write out without this.
        std::hint::black_box(&self.0);
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[secret]")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        let token = Secret::new(" dk_1234\n").unwrap();
        assert_eq!(format!("{token:?}"), "[secret]");
        assert_eq!(token.expose(), "dk_1234");
        assert!(Secret::new("\n ").is_none());
    }
}

//! Escapes text for display to a model. Command output and file contents are untrusted: some servers reject
//! control characters, and hidden characters can carry instructions that no person sees. Called only by
//! rendering; pure.

use std::borrow::Cow;

/// Converts bytes to text: invalid UTF-8 becomes U+FFFD, and invisible characters are escaped.
pub(super) fn visible_text_from_bytes(bytes: &[u8]) -> Cow<'_, str> {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(text) => escape_hidden_chars(text),
        Cow::Owned(text) => Cow::Owned(escape_hidden_chars(&text).into_owned()),
    }
}

/// Returns `text` with control characters (except tab, line feed, carriage return), bidirectional overrides,
/// zero-width spaces and tag characters written as `\u{…}`. Joiners are kept, because scripts and emoji need
/// them.
pub(super) fn escape_hidden_chars(text: &str) -> Cow<'_, str> {
    // Nearly all text is plain, and this is the only pass over every byte of every request.
    if text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t' | b'\n' | b'\r')) {
        return Cow::Borrowed(text);
    }
    let Some(first) = text.char_indices().find(|(_, c)| is_hidden_char(*c)).map(|(at, _)| at) else {
        return Cow::Borrowed(text);
    };
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(&text[..first]);
    for c in text[first..].chars() {
        if is_hidden_char(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

const fn is_hidden_char(c: char) -> bool {
    match c {
        '\t' | '\n' | '\r' => false,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' => true,
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2060}' | '\u{feff}' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}' => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_characters_are_escaped_and_all_others_kept() {
        for (bytes, shown) in [
            (&b"plain\ttext\r\n"[..], "plain\ttext\r\n"),
            (b"\x1b[31mred\x00", "\\u{1b}[31mred\\u{0}"),
            (b"caf\xe9", "caf\u{fffd}"),
            ("a\u{202e}b\u{e0041}c\u{200b}".as_bytes(), "a\\u{202e}b\\u{e0041}c\\u{200b}"),
            ("नी\u{200d} 👩\u{200d}💻".as_bytes(), "नी\u{200d} 👩\u{200d}💻"),
        ] {
            assert_eq!(visible_text_from_bytes(bytes), shown);
        }
    }
}

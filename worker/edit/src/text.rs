//! Lossless decoding of a file into lines: byte-order mark, line ending per line, missing final
//! newline, invalid UTF-8.

use unicode_normalization::UnicodeNormalization;

/// First of the characters that carry invalid UTF-8 bytes: in the last private-use block. A file
/// that has invalid bytes must not contain these characters itself.
const ESCAPE_BASE: u32 = 0x0010_FE00;

/// One line without its ending.
#[derive(Debug, Clone, Copy)]
pub(super) struct TextLine<'a> {
    pub(super) text: &'a str,
    /// Byte offset of the line in the decoded text.
    pub(super) start: usize,
    /// `"\n"`, `"\r\n"`, `"\r"`; empty only for a last line without an ending.
    pub(super) eol: &'a str,
}

impl TextLine<'_> {
    pub(super) const fn end(&self) -> usize {
        self.start + self.text.len()
    }

    pub(super) const fn end_with_eol(&self) -> usize {
        self.end() + self.eol.len()
    }

    pub(super) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }
}

/// Losslessly decoded text.
#[derive(Debug)]
pub(super) struct DecodedText {
    pub(super) text: String,
    /// Whether some bytes were escaped.
    pub(super) has_escaped_bytes: bool,
}

/// Decodes `bytes`. Returns `None` if the file contains both invalid bytes and the escape
/// characters themselves.
pub(super) fn decode(bytes: &[u8]) -> Option<DecodedText> {
    let mut text = String::with_capacity(bytes.len());
    let mut escaped = false;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        for byte in chunk.invalid() {
            escaped = true;
            text.push(escape_byte(*byte));
        }
    }
    if escaped && bytes.utf8_chunks().any(|chunk| chunk.valid().chars().any(is_escaped_byte)) {
        return None;
    }
    Some(DecodedText { text, has_escaped_bytes: escaped })
}

/// Returns the bytes from which [`decode`] made this text.
pub(super) fn encode(text: &str, escaped: bool) -> Vec<u8> {
    if !escaped {
        return text.as_bytes().to_vec();
    }
    let mut out = Vec::with_capacity(text.len());
    for c in text.chars() {
        match u8::try_from(u32::from(c).wrapping_sub(ESCAPE_BASE)) {
            Ok(byte) if is_escaped_byte(c) => out.push(byte),
            Ok(_) | Err(_) => out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    out
}

fn escape_byte(byte: u8) -> char {
    char::from_u32(ESCAPE_BASE + u32::from(byte))
        .expect("the block ends at U+10FEFF, below the last character")
}

/// Returns whether `c` carries an invalid byte.
pub(super) fn is_escaped_byte(c: char) -> bool {
    (ESCAPE_BASE..ESCAPE_BASE + 0x100).contains(&u32::from(c))
}

/// Splits at `\n` and `\r\n`. A lone `\r` is an ordinary character, unless it is the only line ending
/// in the text.
pub(super) fn split_lines(text: &str) -> Vec<TextLine<'_>> {
    let mut out = Vec::new();
    if !text.contains('\n') && text.contains('\r') {
        let mut start = 0;
        for piece in text.split_inclusive('\r') {
            let body = piece.strip_suffix('\r').unwrap_or(piece);
            out.push(TextLine { text: body, start, eol: &piece[body.len()..] });
            start += piece.len();
        }
        return out;
    }
    let mut start = 0;
    while start < text.len() {
        let rest = &text[start..];
        let (body, eol) = match rest.find('\n') {
            Some(at) if at > 0 && rest.as_bytes()[at - 1] == b'\r' => (&rest[..at - 1], &rest[at - 1..=at]),
            Some(at) => (&rest[..at], &rest[at..=at]),
            None => (rest, ""),
        };
        out.push(TextLine { text: body, start, eol });
        start += body.len() + eol.len();
    }
    out
}

/// Returns the most frequent line ending; `"\n"` if there is none.
pub(super) fn dominant_eol(lines: &[TextLine<'_>]) -> &'static str {
    let crlf = lines.iter().filter(|line| line.eol == "\r\n").count();
    let lf = lines.iter().filter(|line| line.eol == "\n").count();
    match lines.first() {
        Some(line) if line.eol == "\r" => "\r",
        Some(_) | None if crlf > lf => "\r\n",
        Some(_) | None => "\n",
    }
}

/// Returns the leading whitespace of a line.
pub(super) fn leading_indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

/// Collapses runs of whitespace into one space and trims the ends.
pub(super) fn collapse_whitespace(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    for word in line.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// Returns the non-blank lines of a text, each passed through [`collapse_whitespace`].
pub(super) fn collapsed_lines(text: &str) -> Vec<String> {
    text.lines().map(collapse_whitespace).filter(|line| !line.is_empty()).collect()
}

/// Removes whitespace and folds quote style and look-alike punctuation.
pub(super) fn fold_lookalikes(line: &str) -> String {
    folded_chars(line).collect()
}

/// Like [`fold_lookalikes`], as an iterator of characters. All canonically equivalent forms of an accent
/// fold alike.
pub(super) fn folded_chars(line: &str) -> impl Iterator<Item = char> {
    let (plain, other) = if line.is_ascii() { (line, "") } else { ("", line) };
    let letters = plain.chars().chain(other.nfc());
    letters.filter(|c| !c.is_whitespace() && !is_invisible(*c)).flat_map(fold_char)
}

/// Returns whether `c` is a zero-width character, which text picks up on its way through a model.
pub(super) const fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{ad}')
}

/// Folds one character; `…` becomes three dots.
pub(super) fn fold_char(c: char) -> impl Iterator<Item = char> {
    let (c, n) = match c {
        '\'' | '`' | '\u{2018}'..='\u{201f}' | '\u{2032}' | '\u{2033}' | '\u{ab}' | '\u{bb}' => ('"', 1),
        '\u{2010}'..='\u{2015}' | '\u{2212}' => ('-', 1),
        '\u{2026}' => ('.', 3),
        '\u{d7}' => ('x', 1),
        // Full-width forms of ASCII.
        '\u{ff01}'..='\u{ff5e}' => (char::from_u32(u32::from(c) - 0xfee0).unwrap_or(c), 1),
        other => (other, 1),
    };
    std::iter::repeat_n(c, n)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_round_trip(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(decoded) = decode(&bytes) {
                prop_assert_eq!(encode(&decoded.text, decoded.has_escaped_bytes), bytes);
                let joined: String =
                    split_lines(&decoded.text).iter().flat_map(|line| [line.text, line.eol]).collect();
                prop_assert_eq!(joined, decoded.text);
            }
        }
    }

    #[test]
    fn lookalikes_fold_to_ascii() {
        assert_eq!(fold_lookalikes("cafe\u{301}"), "caf\u{e9}");
        assert_eq!(fold_lookalikes("say(“it’s”) – ok…"), "say(\"it\"s\")-ok...");
    }
}

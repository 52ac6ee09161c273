//! Makes output of commands and files safe for a model: control characters are escaped, long text is cut in the
//! middle.
//!
//! Output is untrusted: characters that move a cursor, or hide or reorder text, are shown escaped, never passed on.

/// Decodes bytes: invalid UTF-8 is replaced, terminal sequences are removed, a line that overwrote itself is reduced
/// to its last state, and characters that hide or reorder others are written as `\u{…}`.
#[must_use]
pub fn printable_text(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut line_start = 0;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\n' => {
                out.push('\n');
                line_start = out.len();
            }
            '\t' => out.push('\t'),
            '\r' if chars.peek() == Some(&'\n') => {}
            '\r' => out.truncate(line_start),
            '\u{8}' => {
                if out.len() > line_start {
                    out.pop();
                }
            }
            '\u{1b}' => skip_escape_sequence(&mut chars),
            c if is_hidden_char(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

/// Escapes a file's text for a model: characters that hide, reorder or overwrite others are written as `\u{…}`, and
/// nothing is left out. A file is not a terminal, so text before a carriage return is kept.
pub(crate) fn escape_hidden(text: &str) -> String {
    if !text.chars().any(|c| c != '\t' && is_hidden_char(c)) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if c != '\t' && is_hidden_char(c) {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

/// Skips what follows an escape character: a CSI sequence, an OSC string, or one character.
fn skip_escape_sequence(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            for c in chars.by_ref() {
                if ('\u{40}'..='\u{7e}').contains(&c) || c == '\n' {
                    break;
                }
            }
        }
        Some(']') => {
            while let Some(c) = chars.next() {
                if c == '\u{7}' || (c == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) || c == '\n' {
                    break;
                }
            }
        }
        Some(_) => {
            chars.next();
        }
        None => {}
    }
}

/// Control characters, bidirectional overrides, zero-width characters, tag characters.
fn is_hidden_char(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}'
            | '\u{e0000}'..='\u{e007f}')
}

/// Returns the text, or its first and last `chars_max / 2` characters with a line in between that says how much is
/// missing. The flag says whether it was cut.
#[must_use]
pub fn cut_middle(text: &str, chars_max: usize) -> (String, bool) {
    let total = text.chars().count();
    if total <= chars_max {
        return (text.to_owned(), false);
    }
    let half = chars_max / 2;
    let at = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    let (head, tail) = (&text[..at(half)], &text[at(total - half)..]);
    (format!("{head}\n[… {} characters left out …]\n{tail}", total - 2 * half), true)
}

/// Cuts one line to at most `chars_max` characters.
pub(crate) fn cut_line(line: &str, chars_max: usize) -> String {
    match line.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}… [{} more characters]", &line[..at], line[at..].chars().count()),
        None => line.to_owned(),
    }
}

/// Cuts one line to at most `chars_max` characters around the byte `at`, so that a hit stays visible.
pub(crate) fn cut_around(line: &str, at: usize, chars_max: usize) -> String {
    let before = line.get(..at).map_or(0, |begin| begin.chars().count());
    if before + chars_max / 4 <= chars_max {
        return cut_line(line, chars_max);
    }
    let skipped = before - chars_max / 4;
    let from = line.char_indices().nth(skipped).map_or(line.len(), |(from, _)| from);
    format!("[{skipped} characters] …{}", cut_line(&line[from..], chars_max))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hidden_characters_are_escaped() {
        let cases: [(&[u8], &str); 7] = [
            (b"a\x1b[31mred\x1b[0m\r\n", "ared\n"),
            (b"\x1b]0;title\x07x", "x"),
            (b"10%\r50%\rdone\n", "done\n"),
            (b"nul\0", "nul\\u{0}"),
            ("a\u{202e}b".as_bytes(), "a\\u{202e}b"),
            ("t\u{e0041}".as_bytes(), "t\\u{e0041}"),
            (b"\xff", "\u{fffd}"),
        ];
        for (bytes, want) in cases {
            assert_eq!(printable_text(bytes), want);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_become_printable(bytes in prop::collection::vec(any::<u8>(), 0..300), max in 0usize..100) {
            let text = printable_text(&bytes);
            prop_assert!(text.chars().all(|c| c == '\n' || c == '\t' || !is_hidden_char(c)));
            let (cut, was) = cut_middle(&text, max);
            prop_assert_eq!(was, text.chars().count() > max);
            prop_assert!(was || cut == text);
        }
    }
}

//! Error signatures: equal for equal causes, so that "the same error three times" can be counted.

/// Longest signature, in characters: enough to distinguish errors, short enough to be inline in every event.
const SIGNATURE_CHARS_MAX: usize = 160;

/// Reduces an error's text: hexadecimal addresses, temporary paths, folders of absolute paths, quoted hashes and
/// numbers become marks, and white space is collapsed.
#[must_use]
pub fn error_signature(text: &str) -> String {
    let mut out = String::new();
    for word in text.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        normalize_word(word, &mut out);
    }
    out.chars().take(SIGNATURE_CHARS_MAX).collect()
}

fn normalize_word(word: &str, out: &mut String) {
    if let Some(at) = ["/tmp/", "/var/tmp/", "/dev/shm/"].iter().find_map(|dir| word.find(dir)) {
        normalize_numbers(&word[..at], out);
        out.push_str("TMP");
        // The text after the path, such as `:12:` or a closing quote, is kept.
        let rest = &word[at..];
        let end = rest.find([':', '"', '\'', '`', ')', ',', ';']).unwrap_or(rest.len());
        normalize_numbers(&rest[end..], out);
    } else if let Some((at, name)) = find_absolute_path(word) {
        normalize_numbers(&word[..at], out);
        out.push_str("PATH");
        // The file name itself is meaningful in any folder.
        normalize_numbers(&word[name..], out);
    } else {
        normalize_numbers(word, out);
    }
}

/// Finds where an absolute path with a folder begins in a word, and the `/` before its last name.
fn find_absolute_path(word: &str) -> Option<(usize, usize)> {
    let at = word.find('/')?;
    let begins = word[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && !"._-~*".contains(c));
    let rest = &word[at..];
    let end = rest.find([':', '"', '\'', '`', ')', ',', ';', '(', '|']).unwrap_or(rest.len());
    let name = rest[..end].rfind('/').filter(|name| *name > 0)?;
    // `//` is a URL or a comment.
    (begins && !rest.starts_with("//")).then_some((at, at + name))
}

fn normalize_numbers(word: &str, out: &mut String) {
    let mut rest = word;
    while let Some(first) = rest.chars().next() {
        let hex = rest.strip_prefix("0x").map(|digits| 2 + prefix_length(digits, |c| c.is_ascii_hexdigit()));
        let long_hex = prefix_length(rest, |c| c.is_ascii_hexdigit());
        let at_word = out.chars().next_back().is_none_or(|c| !c.is_alphanumeric());
        if let Some(length) = hex {
            out.push_str("ADDR");
            rest = &rest[length..];
        } else if at_word && long_hex >= HASH_DIGITS_MIN {
            out.push_str("HASH");
            rest = &rest[long_hex..];
        } else if first.is_ascii_digit() {
            out.push('N');
            rest = &rest[prefix_length(rest, |c| c.is_ascii_digit())..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
}

/// Hexadecimal digits in a row from which on a word counts as a hash.
const HASH_DIGITS_MIN: usize = 12;

fn prefix_length(text: &str, is: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is(c)).unwrap_or(text.len())
}

/// The line of a command's output that best names its error: the last one that mentions an error, otherwise the last
/// one with text.
/// else the last one with text.
pub(crate) fn error_line(output: &str) -> Option<&str> {
    let speaks = |line: &&str| {
        let line = line.to_lowercase();
        ["error", "panicked", "exception", "fatal", "not found", "failed", "cannot"]
            .iter()
            .any(|w| line.contains(w))
    };
    let mut lines = output.lines().map(str::trim).filter(|line| !line.is_empty()).rev();
    lines.clone().find(speaks).or_else(|| lines.next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_causes_have_equal_signatures() {
        let same = [
            ("line 12: bad value 7", "line 900: bad value 33"),
            ("object at 0x7f00aa12", "object at 0xdeadbeef"),
            ("open /tmp/tmp_a1/x.py: no", "open /tmp/zz/y.py: no"),
            ("cannot open /srv/app/alice/main.py: no module", "cannot open /srv/app/bob/main.py: no module"),
            ("File \"/home/a/p/x.py\", line 3", "File \"/usr/lib/x.py\", line 70"),
            ("see (/opt/a/b.c:12)", "see (/work/b.c:9)"),
            ("blob 0123456789abcdef missing", "blob fedcba9876543210 missing"),
        ];
        for (a, b) in same {
            assert_eq!(error_signature(a), error_signature(b));
        }
        assert_ne!(error_signature("no attribute 'a'"), error_signature("no attribute 'b'"));
        assert_ne!(error_signature("no /usr/include/a.h"), error_signature("no /usr/include/b.h"));
        for same in ["https://a.example/b/c gone", "src/a/b.py missing", "and/or / no", "// x /y"] {
            assert_eq!(error_signature(same), same);
        }
        assert_eq!(error_signature(&"x".repeat(999)).len(), SIGNATURE_CHARS_MAX);
    }

    #[test]
    fn line_that_names_the_error_is_found() {
        assert_eq!(error_line("a\nValueError: x\nbye\n"), Some("ValueError: x"));
        assert_eq!(error_line("a\nb\n\n"), Some("b"));
        assert_eq!(error_line(""), None);
    }
}

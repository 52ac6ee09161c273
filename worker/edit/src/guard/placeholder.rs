//! Rejects placeholders for redacted values: `[REDACTED]`, `***`, docket's own mark.
//!
//! A model that saw a placeholder writes it back in place of the value, and the file loses its secret.
//! An edit may not add one: a placeholder is allowed only if the edited lines already contained it.

use docket_schema::redact::REDACTED_KEY;

/// Returns the first placeholder of `new` that `old` does not contain.
pub(crate) fn find_new_placeholder(old: &str, new: &str) -> Option<String> {
    let there: Vec<&str> = old.lines().flat_map(find_placeholders).collect();
    new.lines().flat_map(find_placeholders).find(|found| !there.contains(found)).map(str::to_owned)
}

/// Maximum length in characters of a bracketed placeholder. A longer one is text.
const BRACKETED_CHARS_MAX: usize = 48;
/// Minimum number of asterisks that stand for a value.
const STARS_MIN: usize = 3;
/// Maximum number of characters of a value left visible before or after its asterisks.
const REVEALED_CHARS_MAX: usize = 16;

fn find_placeholders(line: &str) -> Vec<&str> {
    let mut out = Vec::new();
    for (at, sign) in line.char_indices() {
        let (before, rest) = (&line[..at], &line[at..]);
        let found = match sign {
            '[' | '<' => match_bracketed(before, rest),
            '*' if !before.ends_with('*') => match_starred(before, rest),
            '"' | '\'' | '`' => match_quoted(rest, sign),
            '_' if !before.ends_with('_') => {
                rest.strip_prefix("__REDACTED__").map(|after| text_before(rest, after))
            }
            _ => None,
        };
        out.extend(found);
    }
    out
}

/// Returns the part of `text` before its suffix `rest`.
fn text_before<'a>(text: &'a str, rest: &str) -> &'a str {
    &text[..text.len() - rest.len()]
}

fn match_bracketed<'a>(before: &str, rest: &'a str) -> Option<&'a str> {
    // `list[redacted]` and `Vec<Redacted>` are code.
    if before.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ']' | ')')) {
        return None;
    }
    let close = if rest.starts_with('[') { ']' } else { '>' };
    let end = rest.char_indices().take(BRACKETED_CHARS_MAX).find(|(_, c)| *c == close)?.0;
    let (inner, whole) = (&rest[1..end], &rest[..=end]);
    let first = inner.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let hidden = match close {
        ']' => {
            matches!(first, "REDACTED" | "Redacted")
                || inner == "redacted"
                || matches!(inner, "MASKED" | "FILTERED" | "HIDDEN")
                || (whole == REDACTED_KEY && is_value_position(before, &rest[end + 1..]))
        }
        _ => first == "REDACTED" || inner == "redacted",
    };
    hidden.then_some(whole)
}

/// Returns whether a value is expected between `before` and `after`. docket's mark is also valid code
/// for a list with one variable, so it counts only in such a position.
fn is_value_position(before: &str, after: &str) -> bool {
    let ended = after.is_empty() || after.starts_with(|c: char| " \t\"'`@&;,/".contains(c));
    let quoted = before.ends_with(['"', '\'', '`']) && after.starts_with(['"', '\'', '`']);
    let glued = before.ends_with('=') || before.ends_with("Bearer ") || before.contains("://");
    quoted || (ended && (glued || (before.trim_end().ends_with(':') && mentions_secret(before))))
}

fn match_starred<'a>(before: &str, rest: &'a str) -> Option<&'a str> {
    let after = rest.trim_start_matches('*');
    let stars = rest.len() - after.len();
    if stars < STARS_MIN {
        return None;
    }
    if let Some(more) = after.strip_prefix("REDACTED") {
        return Some(text_before(rest, more.trim_start_matches('*')));
    }
    let kept = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let head = before.trim_end_matches(kept);
    let tail = after.trim_start_matches(kept);
    if before.len() - head.len() > REVEALED_CHARS_MAX || after.len() - tail.len() > REVEALED_CHARS_MAX {
        return None;
    }
    let quoted = head.ends_with(['"', '\'', '`']) && tail.starts_with(['"', '\'', '`']);
    // Without quotes, letters after the asterisks are a dereferenced name: `= ***key`.
    let bare = (head.ends_with('=') || head.trim_end().ends_with(':') || head.ends_with("Bearer "))
        && after.len() == tail.len()
        && (tail.is_empty() || tail.starts_with([' ', '"', '\'', ';', ',']));
    let user = head.ends_with(':') && head.contains("://") && tail.starts_with('@');
    ((quoted || bare) && mentions_secret(head) || user).then(|| text_before(rest, after))
}

fn match_quoted(rest: &str, sign: char) -> Option<&str> {
    let after = rest[1..].strip_prefix("REDACTED")?.strip_prefix(sign)?;
    Some(text_before(rest, after))
}

/// Returns whether the text before a value marks it as a secret.
fn mentions_secret(before: &str) -> bool {
    let before = before.to_lowercase();
    let names = ["key", "token", "secret", "passw", "pwd", "credential", "auth", "bearer", "://"];
    names.iter().any(|name| before.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::apply_edit;

    #[test]
    fn placeholders_are_recognized() {
        for (line, want) in [
            ("key = \"[REDACTED]\"", "[REDACTED]"),
            ("key = [redacted]", "[redacted]"),
            ("a: [REDACTED: 24 characters]", "[REDACTED: 24 characters]"),
            ("token=<REDACTED_TOKEN>", "<REDACTED_TOKEN>"),
            ("x = '<redacted>'", "<redacted>"),
            ("x = '***REDACTED***'", "***REDACTED***"),
            ("x = \"REDACTED\"", "\"REDACTED\""),
            ("x = __REDACTED__", "__REDACTED__"),
            ("API_KEY=[secret]", "[secret]"),
            ("api_key: \"[secret]\"", "[secret]"),
            ("Authorization: Bearer [secret]", "[secret]"),
            ("token: [secret]", "[secret]"),
            ("password = \"***\"", "***"),
            ("API_KEY=sk-****", "****"),
            ("api_key: 'sk-*****cdef'", "*****"),
            ("db = 'postgres://user:***@host/x'", "***"),
            ("Authorization: Bearer ********", "********"),
        ] {
            assert_eq!(find_placeholders(line).first(), Some(&want), "{line}");
        }
    }

    #[test]
    fn code_is_not_a_placeholder() {
        for line in [
            "value = process.env[secret]",
            "hide([secret])",
            "const keys = [secret];",
            "const [redacted, setRedacted] = useState(0)",
            "x[redacted] = 1",
            "let x: Vec<Redacted> = vec![];",
            "<Redacted />",
            "let key = ***pointer;",
            "/*** token ***/",
            "**bold** ***both***",
            "char ***token_list;",
            "* * *",
            "print('***')",
            "x = \"****************\"  # a line",
            "pub const REDACTED: &str = \"hidden\";",
            "glob = \"**/*.rs\"",
        ] {
            assert!(find_placeholders(line).is_empty(), "{line}: {:?}", find_placeholders(line));
        }
    }

    #[test]
    fn existing_placeholder_may_stay() {
        assert_eq!(find_new_placeholder("a = \"[REDACTED]\"", "b = \"[REDACTED]\""), None);
        assert_eq!(find_new_placeholder("a = 'sk-1'", "a = '[REDACTED]'").as_deref(), Some("[REDACTED]"));
        assert_eq!(find_new_placeholder("", "plain\nlines"), None);
    }

    #[test]
    fn placeholder_never_replaces_a_value() {
        let file = "import os\nkey = \"sk-abc123\"\nmode = 1\n";
        for mark in ["[REDACTED]", "[secret]", "***", "<redacted>", "sk-****"] {
            for (search, replace) in [
                ("key = \"sk-abc123\"\nmode = 1", format!("key = \"{mark}\"\nmode = 2")),
                ("import os", format!("import os\nsecret_key = \"{mark}\"")),
                ("sk-abc123", mark.to_owned()),
            ] {
                let error = apply_edit(file, search, &replace).expect_err(mark);
                assert!(error.contains("was hidden"), "{mark}: {error}");
            }
            // The model saw the mark instead of the value: either the file keeps its value, or the edit
            // is refused.
            let seen = apply_edit(
                file,
                &format!("import os\nkey = \"{mark}\"\nmode = 1"),
                &format!("import os\nkey = \"{mark}\"\nmode = 2"),
            );
            if let Ok(after) = seen {
                assert_eq!(after, file.replace("mode = 1", "mode = 2"));
            }
        }
        assert!(apply_edit(file, "mode = 1", "mode = 2  # was [1]").is_ok());
    }
}

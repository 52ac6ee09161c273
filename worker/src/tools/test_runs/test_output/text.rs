//! Extracts numbers and blocks from output lines.

/// The number directly before `word` in `text`: `2 failed`.
pub(super) fn number_before(text: &str, word: &str) -> Option<u32> {
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '(' | ')'))
        .filter(|word| !word.is_empty())
        .collect();
    words.windows(2).find(|two| two[1] == word).and_then(|two| two[0].parse().ok())
}

/// The number after `key` in `text`: `failures=1`.
pub(super) fn number_after(text: &str, key: &str) -> Option<u32> {
    let rest = &text[text.find(key)? + key.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Counts the lines that match.
pub(super) fn count_lines(lines: &[&str], is: impl Fn(&str) -> bool) -> u32 {
    u32::try_from(lines.iter().filter(|line| is(line)).count()).unwrap_or(u32::MAX)
}

/// Joins the lines from `first` up to the next line that `ends` accepts.
pub(super) fn join_block(lines: &[&str], first: usize, ends: impl Fn(&str) -> bool) -> String {
    let last = lines[first + 1..].iter().position(|line| ends(line)).map_or(lines.len(), |at| first + 1 + at);
    lines[first..last].join("\n").trim_end().to_owned()
}

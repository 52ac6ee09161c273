//! Tokenizes lines, diffs them by token, and performs the three-way merge of a line that search,
//! file and replacement each have in their own form.

use super::text::fold_lookalikes;

/// Splits into words (letters, digits, `_`), runs of whitespace, and single other characters.
pub(super) fn tokenize(line: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let class = CharClass::from_char(first);
        let end = match class {
            CharClass::Symbol => first.len_utf8(),
            CharClass::Word | CharClass::Whitespace => rest
                .char_indices()
                .find(|(_, c)| CharClass::from_char(*c) != class)
                .map_or(rest.len(), |(at, _)| at),
        };
        out.push(&rest[..end]);
        rest = &rest[end..];
    }
    out
}

#[derive(PartialEq, Eq, Clone, Copy)]
enum CharClass {
    Word,
    Whitespace,
    Symbol,
}

impl CharClass {
    fn from_char(c: char) -> Self {
        if c.is_alphanumeric() || c == '_' {
            Self::Word
        } else if c.is_whitespace() {
            Self::Whitespace
        } else {
            Self::Symbol
        }
    }
}

pub(super) fn is_word(token: &str) -> bool {
    token.chars().next().is_some_and(|c| CharClass::from_char(c) == CharClass::Word)
}

fn is_blank(token: &str) -> bool {
    token.chars().all(char::is_whitespace)
}

/// A range of `a` that became a range of `b`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DiffChange {
    pub(super) old_range: std::ops::Range<usize>,
    pub(super) new_range: std::ops::Range<usize>,
}

/// Maximum size of the diff table. Above it, the difference counts as one change, which bounds
/// memory.
const DIFF_CELLS_MAX: usize = 4_000_000;

/// Returns the changes from `a` to `b`, in order and never adjacent. `weight` is the value of an
/// equal element: the alignment with the greatest sum wins.
pub(super) fn diff_slices<T: PartialEq>(a: &[T], b: &[T], weight: impl Fn(&T) -> u32) -> Vec<DiffChange> {
    let head = a.iter().zip(b).take_while(|(x, y)| x == y).count();
    let tail = a[head..].iter().rev().zip(b[head..].iter().rev()).take_while(|(x, y)| x == y).count();
    let (a_mid, b_mid) = (&a[head..a.len() - tail], &b[head..b.len() - tail]);
    let (n, m) = (a_mid.len(), b_mid.len());
    if n == 0 && m == 0 {
        return Vec::new();
    }
    if n == 0 || m == 0 || n.saturating_mul(m) > DIFF_CELLS_MAX {
        return vec![DiffChange { old_range: head..head + n, new_range: head..head + m }];
    }
    let width = m + 1;
    let mut best = vec![0u32; (n + 1) * width];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            let skip = best[(i + 1) * width + j].max(best[i * width + j + 1]);
            best[i * width + j] = if a_mid[i] == b_mid[j] {
                skip.max(best[(i + 1) * width + j + 1] + weight(&a_mid[i]))
            } else {
                skip
            };
        }
    }
    let mut out: Vec<DiffChange> = Vec::new();
    let (mut i, mut j) = (0, 0);
    let mut push = |a: std::ops::Range<usize>, b: std::ops::Range<usize>| match out.last_mut() {
        Some(last) if last.old_range.end == a.start && last.new_range.end == b.start => {
            last.old_range.end = a.end;
            last.new_range.end = b.end;
        }
        Some(_) | None => out.push(DiffChange { old_range: a, new_range: b }),
    };
    while i < n || j < m {
        let here = best[i * width + j];
        if i < n && j < m && a_mid[i] == b_mid[j] && here == best[(i + 1) * width + j + 1] + weight(&a_mid[i])
        {
            i += 1;
            j += 1;
        } else if i < n && here == best[(i + 1) * width + j] {
            push(head + i..head + i + 1, head + j..head + j);
            i += 1;
        } else {
            push(head + i..head + i, head + j..head + j + 1);
            j += 1;
        }
    }
    out
}

fn token_weight(token: &&str) -> u32 {
    if is_word(token) {
        2 + u32::try_from(token.len()).unwrap_or(u32::MAX).min(20)
    } else if is_blank(token) {
        1
    } else {
        2
    }
}

/// Returns the changes from one tokenized line to another.
pub(super) fn diff_tokens(a: &[&str], b: &[&str]) -> Vec<DiffChange> {
    diff_slices(a, b, token_weight)
}

/// Merges the change from `search` to `replace` into `file`. Returns `None` if file and replacement
/// changed the same words in different ways and the file's change is not merely a typo in the
/// search.
pub(super) fn merge_line(search: &str, file: &str, replace: &str, knows_file: bool) -> Option<String> {
    if search == file || file == replace {
        return Some(replace.to_owned());
    }
    if search == replace {
        return Some(file.to_owned());
    }
    let (s, f, r) = (tokenize(search), tokenize(file), tokenize(replace));
    let (to_file, to_replace) = (diff_tokens(&s, &f), diff_tokens(&s, &r));
    let mut out = String::new();
    let mut at = 0;
    let (mut x, mut y) = (to_file.iter().peekable(), to_replace.iter().peekable());
    loop {
        let next = match (x.peek(), y.peek()) {
            (None, None) => break,
            (Some(c), None) | (None, Some(c)) => c.old_range.start,
            (Some(c), Some(d)) => c.old_range.start.min(d.old_range.start),
        };
        s[at..next].iter().for_each(|token| out.push_str(token));
        // Extend over all overlapping or adjacent changes of both sides.
        let mut end = next;
        let (mut from_file, mut from_replace) = (Vec::new(), Vec::new());
        loop {
            let touches = |c: &DiffChange| c.old_range.start < end || c.old_range.start == next;
            if let Some(c) = x.next_if(|c| touches(c)) {
                end = end.max(c.old_range.end);
                from_file.push(c);
            } else if let Some(c) = y.next_if(|c| touches(c)) {
                end = end.max(c.old_range.end);
                from_replace.push(c);
            } else {
                break;
            }
        }
        let base = s[next..end].concat();
        let ours = apply_side_changes(&s, &f, next..end, &from_file);
        let theirs = apply_side_changes(&s, &r, next..end, &from_replace);
        // Whitespace at the end of a line is not before a word.
        let blank = file_only_blank(&base, &ours, &theirs).filter(|_| next < s.len()).unwrap_or_default();
        // Text inserted before a word, as in a list, leaves the space to that word.
        let both = if base.is_empty() && theirs.ends_with([',', ';']) { blank } else { "" };
        out.push_str(blank);
        out.push_str(&resolve_conflict(&base, &ours[blank.len()..], &theirs, knows_file)?);
        out.push_str(both);
        at = end;
    }
    s[at..].iter().for_each(|token| out.push_str(token));
    Some(out)
}

/// Returns what one side made of `range` of the base.
fn apply_side_changes(
    base: &[&str],
    other: &[&str],
    range: std::ops::Range<usize>,
    changes: &[&DiffChange],
) -> String {
    let mut out = String::new();
    let mut at = range.start;
    for change in changes {
        out.push_str(&base[at..change.old_range.start].concat());
        out.push_str(&other[change.new_range.clone()].concat());
        at = change.old_range.end;
    }
    out.push_str(&base[at..range.end].concat());
    out
}

fn resolve_conflict(base: &str, ours: &str, theirs: &str, knows_file: bool) -> Option<String> {
    let odd_blank = theirs == base && is_unusual_blank(ours) && is_blank(base);
    if ours == base || ours == theirs || odd_blank {
        Some(theirs.to_owned())
    } else if theirs == base {
        Some(ours.to_owned())
    } else if knows_file || (is_typo(base, ours) && words(base).len() == words(ours).len()) {
        // Two words are not one word with an extra space: the change may belong to either.
        Some(theirs.to_owned())
    } else {
        None
    }
}

/// Returns the whitespace that only the file has before the changed text: the edit does not concern it.
fn file_only_blank<'a>(base: &str, ours: &'a str, theirs: &str) -> Option<&'a str> {
    let blank = &ours[..ours.len() - ours.trim_start().len()];
    let bare = |text: &str| !text.starts_with(char::is_whitespace);
    (!blank.is_empty() && !is_unusual_blank(blank) && bare(base) && bare(theirs) && !theirs.is_empty())
        .then_some(blank)
}

/// Returns whether the text is an unusual space, such as the no-break space, which is lost when a
/// model rewrites the line.
fn is_unusual_blank(text: &str) -> bool {
    !text.is_empty() && is_blank(text) && !text.is_ascii()
}

/// Returns whether `said` is a typo of `real`: equal except for look-alikes and whitespace, or
/// every differing word is within a few letters of its counterpart and no number differs.
pub(super) fn is_typo(said: &str, real: &str) -> bool {
    if fold_lookalikes(said) == fold_lookalikes(real) {
        return true;
    }
    let (a, b) = (words(said), words(real));
    let signs =
        |text: &str| fold_lookalikes(&tokenize(text).into_iter().filter(|t| !is_word(t)).collect::<String>());
    a.len() == b.len()
        && signs(said) == signs(real)
        && a.iter().zip(&b).all(|(x, y)| x == y || is_word_typo(x, y))
}

/// Returns the words of a text, in order.
pub(super) fn words(text: &str) -> Vec<&str> {
    tokenize(text).into_iter().filter(|token| is_word(token)).collect()
}

/// Returns whether one word is the other mistyped: letters lost, doubled, swapped or replaced, with
/// the same digits.
pub(super) fn is_word_typo(said: &str, real: &str) -> bool {
    let digits = |word: &str| word.chars().filter(char::is_ascii_digit).collect::<String>();
    if digits(said) != digits(real) {
        return false;
    }
    let longest = said.chars().count().max(real.chars().count());
    let distance = strsim::osa_distance(said, real);
    // Short words often differ by one letter (`i`, `j`; `row`, `col`), and words that differ only
    // in the last letter are more often two names (`total_a`, `total_b`) than a typo.
    let allowed = match longest {
        0..=3 => 0,
        4..=11 => 1,
        _ => 2,
    };
    let swapped = distance == 1 && said.chars().count() == real.chars().count() && {
        let mut pair: Vec<char> = said.chars().collect();
        let mut other: Vec<char> = real.chars().collect();
        pair.sort_unstable();
        other.sort_unstable();
        pair == other
    };
    let suffix_only = said.len().abs_diff(real.len()) == 0
        && said.chars().zip(real.chars()).position(|(x, y)| x != y) == Some(longest - 1);
    swapped || (distance <= allowed && !suffix_only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_keeps_changes_of_both_sides() {
        let cases = [
            ("f(recieve, b)", "f(receive, b)", "f(receive, b, c)", Some("f(receive, b, c)")),
            ("a = old(x)  # one", "a = old(x)  # two", "a = new(x)  # one", Some("a = new(x)  # two")),
            ("call(alpha)", "call(gamma_value)", "call(beta)", None),
            ("x = \"k\"", "x = 'k'", "x = \"k\" + 1", Some("x = 'k' + 1")),
        ];
        for (search, file, replace, want) in cases {
            assert_eq!(merge_line(search, file, replace, false).as_deref(), want, "{search}");
        }
    }

    #[test]
    fn file_whitespace_before_changed_word_is_kept() {
        for (search, file, replace, want) in [
            ("replicas:2", "replicas: 2", "replicas:3", Some("replicas: 3")),
            ("-b", "- b", "-c", Some("- c")),
            ("#Title", "# Title", "#Other", Some("# Other")),
            ("if [ $a=1 ]; then", "if [ $a = 1 ]; then", "if [ $a=2 ]; then", Some("if [ $a = 2 ]; then")),
            ("y=2", "y = 2", "y=3", Some("y = 3")),
            ("bar(c,d)", "bar(c, d)", "bar(c,e)", Some("bar(c, e)")),
            ("y:=g(b)", "y := g(b)", "y:=h(b)", Some("y := h(b)")),
            ("color:red;", "color: red;", "color:blue;", Some("color: blue;")),
            ("f(a,b)", "f(a, b)", "f(a,x,b)", Some("f(a, x, b)")),
            ("f(a,b,c)", "f(a, b, c)", "f(a,c)", Some("f(a, c)")),
            ("y=2", "y=  2", "y= 3", Some("y= 3")),
            ("f(a)", "f(a)  ", "f(a),", Some("f(a),")),
            ("inta;", "int a;", "intb;", None),
            ("x = not in", "x = notin", "x = not on", None),
        ] {
            assert_eq!(merge_line(search, file, replace, false).as_deref(), want, "{search}");
        }
    }

    #[test]
    fn deliberately_different_names_are_not_typos() {
        for (said, real) in
            [("total_a", "total_b"), ("x1", "x2"), ("row", "col"), ("item10", "item11"), ("beta", "gamma")]
        {
            assert!(!is_word_typo(said, real), "{said} {real}");
        }
        for (said, real) in [("recieve", "receive"), ("queyrFn", "queryFn"), ("prepaare", "prepare")] {
            assert!(is_word_typo(said, real), "{said} {real}");
        }
    }
}

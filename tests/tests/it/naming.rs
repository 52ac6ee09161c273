//! Limits on names, comments and texts for people: no private dialect. A name is a verb or a noun phrase that can be
//! guessed and searched for; a text uses the field's usual words.
//!
//! The figures are shares and rates over the whole workspace, so a single exception does not fail the test. A longer name
//! that says no more than a short one is no gain: reviewers judge names, this test only catches a drift.

use std::collections::BTreeMap;

use docket_tests::source_structure::is_test_file;

use crate::code_rules::{read_sources, repository_root};

/// Functions whose name is one word, in percent.
const ONE_WORD_FUNCTIONS_MAX: f64 = 40.0;
/// Functions whose name is a bare participle (`told`, `held`, `resolved`), in percent.
const PARTICIPLES_MAX: f64 = 1.0;
/// Types whose name is one word, in percent.
const ONE_WORD_TYPES_MAX: f64 = 15.0;
/// Type names that are distinct within their crate, in percent.
const DISTINCT_TYPES_MIN: f64 = 97.0;
/// Test names that begin with a relative clause, in percent.
const RELATIVE_TEST_NAMES_MAX: f64 = 0.5;
/// Occurrences of one phrase in a thousand lines of comments.
const COMMENT_PHRASE_RATE_MAX: f64 = 1.0;
/// Occurrences of one phrase in a thousand lines of texts. To reach: 1.0. The rest is in prompts and tool results, which
/// change when the golden logs are recorded again.
const TEXT_PHRASE_RATE_MAX: f64 = 1.6;

/// Participles without the ending `-ed`.
const IRREGULAR_PARTICIPLES: &[&str] = &[
    "told", "shown", "said", "held", "kept", "found", "made", "given", "taken", "seen", "begun", "drawn",
    "laid", "met", "sent", "left", "put", "brought", "meant", "known", "gone", "grown", "lent", "paid",
    "spoken", "stood", "wanted",
];
/// Phrases of the old dialect. Each is rare in technical English.
const PHRASES: &[&str] = &[
    "whoever",
    "somebody",
    "nobody",
    "is told",
    "are told",
    "what is",
    "that which",
    "stands",
    "goes on",
    "came to",
    "wherever",
    "where it",
    "anew",
    "by then",
    "at hand",
    "what becomes of",
    "mend",
    "is no longer than",
    "whom",
];
const RELATIVE_WORDS: &[&str] = &["what_", "who_", "whom_", "whose_", "whoever_", "where_", "whatever_"];

#[derive(Default)]
struct NameFigures {
    functions: Vec<String>,
    test_functions: Vec<String>,
    /// By crate: its type names with their number of definitions.
    types: BTreeMap<String, BTreeMap<String, usize>>,
    comments: Vec<String>,
    texts: Vec<String>,
}

/// The name after `keyword` at the beginning of a line, behind visibility and qualifiers.
fn defined_name<'a>(line: &'a str, keywords: &[&str]) -> Option<&'a str> {
    let mut rest = line;
    if let Some(after) = rest.strip_prefix("pub") {
        rest = after
            .strip_prefix('(')
            .map_or(after, |after| after.split_once(')').map_or(after, |(_, rest)| rest));
    }
    loop {
        rest = rest.trim_start();
        let (word, after) = rest.split_once(' ')?;
        if keywords.contains(&word) {
            let end = after.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(after.len());
            return (end > 0).then(|| &after[..end]);
        }
        if !["const", "async", "unsafe"].contains(&word) {
            return None;
        }
        rest = after;
    }
}

/// String literals of a line that hold a space, without their quotes.
fn sentences(line: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = line.chars();
    let mut current: Option<String> = None;
    while let Some(c) = chars.next() {
        match (&mut current, c) {
            (Some(text), '\\') => text.extend(chars.next()),
            (Some(_), '"') => found.extend(current.take().filter(|text| text.contains(' '))),
            (None, '"') => current = Some(String::new()),
            (Some(text), c) => text.push(c),
            (None, _) => {}
        }
    }
    found
}

fn collect_figures() -> NameFigures {
    let mut figures = NameFigures::default();
    for (path, text) in ["schema", "coordinator", "worker", "tests"].into_iter().flat_map(read_sources) {
        let is_test = path.starts_with("tests/") || path.contains("/tests/") || is_test_file(&path);
        let (product, tests) = match text.split_once("#[cfg(test)]\nmod tests {") {
            _ if is_test => ("", text.as_str()),
            Some((product, tests)) => (product, tests),
            None => (text.as_str(), ""),
        };
        let function = |line: &str| defined_name(line.trim_start(), &["fn"]).map(str::to_owned);
        figures.test_functions.extend(tests.lines().filter_map(function));
        figures.functions.extend(product.lines().filter_map(function));
        let crate_name = path.split("/src/").next().unwrap_or_default().to_owned();
        for line in product.lines() {
            if let Some(name) = defined_name(line, &["struct", "enum", "trait"]) {
                *figures.types.entry(crate_name.clone()).or_default().entry(name.to_owned()).or_default() +=
                    1;
            }
            match line.trim_start().strip_prefix("//") {
                Some(comment) => figures.comments.push(comment.to_lowercase()),
                None => figures.texts.extend(sentences(&line.to_lowercase())),
            }
        }
    }
    let mut folders = vec![repository_root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder of the repository").flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let is_skipped = ["target", "node_modules", ".git"].iter().any(|skipped| name == *skipped);
            let is_text =
                path.extension().is_some_and(|end| ["md", "js", "html", "toml"].iter().any(|e| end == *e));
            if path.is_dir() {
                folders.extend((!is_skipped).then_some(path));
            } else if is_text && name != "CHANGELOG.md" {
                let text = std::fs::read_to_string(path).expect("a text file is UTF-8");
                figures.texts.extend(text.lines().map(str::to_lowercase));
            }
        }
    }
    figures
}

fn percent(part: usize, whole: usize) -> f64 {
    let count = |n: usize| f64::from(u32::try_from(n).expect("a count of lines or names"));
    100.0 * count(part) / count(whole.max(1))
}

fn words_in_type_name(name: &str) -> usize {
    name.chars().filter(char::is_ascii_uppercase).count()
}

fn is_participle(name: &str) -> bool {
    !name.contains('_') && (name.ends_with("ed") || IRREGULAR_PARTICIPLES.contains(&name))
}

/// Occurrences of `phrase` between word boundaries.
fn count_phrase(lines: &[String], phrase: &str) -> usize {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let in_line = |line: &String| {
        let starts = line.match_indices(phrase);
        starts
            .filter(|(at, _)| {
                !is_word(line[..*at].chars().next_back())
                    && !is_word(line[at + phrase.len()..].chars().next())
            })
            .count()
    };
    lines.iter().map(in_line).sum()
}

#[test]
fn function_names_are_verbs_or_nouns() {
    let figures = collect_figures();
    let functions = &figures.functions;
    assert!(functions.len() > 5_000, "functions are found: {}", functions.len());
    let one_word = percent(functions.iter().filter(|name| !name.contains('_')).count(), functions.len());
    assert!(one_word <= ONE_WORD_FUNCTIONS_MAX, "{one_word:.1} % of the functions have one-word names");
    let participles: Vec<_> = functions.iter().filter(|name| is_participle(name)).collect();
    let share = percent(participles.len(), functions.len());
    assert!(share <= PARTICIPLES_MAX, "{share:.1} % of the functions are bare participles: {participles:?}");
    assert!(!functions.iter().any(|name| name == "of"), "a conversion is called `from_…`, `for_…` or `new`");
    let tests = &figures.test_functions;
    let relative: Vec<_> =
        tests.iter().filter(|name| RELATIVE_WORDS.iter().any(|word| name.starts_with(word))).collect();
    let share = percent(relative.len(), tests.len());
    assert!(
        share <= RELATIVE_TEST_NAMES_MAX,
        "{share:.1} % of the test names are relative clauses: {relative:?}"
    );
}

#[test]
fn type_names_are_noun_phrases_and_distinct() {
    let figures = collect_figures();
    let names = || figures.types.values().flatten();
    let total: usize = names().map(|(_, count)| count).sum();
    assert!(total > 1_500, "types are found: {total}");
    let one_word: usize =
        names().filter(|(name, _)| words_in_type_name(name) == 1).map(|(_, count)| count).sum();
    let share = percent(one_word, total);
    assert!(share <= ONE_WORD_TYPES_MAX, "{share:.1} % of the types have one-word names");
    let distinct = percent(names().count(), total);
    let repeated: Vec<_> = names().filter(|(_, count)| **count > 1).collect();
    assert!(distinct >= DISTINCT_TYPES_MIN, "{distinct:.1} % of the type names are distinct: {repeated:?}");
}

#[test]
fn comments_and_texts_have_no_dialect() {
    let figures = collect_figures();
    let kinds = [
        ("comment", &figures.comments, COMMENT_PHRASE_RATE_MAX),
        ("text", &figures.texts, TEXT_PHRASE_RATE_MAX),
    ];
    for (kind, lines, limit) in kinds {
        assert!(lines.len() > 10_000, "{kind} lines are found: {}", lines.len());
        for phrase in PHRASES {
            let rate = percent(count_phrase(lines, phrase), lines.len()) * 10.0;
            assert!(rate <= limit, "`{phrase}` occurs {rate:.1} times in a thousand {kind} lines");
        }
    }
}

#[test]
fn participles_and_phrases_are_recognized() {
    assert!(is_participle("held") && is_participle("resolved") && !is_participle("resolve_held"));
    assert_eq!(defined_name("pub(crate) const fn told(&self)", &["fn"]), Some("told"));
    assert_eq!(defined_name("pub struct Purse<'a> {", &["struct"]), Some("Purse"));
    assert_eq!(defined_name("impl Purse {", &["struct"]), None);
    assert_eq!(sentences(r#"f("a b", "c", "d \" e")"#), ["a b", "d \" e"]);
    let lines = ["whoever asks, mends; whoeverness".to_owned()];
    assert_eq!((count_phrase(&lines, "whoever"), count_phrase(&lines, "mend")), (1, 0));
}

//! Decides whether two similar lines are the same statement. A typo may differ; an operator, a number or
//! a word such as `not` may not, however similar the lines are otherwise.

use std::collections::HashSet;

use super::antonyms::are_antonyms;
use crate::{
    search_doc::SearchDoc,
    text::{collapse_whitespace, fold_char, is_invisible},
    tokens::{diff_slices, is_word, is_word_typo, tokenize, words},
};

/// Relation between a line of the search and a line of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineSimilarity {
    /// The same statement, except for typos, words of a comment, or words that the replacement has
    /// right.
    SameStatement,
    /// The line has words of its own.
    Unclear,
    /// Differs in an operator, number, keyword, or name used in the file: a different statement.
    OtherStatement,
}

/// Context for comparing two lines.
#[derive(Debug, Default)]
pub(crate) struct StatementContext {
    /// Words of the file. A typo yields a word that the file does not contain.
    file_words: HashSet<String>,
    /// Tokens of the lines that only the replacement has.
    new_line_tokens: Vec<Vec<String>>,
}

impl StatementContext {
    pub(crate) fn new(doc: &SearchDoc<'_>, search: &[String], replace: &[String]) -> Self {
        let new = replace.iter().filter(|line| !search.contains(line));
        let lines = doc.lines.iter().flat_map(|line| words(line.text));
        Self {
            file_words: lines.map(str::to_owned).collect(),
            new_line_tokens: new.map(|line| normalized_tokens(line)).collect(),
        }
    }

    /// Returns whether the replacement has `tokens[at]` between the same neighbors, where `said` does
    /// not.
    fn replacement_has(&self, said: &[String], tokens: &[String], at: &std::ops::Range<usize>) -> bool {
        let wanted = &tokens[at.start.saturating_sub(1)..(at.end + 1).min(tokens.len())];
        let holds = |line: &[String]| line.windows(wanted.len()).any(|part| part == wanted);
        !at.is_empty() && !holds(said) && self.new_line_tokens.iter().any(|line| holds(line))
    }
}

/// Tokens whose absence does not change a statement. All quote styles are folded to the last one.
const IGNORABLE_SIGNS: [&str; 3] = [",", ";", "\""];

/// Words that negate a statement or decide what happens to its value.
const SIGNIFICANT_WORDS: [&str; 22] = [
    "true", "false", "True", "False", "and", "or", "not", "is", "in", "if", "unless", "while", "until",
    "await", "async", "yield", "null", "None", "nil", "min", "max", "mut",
];

/// Compares a line of the search with a line of the file.
pub(crate) fn compare_lines(said: &str, real: &str, context: &StatementContext) -> LineSimilarity {
    if is_comment(said) && is_comment(real) {
        return compare_comments(said, real, context);
    }
    let (code_said, code_real) = (code_part(said), code_part(real));
    if code_said.len() == said.len() || code_real.len() == real.len() {
        return compare_code(said, real, context);
    }
    match compare_code(code_said, code_real, context) {
        LineSimilarity::SameStatement => {
            compare_comments(&said[code_said.len()..], &real[code_real.len()..], context)
        }
        other => other,
    }
}

fn compare_code(said: &str, real: &str, context: &StatementContext) -> LineSimilarity {
    let (a, b) = (normalized_tokens(said), normalized_tokens(real));
    let mut out = LineSimilarity::SameStatement;
    for change in diff_slices(&a, &b, |token| u32::try_from(token.len()).unwrap_or(1)) {
        let (x, y) = (&a[change.old_range.clone()], &b[change.new_range.clone()]);
        let harmless = || x.iter().chain(y).all(|token| IGNORABLE_SIGNS.contains(&token.as_str()));
        let slip = |(x, y): (&String, &String)| x == y || is_typo_of(x, y, &context.file_words);
        let slips = || x.len() == y.len() && x.iter().zip(y).all(slip);
        if harmless() || slips() || context.replacement_has(&a, &b, &change.new_range) {
            continue;
        }
        // A word that occurs elsewhere in the file is not a typo: it belongs to another line.
        let named = || x.iter().any(|word| context.file_words.contains(word));
        if x.iter().chain(y).any(|token| is_significant(token)) || has_antonyms(x, y) || named() {
            return LineSimilarity::OtherStatement;
        }
        out = LineSimilarity::Unclear;
    }
    out
}

/// Compares comments. Their words may differ, except for words that change the meaning, and for another
/// name of the file in a comment that is code, such as an example or a commented-out statement.
fn compare_comments(said: &str, real: &str, context: &StatementContext) -> LineSimilarity {
    let (said, real) = (comment_text(said), comment_text(real));
    let code = looks_like_code(said) && looks_like_code(real);
    let (a, b) = (normalized_tokens(said), normalized_tokens(real));
    for change in diff_slices(&a, &b, |token| u32::try_from(token.len()).unwrap_or(1)) {
        let (x, y) = (&a[change.old_range.clone()], &b[change.new_range.clone()]);
        let number = |token: &String| token.starts_with(|c: char| c.is_ascii_digit());
        let turns = |token: &String| number(token) || COMMENT_MEANING_TOKENS.contains(&token.as_str());
        let another = || match (x, y) {
            ([x], [y]) => {
                code && is_word(x) && context.file_words.contains(x) && !is_typo_of(x, y, &context.file_words)
            }
            _ => false,
        };
        let other = x.iter().chain(y).any(turns) || has_antonyms(x, y) || another();
        if other && !context.replacement_has(&a, &b, &change.new_range) {
            return LineSimilarity::OtherStatement;
        }
    }
    LineSimilarity::SameStatement
}

/// Tokens that change the meaning of a comment.
const COMMENT_MEANING_TOKENS: [&str; 22] = [
    "and", "or", "not", "true", "false", "True", "False", "null", "None", "=", "<", ">", "+", "&", "|", "!",
    "[", "]", "(", ")", "{", "}",
];

fn has_antonyms(x: &[String], y: &[String]) -> bool {
    x.iter().any(|x| y.iter().any(|y| are_antonyms(x, y)))
}

/// Strips the comment marker.
fn comment_text(comment: &str) -> &str {
    comment.trim_start_matches(|c: char| c.is_whitespace() || "/*#!-;<".contains(c))
}

fn looks_like_code(text: &str) -> bool {
    let text = text.trim_end();
    text.ends_with([';', '{', '}']) || [" = ", "=> ", "();"].iter().any(|sign| text.contains(sign))
}

/// Returns whether the lines differ only in one word of prose: it has words on both sides, separated by
/// single spaces, and is not significant in any language.
pub(crate) fn is_prose_word_change(said: &str, real: &str) -> bool {
    let (a, b): (Vec<&str>, Vec<&str>) = (said.split(' ').collect(), real.split(' ').collect());
    let differ: Vec<usize> = (0..a.len().min(b.len())).filter(|at| a[*at] != b[*at]).collect();
    let [at] = differ[..] else { return false };
    let plain =
        |word: &str| word.chars().all(|c| c.is_ascii_lowercase()) && !SIGNIFICANT_WORDS.contains(&word);
    let beside = |word: Option<&&str>| word.is_some_and(|word| word.len() > 1 && !words(word).is_empty());
    a.len() == b.len()
        && at > 0
        && plain(a[at])
        && plain(b[at])
        && beside(a.get(at - 1))
        && beside(a.get(at + 1))
}

fn is_significant(token: &str) -> bool {
    let number = token.starts_with(|c: char| c.is_ascii_digit());
    number || SIGNIFICANT_WORDS.contains(&token) || (!is_word(token) && !IGNORABLE_SIGNS.contains(&token))
}

/// Returns whether `said` is a typo of `real`. A word that occurs in the file is a name, and so is a word
/// with one more letter at an end: `item` is not `items`.
fn is_typo_of(said: &str, real: &str, names: &HashSet<String>) -> bool {
    let longer = |a: &str, b: &str| a.starts_with(b) || a.ends_with(b);
    is_word(said)
        && is_word(real)
        && ![said, real].iter().any(|word| SIGNIFICANT_WORDS.contains(word))
        && !names.contains(said)
        && !longer(said, real)
        && !longer(real, said)
        && !are_antonyms(said, real)
        && is_word_typo(said, real)
}

/// Returns tokens without whitespace, with look-alikes folded.
fn normalized_tokens(line: &str) -> Vec<String> {
    let plain: String = line.chars().filter(|c| !is_invisible(*c)).flat_map(fold_char).collect();
    tokenize(&plain).into_iter().filter(|token| !token.trim().is_empty()).map(str::to_owned).collect()
}

/// Returns whether the whole line is a comment in any supported language. A marker that can also
/// begin code (`#include`, `*p = 1`, `--n`) counts only if it is followed by a space or repeated.
fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    let open = ["//", "/*", "<!--", "*/"].iter().any(|sign| line.starts_with(sign));
    open || ["#", "*", "--", ";"].iter().any(|sign| {
        line.strip_prefix(sign).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '#', ';']))
    })
}

/// Returns the line without its trailing comment. The comment must have at least two words and,
/// after `//`, no formula characters, because `a // (b + 1)` is a division in some languages. The
/// `//` of a URL such as `http://host` does not start a comment.
pub(crate) fn code_part(line: &str) -> &str {
    let opens = |sign: &str| {
        let at = line.find(sign)?;
        let rest = &line[at + sign.len()..];
        let ends = match sign {
            " /* " => rest.trim_end().find("*/").is_none_or(|end| end + 2 == rest.trim_end().len()),
            " // " => !rest.contains(['(', ')', '[', ']', '=', '+', '*']),
            _ => true,
        };
        (ends && words(rest).len() > 1).then_some(at)
    };
    let end = [" // ", " # ", " /* "].into_iter().filter_map(opens).min();
    &line[..end.unwrap_or(line.len())]
}

/// Returns whether `said` and `real` are the same line, judged by these two lines alone.
pub(crate) fn is_same_line(said: &str, real: &str) -> bool {
    collapse_whitespace(said) == collapse_whitespace(real)
        || compare_lines(said, real, &StatementContext::default()) == LineSimilarity::SameStatement
}

#[cfg(test)]
mod tests {
    use super::*;

    fn similarity(said: &str, real: &str) -> LineSimilarity {
        compare_lines(said, real, &StatementContext::default())
    }

    #[test]
    fn related_names_are_not_typos() {
        assert_eq!(similarity("x = recieve(y)", "x = receive(y)"), LineSimilarity::SameStatement);
        assert_eq!(similarity("// the other words", "// the real words"), LineSimilarity::SameStatement);
        assert_eq!(similarity("go(); // the other", "go(); // the real"), LineSimilarity::SameStatement);
        assert_eq!(similarity("say(\u{201c}it\u{201d}),", "say('it')"), LineSimilarity::SameStatement);
        for (said, real) in [
            ("total_c = compute(gamma, 2)", "total_b = compute(beta, 2)"),
            ("#include <stdio.h>", "#include <stdlib.h>"),
            ("get(\"http://alpha.org\")", "get(\"http://omega.org\")"),
            ("item = load_item(path)", "item = load_items(path)"),
            ("shorts = getopt(args)", "shorts = gnu_getopt(args)"),
        ] {
            assert_eq!(similarity(said, real), LineSimilarity::Unclear, "{said}");
        }
        for (said, real) in [
            ("*first = 1;", "first = 1;"),
            ("if (a != b) go();", "if (a == b) go();"),
            ("x = row[1] + off", "x = row[0] + off"),
            ("assert!(!is_ready(x));", "assert!(is_ready(x));"),
            ("void f(char **p, int n);", "void f(char *p, int n);"),
            ("total -= price * qty;", "total += price * qty;"),
            ("let half = width // 4", "let half = width // 2"),
            ("half = width // (a - b)", "half = width // (a + b)"),
            ("} else /* ignore next */ if (a < b) {", "} else /* ignore next */ if (a > b) {"),
            ("const s = statSync(path);", "const s = await stat(path);"),
            ("if a and b or c:", "if a and b and c:"),
        ] {
            assert_eq!(similarity(said, real), LineSimilarity::OtherStatement, "{said}");
        }
    }

    /// A name that occurs in the file is never treated as a typo, however close to another name.
    #[test]
    fn name_used_in_file_is_not_a_typo() {
        let file = "fn prepare(a: A) {}\nfn prepaire(a: A) {}\n";
        let context = StatementContext::new(&SearchDoc::new(file), &[], &[]);
        assert_eq!(
            compare_lines("x = prepare(b)", "x = prepaire(b)", &context),
            LineSimilarity::OtherStatement
        );
        assert_eq!(
            compare_lines("x = prepiare(b)", "x = prepaire(b)", &context),
            LineSimilarity::SameStatement
        );
    }

    #[test]
    fn comment_wording_may_differ_but_not_its_meaning() {
        let context = StatementContext::new(&SearchDoc::new("store.set(1);\ntemplate\n"), &[], &[]);
        for (said, real) in [
            ("// the words of it", "// the real words of it"),
            ("go(); // the words of it", "go(); // the real words"),
            ("# wait for all of them", "# wait for each of them"),
        ] {
            assert_eq!(compare_lines(said, real, &context), LineSimilarity::SameStatement, "{said}");
        }
        for (said, real) in [
            ("// it is ready", "// it is not ready"),
            ("// up to 10 of them", "// up to 12 of them"),
            ("// x == 1 there", "// x != 1 there"),
            ("import a  # noqa: F401", "import a  # noqa: F402"),
            ("// call get_item first", "// call set_item first"),
            ("* template.set(1);", "* store.set(1);"),
            ("x = 1  # is true there", "x = 1  # is false there"),
        ] {
            assert_eq!(compare_lines(said, real, &context), LineSimilarity::OtherStatement, "{said}");
        }
    }

    #[test]
    fn prose_word_has_words_on_both_sides() {
        assert!(is_prose_word_change("[Join this chat](x)", "[Join the chat](x)"));
        for (said, real) in [
            ("a and b", "a or b"),
            ("this chat", "the chat"),
            ("let x = this", "let x = the"),
            ("call(this, chat)", "call(the, chat)"),
        ] {
            assert!(!is_prose_word_change(said, real), "{said}");
        }
    }
}

//! Whether two lines that resemble each other are one statement: what a slip of the pen may change, and
//! what it may not. Operators, numbers and words such as `not` turn a statement into another one, however
//! alike the lines are.

use std::collections::HashSet;

use super::opposites::opposed;
use crate::{
    doc::Doc,
    text::{collapse, fold_char, is_invisible},
    tokens::{changes, is_word, is_word_slip, tokenize, words},
};

/// What a line of the search is beside a line of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Likeness {
    /// The same statement, but for slips, words of a comment, or words that the replacement has right.
    Same,
    /// It has words of its own.
    Odd,
    /// Another operator, number, keyword, or name of the file: another statement.
    Other,
}

/// What is known beside the two lines.
#[derive(Debug, Default)]
pub(crate) struct Context {
    /// Words of the file. A slip makes a word that is nowhere.
    names: HashSet<String>,
    /// The lines that only the replacement has, in tokens.
    replace: Vec<Vec<String>>,
}

impl Context {
    pub(crate) fn new(doc: &Doc<'_>, search: &[String], replace: &[String]) -> Self {
        let new = replace.iter().filter(|line| !search.contains(line));
        let lines = doc.lines.iter().flat_map(|line| words(line.text));
        Self {
            names: lines.map(str::to_owned).collect(),
            replace: new.map(|line| signs_and_words(line)).collect(),
        }
    }

    /// Whether the replacement has `tokens[at]` among the same neighbours, as `said` has them nowhere.
    fn has(&self, said: &[String], tokens: &[String], at: &std::ops::Range<usize>) -> bool {
        let wanted = &tokens[at.start.saturating_sub(1)..(at.end + 1).min(tokens.len())];
        let holds = |line: &[String]| line.windows(wanted.len()).any(|part| part == wanted);
        !at.is_empty() && !holds(said) && self.replace.iter().any(|line| holds(line))
    }
}

/// Signs whose absence changes no statement. Quotes of all styles are folded to the last.
const HARMLESS: [&str; 3] = [",", ";", "\""];

/// Words that turn a statement into its opposite, or decide what is done with its value.
const TELLING: [&str; 22] = [
    "true", "false", "True", "False", "and", "or", "not", "is", "in", "if", "unless", "while", "until",
    "await", "async", "yield", "null", "None", "nil", "min", "max", "mut",
];

/// Compares a line of the search with one of the file.
pub(crate) fn compare(said: &str, real: &str, context: &Context) -> Likeness {
    if is_comment(said) && is_comment(real) {
        return compare_comments(said, real, context);
    }
    let (code_said, code_real) = (code_of(said), code_of(real));
    if code_said.len() == said.len() || code_real.len() == real.len() {
        return compare_code(said, real, context);
    }
    match compare_code(code_said, code_real, context) {
        Likeness::Same => compare_comments(&said[code_said.len()..], &real[code_real.len()..], context),
        other => other,
    }
}

fn compare_code(said: &str, real: &str, context: &Context) -> Likeness {
    let (a, b) = (signs_and_words(said), signs_and_words(real));
    let mut out = Likeness::Same;
    for change in changes(&a, &b, |token| u32::try_from(token.len()).unwrap_or(1)) {
        let (x, y) = (&a[change.a.clone()], &b[change.b.clone()]);
        let harmless = || x.iter().chain(y).all(|token| HARMLESS.contains(&token.as_str()));
        let slip = |(x, y): (&String, &String)| x == y || is_slip_of(x, y, &context.names);
        let slips = || x.len() == y.len() && x.iter().zip(y).all(slip);
        if harmless() || slips() || context.has(&a, &b, &change.b) {
            continue;
        }
        // A word that stands elsewhere in the file was not misremembered: another line has it.
        let named = || x.iter().any(|word| context.names.contains(word));
        if x.iter().chain(y).any(|token| tells(token)) || any_opposed(x, y) || named() {
            return Likeness::Other;
        }
        out = Likeness::Odd;
    }
    out
}

/// Words of a comment are free, but for those that turn its sense, and for another name of the file in a
/// comment that is code, such as an example or a statement put out of use.
fn compare_comments(said: &str, real: &str, context: &Context) -> Likeness {
    let (said, real) = (comment_text(said), comment_text(real));
    let code = reads_as_code(said) && reads_as_code(real);
    let (a, b) = (signs_and_words(said), signs_and_words(real));
    for change in changes(&a, &b, |token| u32::try_from(token.len()).unwrap_or(1)) {
        let (x, y) = (&a[change.a.clone()], &b[change.b.clone()]);
        let number = |token: &String| token.starts_with(|c: char| c.is_ascii_digit());
        let turns = |token: &String| number(token) || TURNING.contains(&token.as_str());
        let another = || match (x, y) {
            ([x], [y]) => {
                code && is_word(x) && context.names.contains(x) && !is_slip_of(x, y, &context.names)
            }
            _ => false,
        };
        let other = x.iter().chain(y).any(turns) || any_opposed(x, y) || another();
        if other && !context.has(&a, &b, &change.b) {
            return Likeness::Other;
        }
    }
    Likeness::Same
}

/// Words and signs that turn what a comment says.
const TURNING: [&str; 22] = [
    "and", "or", "not", "true", "false", "True", "False", "null", "None", "=", "<", ">", "+", "&", "|", "!",
    "[", "]", "(", ")", "{", "}",
];

fn any_opposed(x: &[String], y: &[String]) -> bool {
    x.iter().any(|x| y.iter().any(|y| opposed(x, y)))
}

/// A comment without the signs that open it.
fn comment_text(comment: &str) -> &str {
    comment.trim_start_matches(|c: char| c.is_whitespace() || "/*#!-;<".contains(c))
}

fn reads_as_code(text: &str) -> bool {
    let text = text.trim_end();
    text.ends_with([';', '{', '}']) || [" = ", "=> ", "();"].iter().any(|sign| text.contains(sign))
}

/// Whether the lines differ in one word that has words on both sides, parted by single blanks, and decides
/// nothing in any language.
pub(crate) fn is_word_of_sentence(said: &str, real: &str) -> bool {
    let (a, b): (Vec<&str>, Vec<&str>) = (said.split(' ').collect(), real.split(' ').collect());
    let differ: Vec<usize> = (0..a.len().min(b.len())).filter(|at| a[*at] != b[*at]).collect();
    let [at] = differ[..] else { return false };
    let plain = |word: &str| word.chars().all(|c| c.is_ascii_lowercase()) && !TELLING.contains(&word);
    let beside = |word: Option<&&str>| word.is_some_and(|word| word.len() > 1 && !words(word).is_empty());
    a.len() == b.len()
        && at > 0
        && plain(a[at])
        && plain(b[at])
        && beside(a.get(at - 1))
        && beside(a.get(at + 1))
}

fn tells(token: &str) -> bool {
    let number = token.starts_with(|c: char| c.is_ascii_digit());
    number || TELLING.contains(&token) || (!is_word(token) && !HARMLESS.contains(&token))
}

/// A word that is in the file is a name of its own, and so is one with a letter more at an end: `item` is
/// not `items`.
fn is_slip_of(said: &str, real: &str, names: &HashSet<String>) -> bool {
    let longer = |a: &str, b: &str| a.starts_with(b) || a.ends_with(b);
    is_word(said)
        && is_word(real)
        && ![said, real].iter().any(|word| TELLING.contains(word))
        && !names.contains(said)
        && !longer(said, real)
        && !longer(real, said)
        && !opposed(said, real)
        && is_word_slip(said, real)
}

/// Tokens without blanks, look-alikes folded.
fn signs_and_words(line: &str) -> Vec<String> {
    let plain: String = line.chars().filter(|c| !is_invisible(*c)).flat_map(fold_char).collect();
    tokenize(&plain).into_iter().filter(|token| !token.trim().is_empty()).map(str::to_owned).collect()
}

/// Whether the whole line is a comment, in any of the languages we meet. A sign that code begins with
/// as well (`#include`, `*p = 1`, `--n`) counts only with a blank or its own kind after it.
fn is_comment(line: &str) -> bool {
    let line = line.trim_start();
    let open = ["//", "/*", "<!--", "*/"].iter().any(|sign| line.starts_with(sign));
    open || ["#", "*", "--", ";"].iter().any(|sign| {
        line.strip_prefix(sign).is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '#', ';']))
    })
}

/// The line up to a comment at its end, which has two words at least and, after `//`, no signs of a
/// formula: `a // (b + 1)` is a division somewhere. An address such as `http://host` opens none.
pub(crate) fn code_of(line: &str) -> &str {
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

/// Whether `said` is `real` as far as these two lines tell.
pub(crate) fn is_same_line(said: &str, real: &str) -> bool {
    collapse(said) == collapse(real) || compare(said, real, &Context::default()) == Likeness::Same
}

#[cfg(test)]
mod tests {
    use super::*;

    fn likeness(said: &str, real: &str) -> Likeness {
        compare(said, real, &Context::default())
    }

    #[test]
    fn siblings_are_no_slips() {
        assert_eq!(likeness("x = recieve(y)", "x = receive(y)"), Likeness::Same);
        assert_eq!(likeness("// the other words", "// the real words"), Likeness::Same);
        assert_eq!(likeness("go(); // the other", "go(); // the real"), Likeness::Same);
        assert_eq!(likeness("say(\u{201c}it\u{201d}),", "say('it')"), Likeness::Same);
        for (said, real) in [
            ("total_c = compute(gamma, 2)", "total_b = compute(beta, 2)"),
            ("#include <stdio.h>", "#include <stdlib.h>"),
            ("get(\"http://alpha.org\")", "get(\"http://omega.org\")"),
            ("item = load_item(path)", "item = load_items(path)"),
            ("shorts = getopt(args)", "shorts = gnu_getopt(args)"),
        ] {
            assert_eq!(likeness(said, real), Likeness::Odd, "{said}");
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
            assert_eq!(likeness(said, real), Likeness::Other, "{said}");
        }
    }

    /// A name that the file has is meant as it is, however near to another.
    #[test]
    fn a_name_of_the_file_is_no_slip() {
        let file = "fn prepare(a: A) {}\nfn prepaire(a: A) {}\n";
        let context = Context::new(&Doc::new(file), &[], &[]);
        assert_eq!(compare("x = prepare(b)", "x = prepaire(b)", &context), Likeness::Other);
        assert_eq!(compare("x = prepiare(b)", "x = prepaire(b)", &context), Likeness::Same);
    }

    #[test]
    fn a_comment_may_have_other_words_but_no_other_sense() {
        let context = Context::new(&Doc::new("store.set(1);\ntemplate\n"), &[], &[]);
        for (said, real) in [
            ("// the words of it", "// the real words of it"),
            ("go(); // the words of it", "go(); // the real words"),
            ("# wait for all of them", "# wait for each of them"),
        ] {
            assert_eq!(compare(said, real, &context), Likeness::Same, "{said}");
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
            assert_eq!(compare(said, real, &context), Likeness::Other, "{said}");
        }
    }

    #[test]
    fn a_word_of_a_sentence_is_one_between_others() {
        assert!(is_word_of_sentence("[Join this chat](x)", "[Join the chat](x)"));
        for (said, real) in [
            ("a and b", "a or b"),
            ("this chat", "the chat"),
            ("let x = this", "let x = the"),
            ("call(this, chat)", "call(the, chat)"),
        ] {
            assert!(!is_word_of_sentence(said, real), "{said}");
        }
    }
}

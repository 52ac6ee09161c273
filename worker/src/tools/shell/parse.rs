//! A shell line by bash's grammar: which commands it holds, at any depth. Pure, and the same on any machine.
//!
//! What a variable holds, what a program makes of its arguments and what a script does is not seen: this reads what is
//! written. It steers labels, questions and policy; the wall is the sandbox.

use std::borrow::Cow;

use tree_sitter::Node;

use super::{
    Simple,
    accounted::{account, is_translation},
    arithmetic::Arithmetic,
    lookup,
    wrap::{is_shell, lines_of, printed},
};
use crate::syntax;

/// Lines within lines (`bash -c '…'`) that are read.
const DEPTH_MAX: usize = 4;

/// What a line holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Script {
    /// Its commands, an outer one before those within it.
    pub(crate) commands: Vec<Simple>,
    /// All of it could be read, to the last byte, and what bash evaluates is made of numbers.
    pub(crate) is_whole: bool,
    /// It sets what decides which programs run, or what they obey.
    changes_lookup: bool,
    /// What bash evaluates.
    arithmetic: Arithmetic,
}

/// Reads a line.
pub(crate) fn script(line: &str) -> Script {
    let mut out = Script { is_whole: true, ..Script::default() };
    read(line, 0, &mut out);
    // Also those written before: a function or a loop may run later.
    out.commands.iter_mut().for_each(|command| command.is_dark |= out.changes_lookup);
    out.is_whole &= out.arithmetic.is_known();
    out
}

fn read(line: &str, depth: usize, out: &mut Script) {
    let untranslated = untranslated(line);
    let line = untranslated.line.as_ref();
    // Bash joins the two lines before it looks what the `$` begins, and no lines behind a `#`; the grammar reads both otherwise.
    let is_joined = ["$\\\n", "#\\\n"].iter().any(|end| line.contains(end));
    out.is_whole &= untranslated.is_sure && !is_joined;
    let readable = readable(line);
    let Ok(tree) = syntax::shell_tree(readable.as_bytes()) else {
        // Nothing is known of it but its words.
        let words = line.split_whitespace().map(str::to_owned).collect();
        out.commands.push(Simple { words, ..Simple::default() });
        out.is_whole = false;
        return;
    };
    let accounted = account(tree.root_node(), line);
    out.is_whole &= !tree.root_node().has_error() && !accounted.has_gap;
    let from = out.commands.len();
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        out.changes_lookup |= lookup::sets_obeyed(node, line);
        out.arithmetic.add(node, line);
        node_of(node, line, out);
        if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                inner((from, accounted.lines), depth, out);
                return;
            }
        }
    }
}

/// A line without what asks for a translation.
struct Untranslated<'a> {
    line: Cow<'a, str>,
    /// The grammar read the line that it was.
    is_sure: bool,
}

/// The line with each `$"…"` as the `"…"` that it is: bash looks it up among the translations that `TEXTDOMAIN` names, and a
/// line that sets a variable in capital letters is unknown anyway. The grammar knows it in some places; in others it takes
/// the `$` for a word, or for a part of one.
fn untranslated(line: &str) -> Untranslated<'_> {
    let as_it_is = Untranslated { line: Cow::Borrowed(line), is_sure: true };
    if !line.contains("$\"") {
        return as_it_is;
    }
    // What is too hard is so without them as well.
    let Ok(tree) = syntax::shell_tree(readable(line).as_bytes()) else { return as_it_is };
    let (mut out, mut from) = (String::with_capacity(line.len()), 0);
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        // The token may begin before the sign, which may be a character of another one behind these.
        let sign = node.end_byte().saturating_sub(1);
        let is_apart = || !line[from..sign].ends_with(['\\', '$']);
        if is_translation(node, line) && is_apart() {
            out.push_str(&line[from..sign]);
            from = node.end_byte();
        }
        if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                out.push_str(&line[from..]);
                return Untranslated { line: Cow::Owned(out), is_sure: !tree.root_node().has_error() };
            }
        }
    }
}

/// The line as the grammar may be given it, each byte in its place. Where it reads a brace, its scanner asks the C library
/// whether what follows is a digit, which may read beyond its table for a character above U+00FF (tree-sitter-bash 0.25.1,
/// `scanner.c`): such a character is given as letters, which it is to bash as well.
fn readable(line: &str) -> Cow<'_, str> {
    let is_risky = line.contains('{') && line.chars().any(|c| c > '\u{ff}');
    if !is_risky {
        return Cow::Borrowed(line);
    }
    line.chars()
        .fold(String::with_capacity(line.len()), |mut out, c| {
            match c {
                '\0'..='\u{ff}' => out.push(c),
                _ => out.extend(std::iter::repeat_n('x', c.len_utf8())),
            }
            out
        })
        .into()
}

/// Lines that commands hold in their arguments.
fn inner((from, mut lines): (usize, Vec<String>), depth: usize, out: &mut Script) {
    let mut commands: Vec<Simple> = Vec::new();
    for at in from..out.commands.len() {
        let command = &mut out.commands[at];
        let (held, is_dark) = lines_of(&command.words);
        lines.extend(held);
        lines.extend(command.input.take());
        command.is_dark |= is_dark || lookup::evaluates(&command.words);
        out.changes_lookup |= lookup::twists(command.command());
        let (program, args) = (command.program(), command.args());
        if program == "find" {
            let exec = |arg: &String| ["-exec", "-execdir", "-ok", "-okdir"].contains(&arg.as_str());
            for at in (0..args.len()).filter(|at| exec(&args[*at])) {
                let words = args[at + 1..].iter().take_while(|arg| *arg != ";" && *arg != "+");
                commands.push(Simple { words: words.cloned().collect(), ..Simple::default() });
            }
        }
    }
    out.commands.extend(commands.into_iter().filter(|command| !command.words.is_empty()));
    if depth >= DEPTH_MAX {
        out.is_whole &= lines.is_empty();
        return;
    }
    for line in lines {
        read(&line, depth + 1, out);
    }
}

fn node_of(node: Node<'_>, line: &str, out: &mut Script) {
    match node.kind() {
        "command" | "declaration_command" | "unset_command" | "test_command" => {
            let mut command = Simple::default();
            let mut children = node.walk();
            let mut word_end = None;
            for child in node.children(&mut children) {
                match child.kind() {
                    "file_redirect" => command.writes_to.extend(written(child, line)),
                    "herestring_redirect" => reads(&mut command, child, line),
                    "heredoc_redirect" | "subshell" => {}
                    kind => {
                        // One word to bash, and two to the grammar.
                        out.is_whole &= word_end != Some(child.start_byte()) || node.kind() == "test_command";
                        word_end = Some(child.end_byte());
                        // An assignment stays one, and in brackets the words are no arguments.
                        let is_argument = kind != "variable_assignment" && node.kind() != "test_command";
                        if is_argument && is_expanded(source(child, line)) {
                            command.expands_at.get_or_insert(command.words.len());
                        }
                        command.words.push(word(child, line));
                    }
                }
            }
            let behind = behind_redirects(node);
            if behind.iter().any(|node| is_expanded(source(*node, line))) {
                command.expands_at.get_or_insert(command.words.len());
            }
            command.words.extend(behind.into_iter().map(|node| word(node, line)));
            command.is_dark |= command.words_before_expansion().is_some_and(|words| words.is_empty());
            fed(node, line, &mut command);
            out.commands.push(command);
        }
        // Of a command itself it was taken with the command.
        "herestring_redirect" if node.parent().is_none_or(|parent| parent.kind() != "command") => {
            if let Some(last) = out.commands.last_mut() {
                reads(last, node, line);
            }
        }
        // Of a command itself it was taken with the command.
        "file_redirect" if node.parent().is_none_or(|parent| parent.kind() != "command") => {
            let Some(path) = written(node, line) else { return };
            let body = node.parent().and_then(|parent| parent.child_by_field_name("body"));
            match out.commands.last_mut() {
                Some(last) if body.is_some_and(|body| body.kind() == "command") => last.writes_to.push(path),
                _ => out.commands.push(Simple { writes_to: vec![path], ..Simple::default() }),
            }
        }
        "&" if !node.is_named() => {
            if let Some(last) = out.commands.last_mut() {
                last.background = true;
            }
        }
        // What a shell reads from its input is a line as well.
        "heredoc_body" => {
            let shell = out.commands.last().is_some_and(|last| is_shell(last.program()));
            // `cat <<A | sh`: it comes to the shell all the same.
            let piped = out.commands.iter().any(|command| command.is_dark && is_shell(command.program()));
            if !shell && piped {
                let words = ["sh", "-c", source(node, line)].map(str::to_owned).to_vec();
                out.commands.push(Simple { words, ..Simple::default() });
            } else if shell && let Some(last) = out.commands.last_mut() {
                let text = source(node, line).to_owned();
                last.words.extend(["-c".to_owned(), text]);
            }
        }
        _ => {}
    }
}

/// A shell that reads a line from a here-string.
fn reads(command: &mut Simple, redirect: Node<'_>, line: &str) {
    let mut children = redirect.walk();
    let Some(said) = redirect.named_children(&mut children).last() else { return };
    if is_shell(command.program()) {
        let text = word(said, line);
        command.is_dark |= text.contains(['$', '`']);
        command.words.extend(["-c".to_owned(), text]);
    }
}

/// A shell behind a pipe: what is printed into it is a line, and where that is not to be seen it is dark.
fn fed(node: Node<'_>, line: &str, command: &mut Simple) {
    let reads_input = command.args().iter().all(|arg| arg.starts_with('-') && !is_c(arg))
        || command.args().iter().any(|arg| arg == "-s");
    if !is_shell(command.program()) || !reads_input {
        return;
    }
    let is = |node: &Node<'_>, kind: &str| node.kind() == kind;
    let outer = node.parent().filter(|parent| is(parent, "redirected_statement"));
    let stage = outer.unwrap_or(node);
    let Some(parent) = stage.parent() else { return };
    let before = match parent.kind() {
        "pipeline" => stage.prev_named_sibling(),
        "heredoc_redirect" => None,
        _ => return,
    };
    let Some(before) = before else {
        // `cat <<A | sh` hangs on the redirection.
        command.is_dark |= is(&parent, "heredoc_redirect")
            || parent.parent().is_some_and(|parent| is(&parent, "heredoc_redirect"));
        return;
    };
    let mut parts = before.walk();
    let words: Vec<String> = before.children(&mut parts).map(|part| word(part, line)).collect();
    command.input = if is(&before, "command") { printed(&words) } else { None };
    command.is_dark |= command.input.is_none();
}

/// Arguments that stand behind a redirection: `git 2>&1 push`. The grammar gives them to the redirection.
pub(super) fn behind_redirects(command: Node<'_>) -> Vec<Node<'_>> {
    let body = |outer: &Node<'_>| outer.child_by_field_name("body") == Some(command);
    let outer = command.parent().filter(|outer| outer.kind() == "redirected_statement").filter(body);
    let Some(outer) = outer else { return Vec::new() };
    let mut redirects = outer.walk();
    let mut words = Vec::new();
    for redirect in outer.children(&mut redirects).filter(|child| child.kind() == "file_redirect") {
        let mut parts = redirect.walk();
        let all = redirect.children_by_field_name("destination", &mut parts);
        words.extend(all.skip(1));
    }
    words
}

/// Whether bash expands a word, which is given as it is written: braces, globs, variables, what a command prints.
fn is_expanded(word: &str) -> bool {
    let (mut is_single, mut is_double) = (false, false);
    let mut chars = word.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' if !is_double => is_single = !is_single,
            _ if is_single => {}
            '\\' => drop(chars.next()),
            '"' => is_double = !is_double,
            '`' => return true,
            '$' if chars.peek().is_some_and(|c| c.is_ascii_alphanumeric() || "_({[@*#?$!-".contains(*c)) => {
                return true;
            }
            '*' | '?' | '[' if !is_double => return true,
            '{' if !is_double && is_braced(word) => return true,
            _ => {}
        }
    }
    // A process substitution is the name of a pipe.
    word.starts_with("<(") || word.starts_with(">(")
}

/// Whether bash may make several words of it.
fn is_braced(word: &str) -> bool {
    let inner = word.split_once('{').map(|(_, rest)| rest);
    inner.is_some_and(|rest| rest.contains('}') && (rest.contains(',') || rest.contains("..")))
}

fn is_c(arg: &str) -> bool {
    arg.starts_with('-') && !arg.starts_with("--") && arg.contains('c')
}

/// Where a redirection writes to; nothing where it reads, or names a stream.
fn written(redirect: Node<'_>, line: &str) -> Option<String> {
    let mut children = redirect.walk();
    let sign = redirect.children(&mut children).find(|child| !child.is_named()).map(|child| child.kind())?;
    let to = redirect.child_by_field_name("destination").map(|to| word(to, line))?;
    let is_stream = sign.ends_with('&') && (to == "-" || to.chars().all(|c| c.is_ascii_digit()));
    (sign.contains('>') && !is_stream).then_some(to)
}

fn source<'a>(node: Node<'_>, line: &'a str) -> &'a str {
    line.get(node.byte_range()).unwrap_or_default()
}

/// A word as the program gets it, but for what the shell would put in.
pub(super) fn word(node: Node<'_>, line: &str) -> String {
    let text = source(node, line);
    match node.kind() {
        "command_name" | "concatenation" => {
            let mut children = node.walk();
            let (mut out, mut at) = (String::new(), node.start_byte());
            for child in node.children(&mut children) {
                out.push_str(line.get(at..child.start_byte()).unwrap_or_default());
                out.push_str(&word(child, line));
                at = child.end_byte();
            }
            out
        }
        "word" => unescaped(text, |_| true),
        "raw_string" => text.trim_start_matches('\'').trim_end_matches('\'').to_owned(),
        "string" => {
            let inner = text.strip_prefix('"').map_or(text, |text| text.strip_suffix('"').unwrap_or(text));
            unescaped(inner, |c| "\"\\$`\n".contains(c))
        }
        "ansi_c_string" => {
            text.strip_prefix("$'").and_then(|text| text.strip_suffix('\'')).unwrap_or(text).to_owned()
        }
        _ => text.to_owned(),
    }
}

/// Without the backslashes that hide a character of `hidden`; a line's end behind one is none.
fn unescaped(text: &str, hidden: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek().copied()) {
            ('\\', Some(next)) if hidden(next) => {
                chars.next();
                out.extend(Some(next).filter(|next| *next != '\n'));
            }
            _ => out.push(c),
        }
    }
    out
}

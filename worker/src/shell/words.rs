//! Extracts a command's words from the syntax tree, as the program receives them. Pure.

use tree_sitter::Node;

/// The node's source text.
pub(super) fn source_text<'a>(node: Node<'_>, line: &'a str) -> &'a str {
    line.get(node.byte_range()).unwrap_or_default()
}

/// A word as the program receives it, except for what the shell would expand.
pub(super) fn word_text(node: Node<'_>, line: &str) -> String {
    let text = source_text(node, line);
    match node.kind() {
        "command_name" | "concatenation" => {
            let mut children = node.walk();
            let (mut out, mut at) = (String::new(), node.start_byte());
            for child in node.children(&mut children) {
                out.push_str(line.get(at..child.start_byte()).unwrap_or_default());
                out.push_str(&word_text(child, line));
                at = child.end_byte();
            }
            out
        }
        "word" => unescape(text, |_| true),
        "raw_string" => text.trim_start_matches('\'').trim_end_matches('\'').to_owned(),
        "string" => {
            let inner = text.strip_prefix('"').map_or(text, |text| text.strip_suffix('"').unwrap_or(text));
            unescape(inner, |c| "\"\\$`\n".contains(c))
        }
        "ansi_c_string" => {
            text.strip_prefix("$'").and_then(|text| text.strip_suffix('\'')).unwrap_or(text).to_owned()
        }
        _ => text.to_owned(),
    }
}

/// Removes backslashes that escape a character of `hidden`; an escaped newline is removed entirely.
fn unescape(text: &str, hidden: impl Fn(char) -> bool) -> String {
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

/// Arguments after a redirection: `git 2>&1 push`. The grammar attaches them to the redirection.
pub(super) fn words_after_redirects(command: Node<'_>) -> Vec<Node<'_>> {
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

/// Whether bash expands a word, given as written: braces, globs, variables, command substitutions.
pub(super) fn has_expansion(word: &str) -> bool {
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
            '{' if !is_double && has_brace_expansion(word) => return true,
            _ => {}
        }
    }
    // A process substitution is the name of a pipe.
    word.starts_with("<(") || word.starts_with(">(")
}

/// Whether bash may expand a word to several words by its braces.
fn has_brace_expansion(word: &str) -> bool {
    let inner = word.split_once('{').map(|(_, rest)| rest);
    inner.is_some_and(|rest| rest.contains('}') && (rest.contains(',') || rest.contains("..")))
}

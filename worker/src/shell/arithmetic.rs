//! Checks that everything bash evaluates as arithmetic on a line consists of numbers. Pure.
//!
//! Bash evaluates a variable's value as an expression in turn, and a subscript in it expands commands:
//! `a='x[$(touch p)]'; echo $((a))` runs `touch`. It evaluates `$((…))`, `((…))`, `let`, subscripts, substring
//! offsets, the numeric operators of `[[`, and the names passed to builtins. Text can reach a variable in too many ways
//! to search for dangerous cases, so the rule is inverted: a line is known only if such places contain number literals,
//! and variables that the line sets to number literals only.

use std::collections::BTreeSet;

use tree_sitter::Node;

use super::{
    words::{source_text, word_text, words_after_redirects},
    wrappers,
};

/// Operators of `[[` that evaluate both sides.
const NUMERIC_OPERATORS: [&str; 6] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

/// Operators of `test` between two words.
const BINARY_OPERATORS: [&str; 12] =
    ["=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"];

/// What a line, including nested lines, assigns and evaluates.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ArithmeticCheck {
    /// Variables that are set to a number.
    number_variables: BTreeSet<String>,
    /// Variables that are set to something that may not be a number.
    other_variables: BTreeSet<String>,
    /// Variables that are evaluated.
    evaluated_variables: BTreeSet<String>,
    has_array: bool,
    /// Whether a declaring builtin gets a value that only bash knows and that could form an array.
    has_loose_declaration: bool,
    is_unknown: bool,
}

impl ArithmeticCheck {
    /// Whether everything evaluated consists of numbers. Call it after the whole line was read: in a loop or
    /// function, the last assignment may be evaluated first.
    pub(super) fn uses_only_numbers(&self) -> bool {
        let is_number =
            |name: &String| self.number_variables.contains(name) && !self.other_variables.contains(name);
        let is_loose = self.has_array && self.has_loose_declaration;
        !self.is_unknown && !is_loose && self.evaluated_variables.iter().all(is_number)
    }

    /// Adds one node of a line's tree; call it for every node.
    pub(super) fn add_node(&mut self, node: Node<'_>, line: &str) {
        let text = source_text(node, line);
        match node.kind() {
            "arithmetic_expansion" => {
                match strip_delimiters(text, "$((", "))").or_else(|| strip_delimiters(text, "$[", "]")) {
                    Some(inner) => self.add_expression(inner),
                    None => self.is_unknown = true,
                }
            }
            // Bash reads these as arithmetic first.
            "command_substitution" => self.is_unknown |= text.starts_with("$(("),
            "subshell" => self.is_unknown |= text.starts_with("(("),
            "compound_statement" if text.starts_with("((") => match strip_delimiters(text, "((", "))") {
                Some(inner) => self.add_expression(inner),
                None => self.is_unknown = true,
            },
            "c_style_for_statement" => self.add_counting_loop(node, line),
            "for_statement" | "select_statement" => self.add_loop(node, line),
            "subscript" => self.add_subscript(text),
            "array" => self.add_array(text),
            "expansion" => self.add_expansion(text),
            "variable_assignment" => self.add_assignment(node, line),
            "test_command" => self.add_test(node, line),
            "command" | "declaration_command" | "unset_command" => self.add_command(node, line),
            _ => {}
        }
    }

    /// Adds an expression: literals, operators and plain variables. Names built from parts, numbers with a base,
    /// subscripts, quotes and other expansions are unknown.
    fn add_expression(&mut self, text: &str) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let at = if c.is_ascii_digit() {
                let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
                self.is_unknown |= !is_number(&rest[..end]);
                end
            } else if is_name_start(c) {
                let end = name_end(rest);
                self.evaluated_variables.insert(rest[..end].to_owned());
                let after = rest[end..].trim_start();
                if after.starts_with('=') && !after.starts_with("==") {
                    self.number_variables.insert(rest[..end].to_owned());
                }
                self.is_unknown |= rest[end..].starts_with('$');
                end
            } else if c == '$' {
                match self.add_expression_variable(&rest[1..]) {
                    Some(end) => end + 1,
                    None => rest.len(),
                }
            } else if " \t\n+-*/%<>=!&|^~?:,;()".contains(c) {
                1
            } else {
                self.is_unknown = true;
                rest.len()
            };
            rest = &rest[at..];
        }
    }

    /// Adds the variable after a `$` in an expression and returns the index of its end.
    fn add_expression_variable(&mut self, rest: &str) -> Option<usize> {
        if rest.starts_with(['?', '#']) {
            return Some(1);
        }
        let (inner, brackets) = match rest.strip_prefix('{') {
            Some(inner) => (inner, 2),
            None => (rest, 0),
        };
        let end = name_end(inner);
        let is_closed = brackets == 0 || inner[end..].starts_with('}');
        if end == 0 || !inner.starts_with(is_name_start) || !is_closed {
            self.is_unknown = true;
            return None;
        }
        self.evaluated_variables.insert(inner[..end].to_owned());
        Some(end + brackets)
    }

    fn add_counting_loop(&mut self, node: Node<'_>, line: &str) {
        let mut children = node.walk();
        let (mut from, mut to) = (None, None);
        for child in node.children(&mut children) {
            match child.kind() {
                "((" => from = from.or(Some(child.end_byte())),
                "))" => to = to.or(Some(child.start_byte())),
                _ => {}
            }
        }
        match from.zip(to).and_then(|(from, to)| line.get(from..to)) {
            Some(inner) => self.add_expression(inner),
            None => self.is_unknown = true,
        }
    }

    fn add_loop(&mut self, node: Node<'_>, line: &str) {
        let Some(name) = node.child_by_field_name("variable") else { return };
        let mut children = node.walk();
        let values: Vec<&str> = node
            .children_by_field_name("value", &mut children)
            .map(|value| source_text(value, line))
            .collect();
        let is_numbers = !values.is_empty() && values.iter().all(|value| is_number(value) || is_range(value));
        self.record_assignment(source_text(name, line), is_numbers);
    }

    fn record_assignment(&mut self, name: &str, is_number: bool) {
        // Bash itself sets `_` to the last argument of each command.
        let to =
            if is_number && name != "_" { &mut self.number_variables } else { &mut self.other_variables };
        to.insert(name.to_owned());
    }

    fn add_assignment(&mut self, node: Node<'_>, line: &str) {
        // In the head of a loop it is part of an expression.
        if node.parent().is_some_and(|parent| parent.kind() == "c_style_for_statement") {
            return;
        }
        let name = node.child_by_field_name("name").map_or("", |name| source_text(name, line));
        let is_of_number = node.child_by_field_name("value").is_some_and(|value| {
            value.kind() == "arithmetic_expansion" || is_number(source_text(value, line))
        });
        match name.split_once('[') {
            Some((array, _)) => {
                self.has_array = true;
                self.add_subscript(name);
                self.record_assignment(array, false);
            }
            None => self.record_assignment(name, is_of_number),
        }
    }

    /// Adds `name[index]`.
    fn add_subscript(&mut self, text: &str) {
        let index = text.split_once('[').and_then(|(_, rest)| rest.rsplit_once(']'));
        match index.map(|(index, _)| index) {
            Some("@" | "*") => {}
            Some(index) if !index.contains(['$', '`', '\'', '"', '\\']) => self.add_expression(index),
            Some(_) | None => self.is_unknown = true,
        }
    }

    /// Adds the parentheses of an array; `[index]=value` inside them is evaluated.
    fn add_array(&mut self, text: &str) {
        self.has_array = true;
        if text.contains("]=") || text.contains("]+=") {
            for part in text.split('[').skip(1) {
                let index = part.split(']').next().unwrap_or_default();
                self.add_subscript(&format!("[{index}]"));
            }
        }
    }

    /// Adds `${…}`.
    fn add_expansion(&mut self, text: &str) {
        let Some(inner) = strip_delimiters(text, "${", "}") else {
            self.is_unknown = true;
            return;
        };
        if let Some(name) = inner.strip_prefix('!') {
            // Bash expands the variable named by another one, with its subscript, but not the keys of an array.
            let keys = name.strip_suffix("[@]").or_else(|| name.strip_suffix("[*]"));
            let is_keys = keys.is_some_and(|name| !name.is_empty() && name_end(name) == name.len());
            self.is_unknown |= !is_keys && !name.is_empty();
            return;
        }
        let inner = inner.strip_prefix('#').filter(|inner| !inner.is_empty()).unwrap_or(inner);
        let end = match name_end(inner) {
            0 if inner.starts_with(['@', '*', '#', '?', '$', '-', '!']) => 1,
            end => end,
        };
        let (name, mut rest) = inner.split_at(end);
        self.is_unknown |= name.is_empty();
        if let Some(index) = rest.strip_prefix('[') {
            let Some((index, after)) = index.split_once(']') else {
                self.is_unknown = true;
                return;
            };
            self.add_subscript(&format!("[{index}]"));
            rest = after;
        }
        let is_offset = rest.starts_with(':') && !rest[1..].starts_with(['-', '+', '?']);
        if rest.starts_with('=') || rest.starts_with(":=") {
            self.record_assignment(name, false);
        } else if is_offset {
            self.add_expression(&rest[1..]);
        } else if rest.starts_with('@') {
            // `@P` expands commands in the value.
            self.is_unknown |= !matches!(rest, "@Q" | "@U" | "@u" | "@L");
        }
    }

    /// Adds `[ … ]` or `[[ … ]]`.
    fn add_test(&mut self, node: Node<'_>, line: &str) {
        let text = source_text(node, line);
        let Some(inner) = strip_delimiters(text, "[[", "]]") else {
            let inner = strip_delimiters(text, "[", "]").unwrap_or_default();
            self.add_test_words(&split_words(inner));
            return;
        };
        let words = split_words(inner);
        self.add_tested_names(&words);
        let (mut found, mut nodes) = (0, vec![node]);
        while let Some(node) = nodes.pop() {
            let mut children = node.walk();
            nodes.extend(node.children(&mut children));
            let operator = node.child_by_field_name("operator").map(|operator| source_text(operator, line));
            if operator.is_some_and(|operator| NUMERIC_OPERATORS.contains(&operator)) {
                found += 1;
                for side in ["left", "right"] {
                    let side = node.child_by_field_name(side).map_or("'", |side| source_text(side, line));
                    self.add_expression(strip_delimiters(side, "\"", "\"").unwrap_or(side));
                }
            }
        }
        let written: usize = NUMERIC_OPERATORS.iter().map(|operator| inner.matches(operator).count()).sum();
        self.is_unknown |= written != found;
    }

    /// Adds variables whose presence is tested: bash evaluates their subscripts.
    fn add_tested_names(&mut self, words: &[&str]) {
        for (at, word) in words.iter().enumerate() {
            if matches!(word.trim_start_matches(['(', '!']), "-v" | "-R") {
                let name = words.get(at + 1).map_or("", |name| name.trim_end_matches(')'));
                self.is_unknown |= name_end(name) != name.len();
            }
        }
    }

    /// Adds the words of `test` as written. A variable can hold `-v` and a name, so an expanded one must be a
    /// separate word in a place where `test` does not take it for an operator.
    fn add_test_words(&mut self, words: &[&str]) {
        self.add_tested_names(words);
        if words.iter().all(|word| is_literal(word)) {
            return;
        }
        let start = words.iter().take_while(|word| **word == "!").count();
        let words = &words[start..];
        let is_operator = |word: &str| BINARY_OPERATORS.contains(&word);
        let is_unary = |word: &str| word.len() == 2 && word.starts_with('-') && is_literal(word);
        let is_shaped = match words {
            [_] => true,
            [operator, _] => is_unary(operator),
            [_, operator, _] => is_operator(operator),
            _ => false,
        };
        self.is_unknown |= !is_shaped;
        for word in words {
            self.add_single_word(word);
        }
    }

    /// Adds a word that must not expand to several words.
    fn add_single_word(&mut self, word: &str) {
        if is_literal(word) || matches!(word, "$?" | "$#" | "$$" | "$!") {
            return;
        }
        if let Some(inner) = strip_delimiters(word, "\"", "\"") {
            // `"$@"` expands to as many words as there are elements.
            self.is_unknown |= inner.contains(['@', '"']);
        } else if let Some(inner) = strip_delimiters(word, "'", "'") {
            self.is_unknown |= inner.contains('\'');
        } else if let Some(inner) = word.strip_prefix('$') {
            let end = self.add_expression_variable(inner);
            self.is_unknown |= end != Some(inner.len());
        } else {
            self.is_unknown = true;
        }
    }

    fn add_command(&mut self, node: Node<'_>, line: &str) {
        let mut children = node.walk();
        let (mut words, mut raw, mut assigned) = (Vec::new(), Vec::new(), Vec::new());
        for child in node.children(&mut children) {
            match child.kind() {
                "variable_assignment" => assigned.push(child),
                "file_redirect" | "herestring_redirect" | "heredoc_redirect" => {}
                _ => {
                    words.push(word_text(child, line));
                    raw.push(source_text(child, line));
                }
            }
        }
        let behind = words_after_redirects(node);
        let has_behind = !behind.is_empty();
        words.extend(behind.into_iter().map(|node| word_text(node, line)));
        let command = wrappers::strip_wrappers(&words);
        let Some((program, args)) = command.split_first() else { return };
        match program.as_str() {
            "declare" | "typeset" | "local" | "readonly" | "export" => {
                self.add_declaration(args);
                for value in assigned.iter().filter_map(|child| child.child_by_field_name("value")) {
                    let is_plain =
                        value.kind() == "array" || !source_text(value, line).contains(['$', '`', '(']);
                    self.has_loose_declaration |= !is_plain;
                }
            }
            "let" => args.iter().for_each(|arg| self.add_expression(arg)),
            "read" | "mapfile" | "readarray" | "getopts" | "unset" | "wait" | "coproc" => {
                self.has_array |= args.iter().any(|arg| arg.starts_with('-') && arg.contains('a'))
                    || matches!(program.as_str(), "mapfile" | "readarray");
                self.add_variable_names(args);
            }
            "printf" if args.first().is_some_and(|arg| may_be_option(arg, 'v')) => {
                self.add_variable_names(args)
            }
            "test" | "[" => {
                let from = raw.len().saturating_sub(args.len());
                match has_behind {
                    true => self.is_unknown = true,
                    false => self.add_test_words(&raw[from..]),
                }
            }
            _ => {
                for (name, value) in args.iter().filter_map(|arg| arg.split_once('=')) {
                    if !is_number(value) {
                        self.other_variables.insert(name.to_owned());
                    }
                }
            }
        }
    }

    /// Adds the words of a builtin that declares variables, except those that the grammar parses as assignments.
    fn add_declaration(&mut self, args: &[String]) {
        for arg in args {
            if let Some(options) = arg.strip_prefix(['-', '+']) {
                // Integer variables are evaluated when set, and a reference sets a variable of another name.
                self.is_unknown |= options.contains(['i', 'n']);
                self.has_array |= options.contains(['a', 'A']);
            }
            self.is_unknown |= !is_literal(arg) || arg.contains('(');
            let name = arg.split(['=', '+']).next().unwrap_or_default();
            if arg.contains('=') {
                self.other_variables.insert(name.to_owned());
            }
        }
    }

    /// Adds the words of a builtin that sets variables by name.
    fn add_variable_names(&mut self, args: &[String]) {
        for arg in args {
            self.is_unknown |= !is_literal(arg) && arg != "$!";
            let name = arg.trim_start_matches('-');
            // A name may follow its option's letter directly.
            let starts = if arg.starts_with('-') { name.len() } else { usize::from(!name.is_empty()) };
            let names = (0..starts).filter_map(|at| name.get(at..));
            self.other_variables.extend(names.map(str::to_owned));
        }
    }
}

/// Returns the text between `open` and `close`.
fn strip_delimiters<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    text.strip_prefix(open)?.strip_suffix(close)
}

const fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

/// Returns the end of a name or number at the start of `text`.
fn name_end(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    match hexadecimal {
        Some(digits) => !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit()),
        None => !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()),
    }
}

/// Whether a word is a range such as `{1..3}`.
fn is_range(text: &str) -> bool {
    let ends = strip_delimiters(text, "{", "}").and_then(|inner| inner.split_once(".."));
    ends.is_some_and(|(from, to)| is_number(from) && is_number(to))
}

/// Whether a word is literal: bash does not expand it or find a subscript in it.
fn is_literal(word: &str) -> bool {
    !word.contains(['$', '`', '[', ']', '*', '?', '{', '\'', '"', '\\'])
}

/// Whether a word is, or may expand to, an option with this letter.
fn may_be_option(word: &str, letter: char) -> bool {
    let expands = |text: &str| text.starts_with(['$', '`', '[', '*', '?', '{']);
    expands(word) || word.strip_prefix('-').is_some_and(|rest| rest.starts_with(letter) || expands(rest))
}

/// Splits text at blanks outside of quotes, keeping the words as written.
fn split_words(text: &str) -> Vec<&str> {
    let (mut words, mut start, mut quote) = (Vec::new(), None, None);
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        if quote.is_none() && !is_escaped && c.is_ascii_whitespace() {
            words.extend(start.take().and_then(|from: usize| text.get(from..at)));
            continue;
        }
        start = start.or(Some(at));
        match quote {
            _ if is_escaped => is_escaped = false,
            Some('\'') if c != '\'' => {}
            _ if c == '\\' => is_escaped = true,
            Some(open) if open == c => quote = None,
            None if c == '"' || c == '\'' => quote = Some(c),
            Some(_) | None => {}
        }
    }
    words.extend(start.and_then(|from| text.get(from..)));
    words
}

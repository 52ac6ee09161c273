//! Parses a shell line with bash's grammar into its commands at any depth. Pure, and the same on any machine.
//!
//! It reads the text only. The contents of variables, what a program does with its arguments and what a script runs
//! are not visible. The result guides labels, approvals and policy; the security boundary is the sandbox.

use std::borrow::Cow;

use tree_sitter::Node;

use super::{
    arithmetic::ArithmeticCheck,
    lookup_changes,
    parse_coverage::{check_coverage, is_translation_sign},
    simple_command::SimpleCommand,
    words::{has_expansion, source_text, word_text, words_after_redirects},
    wrappers::{is_shell, nested_lines, printed_text},
};
use crate::syntax;

/// Deepest nesting of lines within lines (`bash -c '…'`) that is read.
const DEPTH_MAX: usize = 4;

/// The parsed form of a line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ParsedLine {
    /// The commands; an outer one comes before those inside it.
    pub(crate) commands: Vec<SimpleCommand>,
    /// Whether every byte was understood and everything bash evaluates consists of numbers.
    pub(crate) is_fully_parsed: bool,
    /// Whether it changes which programs run, or what they obey.
    changes_lookup: bool,
    /// The arithmetic that bash evaluates.
    arithmetic: ArithmeticCheck,
}

pub(crate) fn parse_line(line: &str) -> ParsedLine {
    let mut out = ParsedLine { is_fully_parsed: true, ..ParsedLine::default() };
    read_line(line, 0, &mut out);
    // Including the commands before it: a function or a loop may run them later.
    out.commands.iter_mut().for_each(|command| command.is_opaque |= out.changes_lookup);
    out.is_fully_parsed &= out.arithmetic.uses_only_numbers();
    out
}

/// Returns the commands of a line, at any depth.
pub(crate) fn parse_commands(line: &str) -> Vec<SimpleCommand> {
    parse_line(line).commands
}

fn read_line(line: &str, depth: usize, out: &mut ParsedLine) {
    let untranslated = strip_translation_signs(line);
    let line = untranslated.line.as_ref();
    // Bash joins two such lines before it looks at what the `$` begins, but never after a `#`; the grammar does both
    // differently.
    let is_joined = ["$\\\n", "#\\\n"].iter().any(|end| line.contains(end));
    out.is_fully_parsed &= untranslated.is_certain && !is_joined;
    let readable = mask_wide_chars(line);
    let Ok(tree) = syntax::parse_shell(readable.as_bytes()) else {
        // Only its words are known.
        let words = line.split_whitespace().map(str::to_owned).collect();
        out.commands.push(SimpleCommand { words, ..SimpleCommand::default() });
        out.is_fully_parsed = false;
        return;
    };
    let accounted = check_coverage(tree.root_node(), line);
    out.is_fully_parsed &= !tree.root_node().has_error() && !accounted.has_gap;
    let from = out.commands.len();
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        out.changes_lookup |= lookup_changes::sets_program_variable(node, line);
        out.arithmetic.add_node(node, line);
        add_node(node, line, out);
        if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                read_nested_lines((from, accounted.nested_lines), depth, out);
                return;
            }
        }
    }
}

/// A line whose translation signs were removed.
struct UntranslatedLine<'a> {
    line: Cow<'a, str>,
    /// Whether the grammar parsed the original line without errors.
    is_certain: bool,
}

/// Turns each `$"…"` into `"…"`, which is equivalent: bash looks it up in the translations named by `TEXTDOMAIN`, and
/// a line that sets an uppercase variable is unknown anyway. The grammar supports the form in some places only; in
/// others it parses the `$` as a word or part of one.
fn strip_translation_signs(line: &str) -> UntranslatedLine<'_> {
    let as_it_is = UntranslatedLine { line: Cow::Borrowed(line), is_certain: true };
    if !line.contains("$\"") {
        return as_it_is;
    }
    // A line over the parse limit is over it without the signs as well.
    let Ok(tree) = syntax::parse_shell(mask_wide_chars(line).as_bytes()) else { return as_it_is };
    let (mut out, mut from) = (String::with_capacity(line.len()), 0);
    let mut cursor = tree.walk();
    loop {
        let node = cursor.node();
        // The token may start before the sign, and the sign may be escaped or part of a longer sequence.
        let sign = node.end_byte().saturating_sub(1);
        let is_apart = || !line[from..sign].ends_with(['\\', '$']);
        if is_translation_sign(node, line) && is_apart() {
            out.push_str(&line[from..sign]);
            from = node.end_byte();
        }
        if cursor.goto_first_child() {
            continue;
        }
        while !cursor.goto_next_sibling() {
            if !cursor.goto_parent() {
                out.push_str(&line[from..]);
                return UntranslatedLine { line: Cow::Owned(out), is_certain: !tree.root_node().has_error() };
            }
        }
    }
}

/// Prepares the line for the grammar, keeping every byte position. At a brace the scanner asks the C library whether
/// the next character is a digit, which may read past its table for characters above U+00FF (tree-sitter-bash 0.25.1,
/// `scanner.c`). Such characters are replaced by letters, which is what they are to bash.
fn mask_wide_chars(line: &str) -> Cow<'_, str> {
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

/// Reads lines that commands contain in their arguments.
fn read_nested_lines((from, mut lines): (usize, Vec<String>), depth: usize, out: &mut ParsedLine) {
    let mut commands: Vec<SimpleCommand> = Vec::new();
    for at in from..out.commands.len() {
        let command = &mut out.commands[at];
        let (held, is_dark) = nested_lines(&command.words);
        lines.extend(held);
        lines.extend(command.piped_line.take());
        command.is_opaque |= is_dark || lookup_changes::evaluates_array_index(&command.words);
        out.changes_lookup |= lookup_changes::changes_command_lookup(command.unwrapped_words());
        let (program, args) = (command.program(), command.args());
        if program == "find" {
            let exec = |arg: &String| ["-exec", "-execdir", "-ok", "-okdir"].contains(&arg.as_str());
            for at in (0..args.len()).filter(|at| exec(&args[*at])) {
                let words = args[at + 1..].iter().take_while(|arg| *arg != ";" && *arg != "+");
                commands.push(SimpleCommand { words: words.cloned().collect(), ..SimpleCommand::default() });
            }
        }
    }
    out.commands.extend(commands.into_iter().filter(|command| !command.words.is_empty()));
    if depth >= DEPTH_MAX {
        out.is_fully_parsed &= lines.is_empty();
        return;
    }
    for line in lines {
        read_line(&line, depth + 1, out);
    }
}

fn add_node(node: Node<'_>, line: &str, out: &mut ParsedLine) {
    match node.kind() {
        "command" | "declaration_command" | "unset_command" | "test_command" => {
            let mut command = SimpleCommand::default();
            let mut children = node.walk();
            let mut word_end = None;
            for child in node.children(&mut children) {
                match child.kind() {
                    "file_redirect" => command.writes_to.extend(redirect_target(child, line)),
                    "herestring_redirect" => read_here_string(&mut command, child, line),
                    "heredoc_redirect" | "subshell" => {}
                    kind => {
                        // Bash takes adjacent parts as one word, the grammar as two.
                        out.is_fully_parsed &=
                            word_end != Some(child.start_byte()) || node.kind() == "test_command";
                        word_end = Some(child.end_byte());
                        // An assignment is not expanded to several words, and the words in brackets are not
                        // arguments.
                        let is_argument = kind != "variable_assignment" && node.kind() != "test_command";
                        if is_argument && has_expansion(source_text(child, line)) {
                            command.expands_at.get_or_insert(command.words.len());
                        }
                        command.words.push(word_text(child, line));
                    }
                }
            }
            let behind = words_after_redirects(node);
            if behind.iter().any(|node| has_expansion(source_text(*node, line))) {
                command.expands_at.get_or_insert(command.words.len());
            }
            command.words.extend(behind.into_iter().map(|node| word_text(node, line)));
            command.is_opaque |= command.words_before_expansion().is_some_and(|words| words.is_empty());
            read_piped_input(node, line, &mut command);
            out.commands.push(command);
        }
        // A command's own redirection was read with the command.
        "herestring_redirect" if node.parent().is_none_or(|parent| parent.kind() != "command") => {
            if let Some(last) = out.commands.last_mut() {
                read_here_string(last, node, line);
            }
        }
        // A command's own redirection was read with the command.
        "file_redirect" if node.parent().is_none_or(|parent| parent.kind() != "command") => {
            let Some(path) = redirect_target(node, line) else { return };
            let body = node.parent().and_then(|parent| parent.child_by_field_name("body"));
            match out.commands.last_mut() {
                Some(last) if body.is_some_and(|body| body.kind() == "command") => last.writes_to.push(path),
                _ => out.commands.push(SimpleCommand { writes_to: vec![path], ..SimpleCommand::default() }),
            }
        }
        "&" if !node.is_named() => {
            if let Some(last) = out.commands.last_mut() {
                last.is_background = true;
            }
        }
        // A shell's input is a line too.
        "heredoc_body" => {
            let shell = out.commands.last().is_some_and(|last| is_shell(last.program()));
            // `cat <<A | sh`: the text reaches the shell as well.
            let piped = out.commands.iter().any(|command| command.is_opaque && is_shell(command.program()));
            if !shell && piped {
                let words = ["sh", "-c", source_text(node, line)].map(str::to_owned).to_vec();
                out.commands.push(SimpleCommand { words, ..SimpleCommand::default() });
            } else if shell && let Some(last) = out.commands.last_mut() {
                let text = source_text(node, line).to_owned();
                last.words.extend(["-c".to_owned(), text]);
            }
        }
        _ => {}
    }
}

/// Reads the line that a shell gets from a here-string.
fn read_here_string(command: &mut SimpleCommand, redirect: Node<'_>, line: &str) {
    let mut children = redirect.walk();
    let Some(said) = redirect.named_children(&mut children).last() else { return };
    if is_shell(command.program()) {
        let text = word_text(said, line);
        command.is_opaque |= text.contains(['$', '`']);
        command.words.extend(["-c".to_owned(), text]);
    }
}

/// Reads the line that a shell gets through a pipe; the command is opaque if that line is not visible.
fn read_piped_input(node: Node<'_>, line: &str, command: &mut SimpleCommand) {
    let reads_input = command.args().iter().all(|arg| arg.starts_with('-') && !has_c_option(arg))
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
        // In `cat <<A | sh` the pipe is part of the redirection node.
        command.is_opaque |= is(&parent, "heredoc_redirect")
            || parent.parent().is_some_and(|parent| is(&parent, "heredoc_redirect"));
        return;
    };
    let mut parts = before.walk();
    let words: Vec<String> = before.children(&mut parts).map(|part| word_text(part, line)).collect();
    command.piped_line = if is(&before, "command") { printed_text(&words) } else { None };
    command.is_opaque |= command.piped_line.is_none();
}

fn has_c_option(arg: &str) -> bool {
    arg.starts_with('-') && !arg.starts_with("--") && arg.contains('c')
}

/// Returns the file that a redirection writes to; `None` if it reads or names a stream.
fn redirect_target(redirect: Node<'_>, line: &str) -> Option<String> {
    let mut children = redirect.walk();
    let sign = redirect.children(&mut children).find(|child| !child.is_named()).map(|child| child.kind())?;
    let to = redirect.child_by_field_name("destination").map(|to| word_text(to, line))?;
    let is_stream = sign.ends_with('&') && (to == "-" || to.chars().all(|c| c.is_ascii_digit()));
    (sign.contains('>') && !is_stream).then_some(to)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{quote, refusal_reason},
        *,
    };

    #[test]
    fn line_is_split_into_commands() {
        let programs =
            |line: &str| parse_commands(line).iter().map(|c| c.program().to_owned()).collect::<Vec<_>>();
        assert_eq!(
            programs("cd a && FOO=1 /usr/bin/make -j2 | tee log; echo 'x; y'"),
            ["cd", "make", "tee", "echo"]
        );
        for wrapped in [
            "sudo -u root git push",
            "stdbuf -o L git push",
            "flock /tmp/l git push",
            "flock -w 3 l timeout -s KILL 5 git push",
            "strace -f -o out git push",
            "unshare -r git push",
            "coproc git push",
            "chroot /x git push",
            "ionice -c 3 nice -n 5 git push",
        ] {
            assert_eq!(programs(wrapped).last().map(String::as_str), Some("git"), "{wrapped}");
        }
        assert_eq!(programs("echo $(git push) `rm x`"), ["echo", "git", "rm"]);
        assert_eq!(programs("echo \"$(curl x)\""), ["echo", "curl"]);
        assert_eq!(programs("sudo -n timeout 5 rm x # gone"), ["rm"]);
        assert_eq!(parse_commands("make 2>/dev/null >out")[0].writes_to, ["/dev/null", "out"]);
    }

    /// Formats all words of all commands as `a b|c`.
    fn format_words(line: &str) -> String {
        let all = parse_commands(line).into_iter().map(|command| command.words.join(" "));
        all.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn commands_are_found_at_any_depth() {
        for (line, all) in [
            ("if test -e a; then git push; else rm b; fi", "test -e a|git push|rm b"),
            ("for f in *.py; do (cd $f && black \"$f\"); done", "cd $f|black $f"),
            ("while read l; do echo $l; done < in", "read l|echo $l"),
            ("f() { curl x; }; f", "curl x|f"),
            ("a=$(b c) d", "a=$(b c) d|b c"),
            ("diff <(sort a) <(sort b)", "diff <(sort a) <(sort b)|sort a|sort b"),
            ("bash -lc 'git push && ls'", "bash -lc git push && ls|git push|ls"),
            ("eval \"rm -rf x\"", "eval rm -rf x|rm -rf x"),
            ("find . -name '*.o' -exec rm -f {} \\;", "find . -name *.o -exec rm -f {} ;|rm -f {}"),
            ("sh <<'EOF'\ngit push\nEOF", "sh -c git push\n|git push"),
            ("cat > x.py <<EOF\nimport os; rm(a)\n$(touch y)\nEOF", "cat|touch y"),
            ("[[ -f a && -f b ]] || touch 'it'\\''s'", "[[ -f a && -f b ]]|touch it's"),
            ("case $x in a) ls;; *) rm y;; esac", "ls|rm y"),
            ("export A=1; unset B", "export A=1|unset B"),
            ("! grep -q x y && { echo a; }", "grep -q x y|echo a"),
            ("echo a\\ b \"c\\\"d\" e\"f\"'g'", "echo a b c\"d efg"),
            ("bash <<< 'git push'", "bash -c git push|git push"),
            ("echo 'git push' | sh", "echo git push|sh|git push"),
            ("printf 'git push\\n' | sudo bash -s", "printf git push\\n|sudo bash -s|git push"),
            ("env -S 'git push' origin", "env -S git push origin|git push origin"),
            ("su -c 'git push' root", "su -c git push root|git push"),
            ("watch -n 5 git push", "watch -n 5 git push|git push"),
            ("flock -c 'git push' /l", "flock -c git push /l|git push"),
            ("parallel ::: 'git push' ls", "parallel ::: git push ls|git push|ls"),
            ("trap 'git push' EXIT", "trap git push EXIT|git push"),
            ("alias g='git push'; g", "alias g=git push|g|git push"),
            ("busybox sh -c 'rm z'", "busybox sh -c rm z|rm z"),
            ("$\"git\" $\"push\" a$\"b\"c $\"\"d -$\"e\" $'f'", "git push abc d -e f"),
            ("bash -c $\"git \\$\\\"push\\\"\"", "bash -c git $\"push\"|git push"),
            ("echo $\"$(rm x)\" \"a$\" 'b$\"'", "echo $(rm x) a$ b$\"|rm x"),
            ("timeout 5 sh -c \"sh -c 'rm z'\"", "timeout 5 sh -c sh -c 'rm z'|sh -c rm z|rm z"),
        ] {
            assert_eq!(format_words(line), all, "{line}");
            assert!(parse_line(line).is_fully_parsed, "{line}");
        }
        for line in
            ["echo 'open", "if true; then", "a ))", "a > $'\\x62'", "a 2>&1 $'\\x62'", "sh <<< $'\\x62'"]
        {
            assert!(!parse_line(line).is_fully_parsed, "{line}");
        }
        let writes = |line: &str| -> Vec<String> {
            parse_commands(line).into_iter().flat_map(|c| c.writes_to).collect()
        };
        assert_eq!(
            writes("{ a; b; } > out 2>&1; c &> log; > empty; d >| over; e < in; f > $\"o\"u$\"t\""),
            ["out", "log", "empty", "over", "out"]
        );
        let background: Vec<bool> =
            parse_commands("a & b; c && d &").iter().map(|c| c.is_background).collect();
        assert_eq!(background, [true, false, false, true]);
    }

    #[test]
    fn words_are_known_up_to_the_first_expansion() {
        for (line, before) in [
            ("git push $x", Some("git push")),
            ("git {push,origin}", Some("git")),
            ("git p?sh", Some("git")),
            ("git $\"$x\"", Some("git")),
            ("git a$\"$x\" b", Some("git")),
            ("git 2>&1 \"'\"$x", Some("git")),
            ("git a\"$x\"b", Some("git")),
            ("git `x`", Some("git")),
            ("git 2>&1 $x", Some("git")),
            ("sudo -n git add *.py", Some("git add")),
            ("A=$x git push [ab]", Some("git push")),
            ("timeout {5,git} push", Some("")),
            ("timeout $x git push", Some("")),
            ("gi? push", Some("")),
            ("git push '$x' \"*\" \\* {} a{b}c HEAD@{1}", None),
            ("[ -n $x ]", None),
        ] {
            let found = parse_commands(line)[0].words_before_expansion();
            assert_eq!(found.map(|words| words.join(" ")).as_deref(), before, "{line}");
        }
    }

    #[test]
    fn unparsable_line_is_read_in_bounded_time() {
        for part in ["$(", "((", "{ ", "`", "\"$(", "<<A\n", "if a; then ", "a|", "case x in ", "${a:-"] {
            let line = part.repeat(32 * 1024 / part.len());
            let read = parse_line(&line);
            assert!(!read.is_fully_parsed, "{part}");
        }
    }

    #[test]
    fn any_character_may_follow_a_brace() {
        for c in ['\u{e9}', '\u{100}', '\u{3000}', '\u{1f600}', '\u{10ffff}'] {
            let line = format!("echo {{{c}..3}} {{1..{c}}}; rm '{c}'");
            let script = parse_line(&line);
            let programs: Vec<&str> = script.commands.iter().map(SimpleCommand::program).collect();
            assert_eq!(programs, ["echo", "rm"], "{line}");
            assert_eq!(script.commands[1].args(), [c.to_string()], "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_parsed_and_quoted_without_panic(line in "\\PC{0,60}") {
            refusal_reason(&line);
            let quoted = quote(&line);
            let read = parse_commands(&format!("echo {quoted}"));
            prop_assert_eq!(&read[0].words, &["echo".to_owned(), line]);
        }
    }
}

//! How the line of a check is run: a pipe fails with any of its commands, so that `pytest | tail` is not taken for tests
//! that passed. Pure. What is recorded and shown is the line as it was written.

use std::borrow::Cow;

use tree_sitter::Node;

use crate::syntax;

/// A shell that does not know the option goes on without it.
const PIPEFAIL: &str = "(set -o pipefail) 2>/dev/null && set -o pipefail; ";

/// Around a command that stops reading early, and around those in front of it. The first reads on where that command
/// stopped, so that a test runner comes to its end and has a status of its own; what goes on beyond 16 MiB (`yes`) is
/// ended by SIGPIPE, status 141, which the second does not take for a failure.
const FUNCTIONS: &str = r#"docket_rest() { "$@" && set -- 0 || set -- $?; command head -c 16777216 >/dev/null 2>&1; return "$1"; }; docket_cut() { "$@" || return $(($? == 141 ? 0 : $?)); }; "#;

/// Programs that may stop reading before their input ends.
const STOP_EARLY: [&str; 7] = ["head", "grep", "egrep", "fgrep", "rg", "sed", "awk"];

/// The line as it is run; unchanged where it has no pipe.
pub(crate) fn as_check(line: &str) -> Cow<'_, str> {
    if !line.contains('|') {
        return Cow::Borrowed(line);
    }
    let mut marks = marks(line).unwrap_or_default();
    if marks.is_empty() {
        return Cow::Owned(format!("{PIPEFAIL}{line}"));
    }
    marks.sort_unstable();
    marks.dedup_by_key(|(at, _)| *at);
    let mut run = line.to_owned();
    for (at, function) in marks.into_iter().rev() {
        run.insert_str(at, function);
    }
    Cow::Owned(format!("{PIPEFAIL}{FUNCTIONS}{run}"))
}

/// Where which function goes into the line; `None` where it cannot be read for certain.
fn marks(line: &str) -> Option<Vec<(usize, &'static str)>> {
    // The grammar's scanner reads beyond a table of the C library for such characters.
    if line.chars().any(|c| c > '\u{ff}') {
        return None;
    }
    let tree = syntax::shell_tree(line.as_bytes()).ok().filter(|tree| !tree.root_node().has_error())?;
    let (mut marks, mut open) = (Vec::new(), vec![tree.root_node()]);
    while let Some(node) = open.pop() {
        let children: Vec<Node<'_>> = node.named_children(&mut node.walk()).collect();
        if node.kind() == "pipeline" {
            let names: Vec<_> = children.iter().map(|stage| name(*stage)).collect();
            let stops =
                |at: &usize| names[*at].is_some_and(|name| STOP_EARLY.contains(&&line[name.byte_range()]));
            if let Some(last) = (1..names.len()).rev().find(stops) {
                for (at, name) in names.iter().enumerate().take(last + 1) {
                    // `time` is a word of the shell, not a program.
                    let Some(name) = name.filter(|name| &line[name.byte_range()] != "time") else { continue };
                    let function = if at > 0 && stops(&at) { "docket_rest " } else { "docket_cut " };
                    marks.push((name.start_byte(), function));
                }
            }
        }
        open.extend(children);
    }
    Some(marks)
}

/// The name of the one command that a stage of a pipe is.
fn name(stage: Node<'_>) -> Option<Node<'_>> {
    match stage.kind() {
        "command" => stage.child_by_field_name("name"),
        "redirected_statement" => stage.child_by_field_name("body").and_then(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::super::testing::Workspace, *};

    /// The status that a line ends with where it is run as a check, by the shell's own account.
    fn status(shell: &str, line: &str) -> Option<i32> {
        let mut w =
            Workspace::new(&[("fails.sh", "seq 1 200000; exit 3\n"), ("passes.sh", "seq 1 200000\n")]);
        let run = as_check(line);
        let command = format!("{shell} -c {}", super::super::quote(&run));
        w.call("run_command", serde_json::json!({ "command": command })).facts.exit
    }

    #[test]
    fn a_pipe_fails_with_any_of_its_commands() {
        for (line, want) in [
            ("exit 3", 3),
            ("sh fails.sh | tail -5", 3),
            ("sh fails.sh 2>&1 | tee log | tail -5", 3),
            ("no-such-program 2>&1 | tail -5", 127),
            ("cd . && sh fails.sh 2>&1 | tail -5 && echo well", 3),
            ("true | false | true", 1),
            ("sh passes.sh | tail -5", 0),
            ("sh fails.sh | tail -5; true", 0),
            ("sh fails.sh | tail -5 || true", 0),
            ("if sh fails.sh | tail -1; then exit 4; else exit 5; fi", 5),
            // What is cut off has a status of its own all the same.
            ("sh fails.sh | head -5", 3),
            ("sh passes.sh | head -5", 0),
            ("sh passes.sh 2>&1 | head -5 && exit 6", 6),
            ("A=1 sh fails.sh 2>&1 | cat | head -n 5 > log", 3),
            ("python3 -c 'for n in range(100000): print(n)' | head -1", 0),
            ("sh passes.sh | grep -q 7", 0),
            ("sh fails.sh | grep -q 7", 3),
            ("sh passes.sh | grep -q x", 1),
            ("yes | head -5", 0),
            ("set -e; yes | head -5; exit 7", 7),
            ("x=$(yes | head -1); [ $x = y ]", 0),
            ("(sh fails.sh; true) | head -2", 0),
            ("time true | head -5", 0),
            ("cat <<E | head -1\na\nE\n", 0),
            ("echo 'a | head'", 0),
            ("printf '%s' 'ab…' | head -1", 0),
        ] {
            assert_eq!(status("bash", line), Some(want), "{line}: {}", as_check(line));
        }
    }

    #[test]
    fn a_shell_without_pipefail_still_runs_the_line() {
        for (line, want) in [("true | tail -5", 0), ("true | false", 1), ("sh passes.sh | head -5", 0)] {
            assert_eq!(status("sh", line), Some(want), "{line}");
        }
    }

    #[test]
    fn a_line_without_a_pipe_is_run_as_it_is() {
        for line in ["pytest -q", "make test; true", ""] {
            assert_eq!(as_check(line), line);
        }
        assert!(as_check("pytest -q || true").ends_with("; pytest -q || true"));
    }
}

//! Runs the line of a check with `pipefail`, so that `pytest | tail` fails if pytest does. The line is recorded and
//! shown as written.

use std::borrow::Cow;

/// A shell without this option continues without it.
const PIPEFAIL: &str = "(set -o pipefail) 2>/dev/null && set -o pipefail; ";

/// Returns the line to run; unchanged if it has no pipe.
pub(crate) fn with_pipefail(line: &str) -> Cow<'_, str> {
    if line.contains('|') { Cow::Owned(format!("{PIPEFAIL}{line}")) } else { Cow::Borrowed(line) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::TestWorkspace;

    /// Exit status of a line that is run as a check.
    fn status(shell: &str, line: &str) -> Option<i32> {
        let mut w =
            TestWorkspace::new(&[("fails.sh", "seq 1 200000; exit 3\n"), ("passes.sh", "seq 1 200000\n")]);
        let run = with_pipefail(line);
        let command = format!("{shell} -c {}", super::super::quote(&run));
        w.call_tool("run_command", serde_json::json!({ "command": command })).facts.exit
    }

    #[test]
    fn pipe_fails_when_any_command_fails() {
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
            ("echo 'a | head'", 0),
        ] {
            assert_eq!(status("bash", line), Some(want), "{line}: {}", with_pipefail(line));
        }
    }

    #[test]
    fn shell_without_pipefail_still_runs_the_line() {
        for (line, want) in [("true | tail -5", 0), ("true | false", 1)] {
            assert_eq!(status("sh", line), Some(want), "{line}");
        }
    }

    #[test]
    fn line_without_a_pipe_is_unchanged() {
        for line in ["pytest -q", "make test; true", ""] {
            assert_eq!(with_pipefail(line), line);
        }
        assert!(with_pipefail("pytest -q || true").ends_with("; pytest -q || true"));
    }
}

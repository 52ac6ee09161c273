//! What a tool call came to, in a word: the one rule by which all views call a turn's work failed.
//!
//! A tool that did what was asked has run a command, whatever that command's end: its exit status and the
//! counts of its tests stand in the recorded facts. Pure.

use std::borrow::Cow;

use docket_schema::{
    run::{ToolFinished, ToolStatus},
    tool::TestCounts,
};

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CameTo {
    /// It did what was asked, and what it ran ended well.
    Ok,
    /// The tool failed, or a signal ended its command.
    Failed,
    /// The time limit ended its command.
    TimedOut,
    /// Policy or the tool refused it.
    Refused,
    /// A crash came between intent and result.
    Unknown,
    /// Its command ended with this status.
    Exit(i32),
    /// So many of its tests failed.
    TestsFailed(u32),
    /// None of its tests failed, but so many could not be run.
    TestErrors(u32),
}

impl CameTo {
    /// By what a result records. Where tests were run the exit status decides, as it does for the model.
    pub(crate) fn of(
        status: ToolStatus,
        exit: Option<i32>,
        tests: Option<TestCounts>,
        timed_out: bool,
    ) -> Self {
        match status {
            ToolStatus::Ok => {}
            ToolStatus::Error if timed_out => return Self::TimedOut,
            ToolStatus::Error => return Self::Failed,
            ToolStatus::Refused => return Self::Refused,
            ToolStatus::Unknown => return Self::Unknown,
        }
        match (exit, tests) {
            (Some(0), _) => Self::Ok,
            (_, Some(TestCounts { failed: failed @ 1.., .. })) => Self::TestsFailed(failed),
            (_, Some(TestCounts { errors: errors @ 1.., .. })) => Self::TestErrors(errors),
            (Some(exit), _) => Self::Exit(exit),
            (None, _) => Self::Ok,
        }
    }

    /// By a result.
    pub(crate) fn of_result(result: &ToolFinished) -> Self {
        Self::of(result.status, result.facts.exit, result.facts.tests, result.facts.timed_out)
    }

    /// Whether the turn's work failed in it.
    pub(crate) fn is_ok(self) -> bool {
        self == Self::Ok
    }

    /// The word.
    pub(crate) fn word(self) -> Cow<'static, str> {
        match self {
            Self::Ok => "ok".into(),
            Self::Failed => "failed".into(),
            Self::TimedOut => "timed out".into(),
            Self::Refused => "refused".into(),
            Self::Unknown => "unknown".into(),
            Self::Exit(status) => format!("exit {status}").into(),
            Self::TestsFailed(count) => format!("{count} failed").into(),
            Self::TestErrors(count) => format!("{count} errors").into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_ended_badly_and_tests_that_failed_are_failures() {
        let tests = |failed, errors| Some(TestCounts { passed: 4, failed, errors, skipped: 0 });
        for (status, exit, counts, timed_out, word) in [
            (ToolStatus::Ok, None, None, false, "ok"),
            (ToolStatus::Ok, Some(0), None, false, "ok"),
            (ToolStatus::Ok, Some(7), None, false, "exit 7"),
            (ToolStatus::Ok, Some(101), tests(3, 1), false, "3 failed"),
            (ToolStatus::Ok, Some(101), tests(0, 2), false, "2 errors"),
            (ToolStatus::Ok, Some(1), tests(0, 0), false, "exit 1"),
            (ToolStatus::Ok, Some(0), tests(0, 0), false, "ok"),
            (ToolStatus::Error, None, None, true, "timed out"),
            (ToolStatus::Error, None, None, false, "failed"),
            (ToolStatus::Refused, None, None, false, "refused"),
            (ToolStatus::Unknown, None, None, false, "unknown"),
        ] {
            let came = CameTo::of(status, exit, counts, timed_out);
            assert_eq!(came.word(), word);
            assert_eq!(came.is_ok(), word == "ok", "{word}");
        }
    }
}

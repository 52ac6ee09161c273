//! What the fold of a role's work says of tests that passed.

use super::{ToolFinished, ToolStatus, Work};
use crate::{
    content::{Content, WorkPath},
    message::{CallId, ToolUse},
    tool::{TestCounts, ToolFacts},
};

fn tester() -> Work {
    Work { role: Some("tester".to_owned()), ..Work::default() }
}

fn ends(work: &mut Work, name: &str, facts: ToolFacts) {
    let call = CallId("c".to_owned());
    let tool =
        ToolUse { call: call.clone(), name: name.to_owned(), args: serde_json::json!({}), malformed: None };
    let content = Content::Text(String::new());
    let (status, full, duration_ms) = (ToolStatus::Ok, None, 0);
    work.finished(&tool, &ToolFinished { call, status, content, full, facts, duration_ms });
}

fn tests(exit: i32, passed: u32) -> ToolFacts {
    let counts = TestCounts { passed, ..TestCounts::default() };
    ToolFacts { exit: Some(exit), tests: Some(counts), may_have_changed_tree: true, ..ToolFacts::default() }
}

fn command() -> ToolFacts {
    ToolFacts { exit: Some(0), may_have_changed_tree: true, ..ToolFacts::default() }
}

/// A run of the tests that passed is shown until something may have changed; one without a test shows nothing.
#[test]
fn tests_have_passed_until_something_may_have_changed() {
    let read = ToolFacts::default();
    let edit = ToolFacts { changed: vec![WorkPath::new("a.py").expect("legal")], ..ToolFacts::default() };
    for (calls, passed) in [
        (vec![], false),
        (vec![("run_tests", tests(0, 3))], true),
        (vec![("run_tests", tests(0, 3)), ("read_file", read)], true),
        (vec![("run_tests", ToolFacts { tests: None, ..tests(0, 0) })], true),
        (vec![("run_tests", tests(0, 0))], false),
        (vec![("run_tests", tests(1, 3))], false),
        (vec![("run_tests", tests(0, 3)), ("run_tests", tests(1, 2))], false),
        (vec![("run_tests", tests(0, 3)), ("edit_file", edit)], false),
        (vec![("run_tests", tests(0, 3)), ("run_command", command())], false),
        (vec![("run_command", command())], false),
        (vec![("run_command", command()), ("run_tests", tests(0, 1))], true),
    ] {
        let mut work = tester();
        let names: Vec<&str> = calls.iter().map(|(name, _)| *name).collect();
        calls.iter().for_each(|(name, facts)| ends(&mut work, name, facts.clone()));
        assert_eq!(work.tests_passed, passed, "{names:?}");
    }
}

//! What the fold of a role's work records about passed tests.

use super::{RoleEngineState, ToolFinished, ToolStatus};
use crate::{
    content::{Content, WorkspacePath},
    message::{CallId, ToolUse},
    tool::{TestCounts, ToolFacts},
};

fn tester_state() -> RoleEngineState {
    RoleEngineState { role: Some("tester".to_owned()), ..RoleEngineState::default() }
}

fn finish_call(work: &mut RoleEngineState, name: &str, facts: ToolFacts) {
    let call = CallId("c".to_owned());
    let tool =
        ToolUse { call: call.clone(), name: name.to_owned(), args: serde_json::json!({}), malformed: None };
    let content = Content::Text(String::new());
    let (status, full, duration_ms) = (ToolStatus::Ok, None, 0);
    work.record_tool_result(&tool, &ToolFinished { call, status, content, full, facts, duration_ms });
}

fn test_facts(exit: i32, passed: u32) -> ToolFacts {
    let counts = TestCounts { passed, ..TestCounts::default() };
    ToolFacts { exit: Some(exit), tests: Some(counts), may_have_changed_tree: true, ..ToolFacts::default() }
}

fn command_facts() -> ToolFacts {
    ToolFacts { exit: Some(0), may_have_changed_tree: true, ..ToolFacts::default() }
}

/// Passed tests are recorded until something may have changed; a run without tests records nothing.
#[test]
fn tests_passed_resets_when_files_may_have_changed() {
    let read = ToolFacts::default();
    let edit =
        ToolFacts { changed: vec![WorkspacePath::new("a.py").expect("legal")], ..ToolFacts::default() };
    for (calls, passed) in [
        (vec![], false),
        (vec![("run_tests", test_facts(0, 3))], true),
        (vec![("run_tests", test_facts(0, 3)), ("read_file", read)], true),
        (vec![("run_tests", ToolFacts { tests: None, ..test_facts(0, 0) })], true),
        (vec![("run_tests", test_facts(0, 0))], false),
        (vec![("run_tests", test_facts(1, 3))], false),
        (vec![("run_tests", test_facts(0, 3)), ("run_tests", test_facts(1, 2))], false),
        (vec![("run_tests", test_facts(0, 3)), ("edit_file", edit)], false),
        (vec![("run_tests", test_facts(0, 3)), ("run_command", command_facts())], false),
        (vec![("run_command", command_facts())], false),
        (vec![("run_command", command_facts()), ("run_tests", test_facts(0, 1))], true),
    ] {
        let mut work = tester_state();
        let names: Vec<&str> = calls.iter().map(|(name, _)| *name).collect();
        calls.iter().for_each(|(name, facts)| finish_call(&mut work, name, facts.clone()));
        assert_eq!(work.tests_passed, passed, "{names:?}");
    }
}

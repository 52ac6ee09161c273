//! Tests of which orders of the orchestrator are accepted, and when.

use super::*;

fn parse_reply(text: &str) -> OrchestratorReply {
    serde_json::from_str(text).expect("an order")
}

#[test]
fn order_is_accepted_or_rejected_with_a_reason() {
    let mut run = RunState::default();
    run.engine_state.answers.insert("architect".to_owned(), Value::Null);
    let brief = || OrchestratorRequest::Brief("coder");
    let open = || OrchestratorRequest::Decision { objection: None, role_order: vec!["architect", "coder"] };
    let held = || OrchestratorRequest::Decision {
        objection: Some("the reviewer sent it back".to_owned()),
        role_order: vec!["coder"],
    };
    for (order, wants, told) in [
        (r#"{"action": "hand_over", "brief": "Mend f", "results": ["task", "architect"]}"#, brief(), None),
        (r#"{"action": "hand_over", "brief": " "}"#, brief(), Some("`/brief`: it is missing")),
        (
            r#"{"action": "hand_over", "brief": "b", "results": ["task", "tester"]}"#,
            brief(),
            Some("`/results/1`: there is no such result; there are task, changes, checks, architect"),
        ),
        (r#"{"action": "finish"}"#, brief(), Some("`/action`: it must be \"hand_over\"")),
        (r#"{"action": "again", "reason": "r"}"#, brief(), Some("`/action`: it must be \"hand_over\"")),
        (r#"{"action": "ask", "question": "Which f?"}"#, brief(), None),
        (r#"{"action": "ask"}"#, open(), Some("`/question`: it is missing")),
        (r#"{"action": "finish"}"#, open(), None),
        (
            r#"{"action": "finish"}"#,
            held(),
            Some("`/action`: it cannot be \"finish\": the reviewer sent it back"),
        ),
        (r#"{"action": "again", "reason": "r", "from": "coder"}"#, held(), None),
        (r#"{"action": "again", "reason": "r"}"#, open(), None),
        (r#"{"action": "again"}"#, open(), Some("`/reason`: it is missing")),
        (
            r#"{"action": "again", "reason": "r", "from": "tester"}"#,
            open(),
            Some("`/from`: it must be one of"),
        ),
        (r#"{"action": "hand_over", "brief": "b"}"#, open(), Some("`/action`: all roles have spoken")),
    ] {
        match (check_order(&run, &parse_reply(order), &wants), told) {
            (Ok(()), None) => {}
            (Err(why), Some(told)) if why.starts_with(told) => {}
            (other, _) => panic!("{order}: {other:?}"),
        }
    }
}

#[test]
fn tester_is_believed_only_with_evidence() {
    let mut run = RunState::default();
    let passed = serde_json::json!({"outcome": "passed", "summary": "all green"});
    let none = serde_json::json!({"outcome": "none", "summary": "s"});
    let told = |run: &RunState, proves, words: &str| {
        assert!(
            check_plausible(run, TESTER, &passed, proves).is_err_and(|why| why.contains(words)),
            "{words}"
        );
    };
    told(&run, true, "you ran nothing");
    told(&run, false, "you ran nothing");
    run.engine_state.commands_ended = 1;
    told(&run, false, "nothing shows it");
    // The runtime's own checks outweigh any command of the tester.
    assert_eq!(check_plausible(&run, TESTER, &passed, true), Ok(()));
    for proves in [true, false] {
        assert_eq!(check_plausible(&run, TESTER, &none, proves), Ok(()));
        assert_eq!(check_plausible(&run, "coder", &passed, proves), Ok(()));
    }
    run.engine_state.tests_passed = true;
    assert_eq!(check_plausible(&run, TESTER, &passed, false), Ok(()));
}

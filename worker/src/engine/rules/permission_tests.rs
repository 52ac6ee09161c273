//! Tests of policy verdicts on calls, and of people's answers if policy asks.

use docket_schema::{
    content::Content,
    ids::DecisionHash,
    message::{CallId, ToolUse},
    run::{
        BlockedReason, BlockerAnswered, Concluded, EngineFact, PolicyVerdict, RunBlocked, RunSettings,
        ToolStatus,
    },
    tool::ToolFacts,
};
use serde_json::json;

use crate::engine::{Action, Decision, react_tests::TestLog};
use crate::{policy, tools};

const POLICY_TOML: &str = r#"
[[rules]]
id = "no-push"
verdict = "deny"
commands = ["git push *"]
reason = "results are taken from the workspace"

[[rules]]
id = "deletes"
verdict = "ask"
labels = ["deletes"]
"#;

fn permission_log() -> TestLog {
    let mut log =
        TestLog::with_settings(RunSettings { plan_asks_max: 0, ..RunSettings::default() }, &[], "namespaces");
    log.state.policies = vec![policy::parse_policy_text(POLICY_TOML).expect("a policy")];
    log
}

fn batch_verdicts(decision: &Decision) -> Vec<PolicyVerdict> {
    match &decision.act {
        Action::RunTools(batch) => batch.iter().map(|tool| tool.policy.clone()).collect(),
        other => panic!("{other:?}"),
    }
}

/// Records policy's question and a person's answer.
fn answer_and_describe(log: &mut TestLog, answer: &str) -> String {
    let Action::Block { question, why, about } = log.decide().act else { panic!("{:?}", log.decide()) };
    assert_eq!(why, BlockedReason::Policy);
    let Content::Text(asked) = question.clone() else { panic!("{question:?}") };
    let decision = log.decide().hash();
    log.push(RunBlocked { question, why, outages: 0, about, decision });
    log.push(BlockerAnswered { text: answer.into(), by: "ann".to_owned() });
    asked
}

#[test]
fn denied_call_gets_its_reason_and_the_rest_of_the_batch_runs() {
    let mut log = permission_log();
    let commands = ["make", "make && git push origin main", "git status"];
    let calls = commands.map(|line| ("run_command", json!({ "command": line })));
    log.answer_with("", &calls);
    let said = batch_verdicts(&log.decide());
    let allow = PolicyVerdict::Allow { rule: "default".to_owned() };
    let reason = "results are taken from the workspace: git push origin main".to_owned();
    assert_eq!(said, [allow.clone(), PolicyVerdict::Deny { rule: "no-push".to_owned(), reason }, allow]);
}

#[test]
fn ask_rule_waits_for_a_person_after_earlier_calls_finish() {
    for (answer, allowed) in [
        ("yes", Ok(())),
        ("no", Err("a person was asked, and said no")),
        ("no, clean with make", Err("a person was asked, and says: clean with make")),
    ] {
        let mut log = permission_log();
        let calls = ["make", "rm -rf build", "ls"].map(|line| ("run_command", json!({ "command": line })));
        log.answer_with("", &calls);
        assert_eq!(batch_verdicts(&log.decide()).len(), 1, "only what precedes it");
        log.run_batch_with(&[(ToolStatus::Ok, "made", ToolFacts::default())]);
        let asked = answer_and_describe(&mut log, answer);
        assert!(asked.contains("rule `deletes`") && asked.contains("rm -rf build"), "{asked}");
        let said = batch_verdicts(&log.decide());
        let wanted = match allowed {
            Ok(()) => PolicyVerdict::Allow { rule: "deletes".to_owned() },
            Err(reason) => PolicyVerdict::Deny { rule: "deletes".to_owned(), reason: reason.to_owned() },
        };
        assert_eq!((said.len(), &said[0]), (2, &wanted), "{answer}");
        // The answer is about the call, not an additional message to the model.
        assert!(!log.state.transcript.has_notes());
    }
}

#[test]
fn answering_always_allows_the_rule_for_the_rest_of_the_run() {
    let mut log = permission_log();
    for (line, asks) in [("rm a", true), ("rm b", false), ("rm c; git push", false)] {
        log.answer_with("", &[("run_command", json!({ "command": line }))]);
        if asks {
            answer_and_describe(&mut log, "always");
        }
        let said = batch_verdicts(&log.decide());
        let denied = matches!(&said[0], PolicyVerdict::Deny { rule, .. } if rule == "no-push");
        assert_eq!(denied, line.contains("push"), "{said:?}");
        let status = if denied { ToolStatus::Refused } else { ToolStatus::Ok };
        log.run_batch_with(&[(status, "done", ToolFacts::default())]);
    }
}

#[test]
fn read_rules_apply_to_files_the_runtime_shows() {
    let rules =
        "[[rules]]\nid = \"keys\"\nverdict = \"deny\"\ntools = [\"read_file\"]\npaths = [\"keys/**\"]\n";
    let mut log = permission_log();
    log.state.policies = vec![policy::parse_policy_text(rules).expect("a policy")];
    for (nth, (path, denied)) in [("keys/a", true), ("src/a", false)].into_iter().enumerate() {
        let call = CallId::for_runtime(u32::try_from(nth).expect("few"));
        let (name, args) = (tools::SHOW_FILE.to_owned(), json!({ "path": path }));
        let facts = vec![EngineFact::Calls { calls: vec![ToolUse { call, name, args, malformed: None }] }];
        log.push(Concluded { facts, decision: DecisionHash::ZERO });
        let said = batch_verdicts(&log.decide());
        assert_eq!(
            matches!(&said[0], PolicyVerdict::Deny { rule, .. } if rule == "keys"),
            denied,
            "{path}: {said:?}"
        );
        log.run_batch_with(&[(ToolStatus::Ok, "shown", ToolFacts::default())]);
    }
}

#[test]
fn without_a_policy_calls_are_allowed_as_before() {
    let mut log = permission_log();
    log.state.policies.clear();
    log.answer_with("", &[("run_command", json!({ "command": "git push" }))]);
    assert_eq!(batch_verdicts(&log.decide()), [PolicyVerdict::Allow { rule: "builtin".to_owned() }]);
}

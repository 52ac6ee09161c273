//! What policy says of calls, and what people say where it asks.

use docket_schema::{
    content::Content,
    ids::DecisionHash,
    message::{CallId, ToolUse},
    run::{BlockedWhy, BlockerAnswered, Concluded, Fact, RunBlocked, RunSettings, ToolStatus, Verdict},
    tool::ToolFacts,
};
use serde_json::json;

use crate::engine::{Act, Decision, react_tests::Log};
use crate::{policy, tools};

const RULES: &str = r#"
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

fn log() -> Log {
    let mut log = Log::of(RunSettings { plan_asks_max: 0, ..RunSettings::default() }, &[], "namespaces");
    log.state.policies = vec![policy::parse(RULES).expect("a policy")];
    log
}

fn verdicts(decision: &Decision) -> Vec<Verdict> {
    match &decision.act {
        Act::RunTools(batch) => batch.iter().map(|tool| tool.policy.clone()).collect(),
        other => panic!("{other:?}"),
    }
}

/// Writes down what policy asks, and what a person answers.
fn answered(log: &mut Log, answer: &str) -> String {
    let Act::Block { question, why, about } = log.decide().act else { panic!("{:?}", log.decide()) };
    assert_eq!(why, BlockedWhy::Policy);
    let Content::Text(asked) = question.clone() else { panic!("{question:?}") };
    let decision = log.decide().hash();
    log.push(RunBlocked { question, why, outages: 0, about, decision });
    log.push(BlockerAnswered { text: answer.into(), by: "ann".to_owned() });
    asked
}

#[test]
fn what_is_denied_is_told_with_its_reason_and_the_rest_of_the_batch_runs() {
    let mut log = log();
    let commands = ["make", "make && git push origin main", "git status"];
    let calls = commands.map(|line| ("run_command", json!({ "command": line })));
    log.say("", &calls);
    let said = verdicts(&log.decide());
    let allow = Verdict::Allow { rule: "default".to_owned() };
    let reason = "results are taken from the workspace: git push origin main".to_owned();
    assert_eq!(said, [allow.clone(), Verdict::Deny { rule: "no-push".to_owned(), reason }, allow]);
}

#[test]
fn what_policy_asks_about_waits_for_a_person_once_what_precedes_it_is_done() {
    for (answer, allowed) in [
        ("yes", Ok(())),
        ("no", Err("a person was asked, and said no")),
        ("no, clean with make", Err("a person was asked, and says: clean with make")),
    ] {
        let mut log = log();
        let calls = ["make", "rm -rf build", "ls"].map(|line| ("run_command", json!({ "command": line })));
        log.say("", &calls);
        assert_eq!(verdicts(&log.decide()).len(), 1, "only what precedes it");
        log.run_batch_with(&[(ToolStatus::Ok, "made", ToolFacts::default())]);
        let asked = answered(&mut log, answer);
        assert!(asked.contains("rule `deletes`") && asked.contains("rm -rf build"), "{asked}");
        let said = verdicts(&log.decide());
        let wanted = match allowed {
            Ok(()) => Verdict::Allow { rule: "deletes".to_owned() },
            Err(reason) => Verdict::Deny { rule: "deletes".to_owned(), reason: reason.to_owned() },
        };
        assert_eq!((said.len(), &said[0]), (2, &wanted), "{answer}");
        // The answer is about the call, and no word to the model beside it.
        assert!(!log.state.transcript.has_notes());
    }
}

#[test]
fn always_allows_what_the_rule_asks_about_for_the_rest_of_the_run() {
    let mut log = log();
    for (line, asks) in [("rm a", true), ("rm b", false), ("rm c; git push", false)] {
        log.say("", &[("run_command", json!({ "command": line }))]);
        if asks {
            answered(&mut log, "always");
        }
        let said = verdicts(&log.decide());
        let denied = matches!(&said[0], Verdict::Deny { rule, .. } if rule == "no-push");
        assert_eq!(denied, line.contains("push"), "{said:?}");
        let status = if denied { ToolStatus::Refused } else { ToolStatus::Ok };
        log.run_batch_with(&[(status, "done", ToolFacts::default())]);
    }
}

#[test]
fn what_the_runtime_shows_of_a_file_is_read_and_rules_for_reading_speak_of_it() {
    let rules =
        "[[rules]]\nid = \"keys\"\nverdict = \"deny\"\ntools = [\"read_file\"]\npaths = [\"keys/**\"]\n";
    let mut log = log();
    log.state.policies = vec![policy::parse(rules).expect("a policy")];
    for (nth, (path, denied)) in [("keys/a", true), ("src/a", false)].into_iter().enumerate() {
        let call = CallId::own(u32::try_from(nth).expect("few"));
        let (name, args) = (tools::SHOW_FILE.to_owned(), json!({ "path": path }));
        let facts = vec![Fact::Calls { calls: vec![ToolUse { call, name, args, malformed: None }] }];
        log.push(Concluded { facts, decision: DecisionHash::ZERO });
        let said = verdicts(&log.decide());
        assert_eq!(
            matches!(&said[0], Verdict::Deny { rule, .. } if rule == "keys"),
            denied,
            "{path}: {said:?}"
        );
        log.run_batch_with(&[(ToolStatus::Ok, "shown", ToolFacts::default())]);
    }
}

#[test]
fn without_a_policy_the_verdict_is_what_it_was() {
    let mut log = log();
    log.state.policies.clear();
    log.say("", &[("run_command", json!({ "command": "git push" }))]);
    assert_eq!(verdicts(&log.decide()), [Verdict::Allow { rule: "builtin".to_owned() }]);
}

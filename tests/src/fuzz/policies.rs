//! Fuzzes policies, and shell lines that are checked against them.

use docket_schema::{
    message::{CallId, ToolUse},
    policy::{Policy, RuleVerdict},
};
use docket_worker::policy::{RuleScope, evaluate_policies, parse_policy};

use super::{lossy_text, split_input};

/// A deeply nested line is expensive and finds little.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// The input is a policy, then a shell line.
pub(super) fn fuzz_policy(input: &[u8]) {
    let pieces = split_input(input);
    let line = pieces.get(1).map_or(String::new(), |line| lossy_text(line));
    let policy =
        lossy_text(&pieces[0]).parse::<toml::Table>().ok().and_then(|table| parse_policy(table).ok());
    if line.len() > LINE_BYTES_MAX {
        return;
    }
    let call = |name: &str, args| ToolUse {
        call: CallId("c".to_owned()),
        name: name.to_owned(),
        args,
        malformed: None,
    };
    let calls = [
        call("run_command", serde_json::json!({ "command": line })),
        call("edit_file", serde_json::json!({ "path": line })),
        call("move_file", serde_json::json!({ "from": line, "to": "x" })),
    ];
    let strict = Policy { default: RuleVerdict::Deny, ..Policy::default() };
    for call in &calls {
        assert_eq!(
            evaluate_policies(&[], call, RuleScope::Descendants).ruling,
            RuleVerdict::Allow,
            "nothing forbids"
        );
        assert_eq!(
            evaluate_policies(std::slice::from_ref(&strict), call, RuleScope::Descendants).ruling,
            RuleVerdict::Deny,
            "nothing allows"
        );
        if let Some(policy) = &policy {
            let alone = evaluate_policies(std::slice::from_ref(policy), call, RuleScope::Descendants).ruling;
            let by_name = evaluate_policies(std::slice::from_ref(policy), call, RuleScope::NamedPaths).ruling;
            assert!(alone >= by_name, "what a folder holds makes no room");
            let both =
                evaluate_policies(&[policy.clone(), strict.clone()], call, RuleScope::Descendants).ruling;
            assert!(both >= alone, "a further policy never makes room");
        }
    }
}

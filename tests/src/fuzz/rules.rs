//! Policies, and the shell lines that are held against them.

use docket_schema::{
    message::{CallId, ToolUse},
    policy::{Policy, Ruling},
};
use docket_worker::policy::{Reach, judge, read};

use super::{pieces, text};

/// A deep line costs more than it shows.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// A policy, then a shell line.
pub(super) fn policy(input: &[u8]) {
    let pieces = pieces(input);
    let line = pieces.get(1).map_or(String::new(), |line| text(line));
    let policy = text(&pieces[0]).parse::<toml::Table>().ok().and_then(|table| read(table).ok());
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
    let strict = Policy { default: Ruling::Deny, ..Policy::default() };
    for call in &calls {
        assert_eq!(judge(&[], call, Reach::Below).ruling, Ruling::Allow, "nothing forbids");
        assert_eq!(
            judge(std::slice::from_ref(&strict), call, Reach::Below).ruling,
            Ruling::Deny,
            "nothing allows"
        );
        if let Some(policy) = &policy {
            let alone = judge(std::slice::from_ref(policy), call, Reach::Below).ruling;
            let by_name = judge(std::slice::from_ref(policy), call, Reach::Name).ruling;
            assert!(alone >= by_name, "what a folder holds makes no room");
            let both = judge(&[policy.clone(), strict.clone()], call, Reach::Below).ruling;
            assert!(both >= alone, "a further policy never makes room");
        }
    }
}

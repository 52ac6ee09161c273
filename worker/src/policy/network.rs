//! Decides whether a call gets network access and which hosts it may reach. Pure.

use docket_schema::{
    message::ToolUse,
    policy::{AllowList, NetworkPolicy, Policy},
};

use super::{call_parts::call_parts_in_scope, command_pattern::matches_words, rule_scope::RuleScope};
use crate::calls::is_external;

/// Commands without network access of their own that often precede others.
const HARMLESS_COMMANDS: [&str; 3] = ["cd", "true", ":"];

/// Tools whose shell line may get network access.
const NETWORK_TOOLS: [&str; 3] = ["run_command", "venv_run", "venv_install"];

/// Returns the hosts that a call may reach; `None` if it gets no network. Network access is limited to shell lines
/// (including those of the wide tool set) and MCP servers, which a pattern selects by tool name. Every policy in
/// force must grant it: a policy without a network section denies it.
#[must_use]
pub fn network_grant(policies: &[Policy], tool: &ToolUse, reach: RuleScope) -> Option<AllowList> {
    let may = NETWORK_TOOLS.contains(&tool.name.as_str()) || is_external(&tool.name);
    if !may || tool.malformed.is_some() {
        return None;
    }
    let networks: Option<Vec<&NetworkPolicy>> =
        policies.iter().map(|policy| policy.network.as_ref()).collect();
    let networks = networks?;
    networks
        .iter()
        .all(|network| is_granted(network, tool, reach))
        .then(|| AllowList::from_policies(networks))
        .flatten()
}

/// Describes the network access for the model; `None` if there is none. The system prompt says that there is no
/// network.
#[must_use]
pub fn describe_network(policies: &[Policy]) -> Option<String> {
    let networks: Vec<&NetworkPolicy> =
        policies.iter().map(|policy| policy.network.as_ref()).collect::<Option<_>>()?;
    let hosts = networks.iter().all(|network| !network.hosts.is_empty());
    let list = AllowList::from_policies(networks.iter().copied()).filter(|_| hosts)?;
    let mut text = format!(
        "Commands reach some hosts after all, through the proxy that their environment names: {}. A call that does is \
         not repeated by itself after a crash.",
        list.listed_hosts()
    );
    for network in networks.iter().filter(|network| !network.commands.is_empty()) {
        let commands: Vec<String> = network.commands.iter().map(|one| format!("`{one}`")).collect();
        text.push_str(&format!(" Only lines made of these commands get it: {}.", commands.join(", ")));
    }
    Some(text)
}

/// Whether every command of the line matches a pattern. The line gets the network as a whole or not at all, because
/// its commands share one sandbox.
fn is_granted(network: &NetworkPolicy, tool: &ToolUse, reach: RuleScope) -> bool {
    if network.hosts.is_empty() {
        return false;
    }
    let any = |pattern: &String| pattern.trim() == "*";
    if network.commands.is_empty() || network.commands.iter().any(any) {
        return true;
    }
    if is_external(&tool.name) {
        let name = std::slice::from_ref(&tool.name);
        return network.commands.iter().any(|pattern| matches_words(pattern, name));
    }
    let units = call_parts_in_scope(tool, reach);
    let commands: Vec<_> = units.iter().filter(|unit| unit.path.is_none()).collect();
    let is_like = |words: &[String]| network.commands.iter().any(|pattern| matches_words(pattern, words));
    !commands.is_empty()
        && commands.iter().all(|unit| match &unit.words {
            // The written words do not say what runs.
            Some(_) if unit.is_opaque => false,
            Some(words) => is_like(words) || HARMLESS_COMMANDS.contains(&words[0].as_str()),
            None => false,
        })
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        message::CallId,
        policy::{ConnectionKind, HostPort},
    };
    use serde_json::json;

    use super::*;
    use crate::policy::parse_policy_text;

    fn call(name: &str, command: &str) -> ToolUse {
        let args = json!({ "command": command });
        ToolUse { call: CallId("t1-0".to_owned()), name: name.to_owned(), args, malformed: None }
    }

    fn grant_for(policies: &[Policy], tool: &ToolUse) -> Option<AllowList> {
        super::network_grant(policies, tool, RuleScope::Descendants)
    }

    fn policy(text: &str) -> Policy {
        parse_policy_text(text).expect("a policy")
    }

    const FETCH_POLICY: &str =
        "[network]\nhosts = [\"crates.io\", \"*.crates.io\"]\ncommands = [\"cargo fetch *\"]";
    const ANY_COMMAND_POLICY: &str = "[network]\nhosts = [\"crates.io\", \"pypi.org\"]";

    #[test]
    fn only_a_fully_allowed_line_gets_the_network() {
        let fetch = [policy(FETCH_POLICY)];
        for (line, gets) in [
            ("cargo fetch", true),
            ("cd sub && cargo fetch --locked", true),
            ("cargo fetch > log 2>&1", true),
            ("cargo fetch; curl x", false),
            ("cargo fetch $(curl x)", false),
            ("cargo build", false),
            ("sudo cargo fetch", false),
            ("/tmp/cargo fetch", false),
            ("PATH=. cargo fetch", false),
            ("bash -c 'cargo fetch'", false),
            ("$x fetch", false),
            ("cargo fetch 'open", false),
            ("A=1", false),
            ("", false),
        ] {
            assert_eq!(grant_for(&fetch, &call("run_command", line)).is_some(), gets, "{line}");
        }
        let in_venv = call("venv_run", "cargo fetch");
        assert_eq!(grant_for(&fetch, &in_venv), None, "which cargo nobody knows");
        assert!(super::network_grant(&fetch, &in_venv, RuleScope::NamedPaths).is_some(), "as in older logs");
        assert!(grant_for(&[policy(ANY_COMMAND_POLICY)], &in_venv).is_some());
        let pip = [policy("[network]\nhosts = [\"pypi.org\"]\ncommands = [\"pip install *\"]")];
        let install = |packages| {
            let args = json!({ "packages": [packages] });
            grant_for(&pip, &ToolUse { args, ..call("venv_install", "") })
        };
        assert!(install("requests").is_some() && install("$(curl x)").is_some(), "words, not commands");
        assert_eq!(install("--index-url=x"), None, "no such call is run");
        assert_eq!(
            grant_for(&fetch, &ToolUse { args: json!({ "packages": ["x"] }), ..call("venv_install", "") }),
            None
        );
        for tool in ["run_tests", "read_file", "create_file", "git_show", "memory_save"] {
            assert_eq!(grant_for(&fetch, &call(tool, "cargo fetch")), None, "{tool}");
        }
        assert!(grant_for(&[policy(ANY_COMMAND_POLICY)], &call("run_command", "$x y 'open")).is_some());
        let malformed = ToolUse { malformed: Some("{".to_owned()), ..call("run_command", "cargo fetch") };
        assert_eq!(grant_for(&fetch, &malformed), None);
    }

    #[test]
    fn every_policy_must_grant_the_network_and_can_narrow_it() {
        let line = call("run_command", "cargo fetch");
        assert_eq!(grant_for(&[], &line), None);
        assert_eq!(grant_for(&[policy(ANY_COMMAND_POLICY), Policy::default()], &line), None);
        assert_eq!(grant_for(&[policy(ANY_COMMAND_POLICY), policy("[network]\nhosts = []")], &line), None);
        let both =
            grant_for(&[policy(FETCH_POLICY), policy(ANY_COMMAND_POLICY)], &line).expect("both give it");
        let allows = |place: &str| {
            both.allows(&HostPort::parse(place, Some(443)).expect("a place"), ConnectionKind::Tunnel)
        };
        assert!(allows("crates.io") && !allows("pypi.org") && !allows("static.crates.io"));
        assert_eq!(
            grant_for(&[policy(FETCH_POLICY), policy(ANY_COMMAND_POLICY)], &call("run_command", "ls")),
            None
        );
        let told = describe_network(&[policy(FETCH_POLICY), policy(ANY_COMMAND_POLICY)])
            .expect("there is a network");
        assert!(
            told.contains("crates.io") && told.contains("made of these commands get it: `cargo fetch *`."),
            "{told}"
        );
        for none in
            [&[][..], &[policy(ANY_COMMAND_POLICY), Policy::default()], &[policy("[network]\nhosts = []")]]
        {
            assert_eq!(super::describe_network(none), None);
        }
    }

    #[test]
    fn network_errors_name_the_field() {
        for (text, words) in [
            ("[network]\nhosts = [\"a b\"]", "network.hosts[0] must be a host"),
            ("[network]\nhosts = [\"https://crates.io\"]", "network.hosts[0] must be a host"),
            ("[network]\ncommands = [\"x\"]", "missing field `hosts`"),
            ("[network]\nhosts = [\"a.org\"]\nport = 3", "unknown field `port`"),
        ] {
            let said = parse_policy_text(text).expect_err(text);
            assert!(said.contains(words), "{words} in {said}");
        }
    }
}

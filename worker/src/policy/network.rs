//! Whether a call gets the network, and what it may reach there. Pure.

use docket_schema::{
    message::ToolUse,
    policy::{AllowList, Network, Policy},
};

use super::{pattern::speaks_of, reach::Reach, unit::units_by};
use crate::calls::is_external;

/// Says nothing to anybody, and stands before much that does.
const HARMLESS: [&str; 3] = ["cd", "true", ":"];

/// Tools whose line may get the network.
const REACH_OUT: [&str; 3] = ["run_command", "venv_run", "venv_install"];

/// What a call may reach; `None` where it gets no network. Only shell lines do, those that tools of the
/// wide set are included, and servers, which a pattern means by the name of their tool; and only where every policy in force
/// says so: the one that says nothing of the network says no.
#[must_use]
pub fn network(policies: &[Policy], tool: &ToolUse, reach: Reach) -> Option<AllowList> {
    let may = REACH_OUT.contains(&tool.name.as_str()) || is_external(&tool.name);
    if !may || tool.malformed.is_some() {
        return None;
    }
    let networks: Option<Vec<&Network>> = policies.iter().map(|policy| policy.network.as_ref()).collect();
    let networks = networks?;
    networks.iter().all(|network| gets(network, tool, reach)).then(|| AllowList::of(networks)).flatten()
}

/// What a model is told that has the network at times; `None` where it never has. Its prompt says that there is none.
#[must_use]
pub fn told(policies: &[Policy]) -> Option<String> {
    let networks: Vec<&Network> =
        policies.iter().map(|policy| policy.network.as_ref()).collect::<Option<_>>()?;
    let hosts = networks.iter().all(|network| !network.hosts.is_empty());
    let list = AllowList::of(networks.iter().copied()).filter(|_| hosts)?;
    let mut text = format!(
        "Commands reach some hosts after all, through the proxy that their environment names: {}. A call that does is \
         not repeated by itself after a crash.",
        list.told()
    );
    for network in networks.iter().filter(|network| !network.commands.is_empty()) {
        let commands: Vec<String> = network.commands.iter().map(|one| format!("`{one}`")).collect();
        text.push_str(&format!(" Only lines made of these commands get it: {}.", commands.join(", ")));
    }
    Some(text)
}

/// Whether every command of the line is like a pattern. The whole line gets the network or none of it, for its
/// commands share what they are run in.
fn gets(network: &Network, tool: &ToolUse, reach: Reach) -> bool {
    if network.hosts.is_empty() {
        return false;
    }
    let any = |pattern: &String| pattern.trim() == "*";
    if network.commands.is_empty() || network.commands.iter().any(any) {
        return true;
    }
    if is_external(&tool.name) {
        let name = std::slice::from_ref(&tool.name);
        return network.commands.iter().any(|pattern| speaks_of(pattern, name));
    }
    let units = units_by(tool, reach);
    let commands: Vec<_> = units.iter().filter(|unit| unit.path.is_none()).collect();
    let is_like = |words: &[String]| network.commands.iter().any(|pattern| speaks_of(pattern, words));
    !commands.is_empty()
        && commands.iter().all(|unit| match &unit.words {
            // What stands there is not what is run.
            Some(_) if unit.is_dark => false,
            Some(words) => is_like(words) || HARMLESS.contains(&words[0].as_str()),
            None => false,
        })
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        message::CallId,
        policy::{Place, Way},
    };
    use serde_json::json;

    use super::*;
    use crate::policy::parse;

    fn call(name: &str, command: &str) -> ToolUse {
        let args = json!({ "command": command });
        ToolUse { call: CallId("t1-0".to_owned()), name: name.to_owned(), args, malformed: None }
    }

    fn network(policies: &[Policy], tool: &ToolUse) -> Option<AllowList> {
        super::network(policies, tool, Reach::Below)
    }

    fn policy(text: &str) -> Policy {
        parse(text).expect("a policy")
    }

    const FETCH: &str = "[network]\nhosts = [\"crates.io\", \"*.crates.io\"]\ncommands = [\"cargo fetch *\"]";
    const ALL: &str = "[network]\nhosts = [\"crates.io\", \"pypi.org\"]";

    #[test]
    fn a_line_gets_the_network_only_if_all_of_it_may() {
        let fetch = [policy(FETCH)];
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
            assert_eq!(network(&fetch, &call("run_command", line)).is_some(), gets, "{line}");
        }
        let in_venv = call("venv_run", "cargo fetch");
        assert_eq!(network(&fetch, &in_venv), None, "which cargo nobody knows");
        assert!(super::network(&fetch, &in_venv, Reach::Name).is_some(), "as in older logs");
        assert!(network(&[policy(ALL)], &in_venv).is_some());
        let pip = [policy("[network]\nhosts = [\"pypi.org\"]\ncommands = [\"pip install *\"]")];
        let install = |packages| {
            let args = json!({ "packages": [packages] });
            network(&pip, &ToolUse { args, ..call("venv_install", "") })
        };
        assert!(install("requests").is_some() && install("$(curl x)").is_some(), "words, not commands");
        assert_eq!(install("--index-url=x"), None, "no such call is run");
        assert_eq!(
            network(&fetch, &ToolUse { args: json!({ "packages": ["x"] }), ..call("venv_install", "") }),
            None
        );
        for tool in ["run_tests", "read_file", "create_file", "git_show", "memory_save"] {
            assert_eq!(network(&fetch, &call(tool, "cargo fetch")), None, "{tool}");
        }
        assert!(network(&[policy(ALL)], &call("run_command", "$x y 'open")).is_some());
        let malformed = ToolUse { malformed: Some("{".to_owned()), ..call("run_command", "cargo fetch") };
        assert_eq!(network(&fetch, &malformed), None);
    }

    #[test]
    fn of_several_policies_each_must_give_it_and_each_narrows_it() {
        let line = call("run_command", "cargo fetch");
        assert_eq!(network(&[], &line), None);
        assert_eq!(network(&[policy(ALL), Policy::default()], &line), None);
        assert_eq!(network(&[policy(ALL), policy("[network]\nhosts = []")], &line), None);
        let both = network(&[policy(FETCH), policy(ALL)], &line).expect("both give it");
        let allows =
            |place: &str| both.allows(&Place::parse(place, Some(443)).expect("a place"), Way::Tunnel);
        assert!(allows("crates.io") && !allows("pypi.org") && !allows("static.crates.io"));
        assert_eq!(network(&[policy(FETCH), policy(ALL)], &call("run_command", "ls")), None);
        let told = told(&[policy(FETCH), policy(ALL)]).expect("there is a network");
        assert!(
            told.contains("crates.io") && told.contains("made of these commands get it: `cargo fetch *`."),
            "{told}"
        );
        for none in [&[][..], &[policy(ALL), Policy::default()], &[policy("[network]\nhosts = []")]] {
            assert_eq!(super::told(none), None);
        }
    }

    #[test]
    fn what_is_wrong_is_told_by_its_field() {
        for (text, words) in [
            ("[network]\nhosts = [\"a b\"]", "network.hosts[0] must be a host"),
            ("[network]\nhosts = [\"https://crates.io\"]", "network.hosts[0] must be a host"),
            ("[network]\ncommands = [\"x\"]", "missing field `hosts`"),
            ("[network]\nhosts = [\"a.org\"]\nport = 3", "unknown field `port`"),
        ] {
            let said = parse(text).expect_err(text);
            assert!(said.contains(words), "{words} in {said}");
        }
    }
}

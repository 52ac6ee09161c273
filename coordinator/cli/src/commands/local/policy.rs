//! `docket policy`: tests a policy against its examples; shows or replaces the policy of a run.

use crate::tasks::policy_file;
use std::{collections::BTreeMap, path::PathBuf};

use docket_schema::{
    message::{CallId, ToolUse},
    policy::{Policy, RuleVerdict},
    run::{PolicyVerdict, RunEvent, RunState},
};
use docket_worker::{client::HistoryScope, policy};
use serde::Serialize;

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliResult, ExitKind, FailWith as _},
    },
};

/// Command-line arguments of `docket policy`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket policy check careful.toml -- git push origin main
  docket policy show 3f9c01ab
  docket policy set 3f9c01ab careful.toml")]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
}

#[derive(Debug, clap::Subcommand)]
enum PolicyCommand {
    /// Read a policy and test its rules against their examples
    Check(PolicyCheckArgs),
    /// Show the policies in effect for a run, and how often each rule matched
    Show(PolicyShowArgs),
    /// Replace the task's policy for a run that has not ended
    Set(PolicySetArgs),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "The file has the contents of [policy] in docket.toml: `default`, [[rules]] and [network].

Examples:
  docket policy check careful.toml
  docket policy check careful.toml -- git push origin main
  docket policy check careful.toml -- 'cd sub && cargo fetch'"
)]
struct PolicyCheckArgs {
    /// Policy file (TOML)
    file: PathBuf,
    /// Shell command to evaluate against the policy
    #[arg(last = true, value_name = "LINE")]
    line: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket policy show 3f9c01ab
  docket policy show 3f9c01ab --json | jq .verdicts")]
struct PolicyShowArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Takes effect from the run's next turn, in addition to the worker's own policy, which does not
change: the stricter verdict of the two wins. It becomes the task's policy, so retries, resumed
runs and forks use it too.

Examples:
  docket policy set 3f9c01ab careful.toml"
)]
struct PolicySetArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// Policy file (TOML)
    file: PathBuf,
}

pub(crate) async fn run_policy(cx: CliContext, args: PolicyArgs) -> CliResult {
    match args.command {
        PolicyCommand::Check(args) => check_policy(&cx, &args),
        PolicyCommand::Show(args) => show_policy(&cx, &args).await,
        PolicyCommand::Set(args) => set_policy(&cx, &args).await,
    }
}

/// Returns the fraction of tool calls that were refused.
pub(crate) fn denial_rate(denials: u32, calls: u32) -> f64 {
    if calls == 0 { 0.0 } else { f64::from(denials) / f64::from(calls) }
}

const fn ruling_word(ruling: RuleVerdict) -> &'static str {
    match ruling {
        RuleVerdict::Allow => "allow",
        RuleVerdict::Ask => "ask",
        RuleVerdict::Deny => "deny",
    }
}

/// The policy's verdict on a command.
#[derive(Debug, Serialize)]
struct LineVerdict {
    line: String,
    verdict: RuleVerdict,
    rule: String,
    about: String,
    reason: String,
    /// Whether the command gets the network access that the policy lists.
    network: bool,
}

fn judge_line(policy: Policy, line: String) -> LineVerdict {
    let args = serde_json::json!({ "command": line });
    let tool =
        ToolUse { call: CallId("check".to_owned()), name: "run_command".to_owned(), args, malformed: None };
    let policies = [policy];
    let found = policy::evaluate_policies(&policies, &tool, policy::RuleScope::Descendants);
    let network = policy::network_grant(&policies, &tool, policy::RuleScope::Descendants).is_some();
    LineVerdict {
        line,
        verdict: found.ruling,
        rule: found.rule_id,
        about: found.subject,
        reason: found.reason,
        network,
    }
}

fn check_policy(cx: &CliContext, args: &PolicyCheckArgs) -> CliResult {
    let policy = policy_file::read_policy_file(&args.file)?;
    let examples: usize = policy.rules.iter().map(|rule| rule.matches.len() + rule.misses.len()).sum();
    let (rules, hosts) =
        (policy.rules.len(), policy.network.as_ref().map_or(0, |network| network.hosts.len()));
    let said = (!args.line.is_empty()).then(|| judge_line(policy, args.line.join(" ")));
    if cx.is_json() {
        let json = serde_json::json!({ "rules": rules, "examples": examples, "hosts": hosts, "said": said });
        display::print_json(&json);
        return Ok(ExitKind::Ok);
    }
    match said {
        None => display::print_line(&format!(
            "{}: {rules} rules, {examples} examples, all pass; {hosts} network hosts",
            args.file.display()
        )),
        Some(said) => {
            let reason = if said.reason.is_empty() { String::new() } else { format!(" ({})", said.reason) };
            let about = if said.about.is_empty() { &said.line } else { &said.about };
            let network = if said.network { "; with network access" } else { "" };
            let said = format!("{} by `{}`{reason}: {about}{network}", ruling_word(said.verdict), said.rule);
            display::print_line(&display::sanitize_line(&said));
        }
    }
    Ok(ExitKind::Ok)
}

/// How often a rule matched.
#[derive(Debug, Serialize)]
struct VerdictCount {
    verdict: &'static str,
    rule: String,
    calls: u32,
}

/// The policies in effect for a run.
#[derive(Debug, Serialize)]
struct PolicyInForce {
    run: docket_schema::ids::RunId,
    /// The worker's policy first, then the task's.
    policies: Vec<Policy>,
    verdicts: Vec<VerdictCount>,
    denials: u32,
    policy_denial_rate: f64,
}

async fn show_policy(cx: &CliContext, args: &PolicyShowArgs) -> CliResult {
    let access = Coordinator::connect(cx, AccessMode::Read).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    let mut state = RunState::default();
    let mut counts: BTreeMap<(&'static str, String), u32> = BTreeMap::new();
    for event in access.client.all_events(run, HistoryScope::WithAncestors).await? {
        let typed = state.apply_envelope(&event);
        typed.fail_with(ExitKind::Verification, || format!("cannot read the log of run {}", run.short()))?;
        let decoded = <RunEvent as docket_schema::event::TypedEvent>::decode(
            &event.kind,
            event.version,
            event.payload.as_str(),
        );
        let asked = match decoded {
            Ok(RunEvent::ToolRequested(asked)) => match asked.policy {
                PolicyVerdict::Allow { rule } => ("allow", rule),
                PolicyVerdict::Deny { rule, .. } => ("deny", rule),
                PolicyVerdict::Ask { rule, .. } => ("ask", rule),
            },
            Ok(RunEvent::RunBlocked(blocked)) => match blocked.about {
                Some(about) => ("ask", about.rule),
                None => continue,
            },
            Ok(_) | Err(_) => continue,
        };
        *counts.entry(asked).or_default() += 1;
    }
    access.close().await?;
    let verdicts: Vec<VerdictCount> =
        counts.into_iter().map(|((verdict, rule), calls)| VerdictCount { verdict, rule, calls }).collect();
    let totals = state.totals;
    let rate = denial_rate(totals.denials, totals.tool_calls);
    let (policies, denials) = (state.policies, totals.denials);
    let shown = PolicyInForce { run, policies, verdicts, denials, policy_denial_rate: rate };
    if cx.is_json() {
        display::print_json(&shown);
    } else {
        print_policy(cx, &shown)?;
    }
    Ok(ExitKind::Ok)
}

fn print_policy(cx: &CliContext, shown: &PolicyInForce) -> CliResult<()> {
    if shown.policies.is_empty() {
        display::print_line("no policy in effect: every call is allowed");
    }
    for (nth, policy) in shown.policies.iter().enumerate() {
        display::print_line(if nth == 0 { "# worker policy" } else { "# task policy" });
        let text = toml::to_string(policy).fail_as(ExitKind::Failed)?;
        display::print_line(&display::sanitize_text(text.trim_end()));
    }
    if !shown.verdicts.is_empty() {
        let mut table = TextTable::new(&["VERDICT", "RULE", "CALLS"]);
        for count in &shown.verdicts {
            table.add_row(vec![
                TableCell::new(count.verdict),
                TableCell::new(&count.rule),
                TableCell::new(count.calls.to_string()),
            ]);
        }
        display::print_line(table.render(cx.screen).trim_end());
    }
    let percent = shown.policy_denial_rate * 100.0;
    display::print_line(&format!("{} calls refused ({percent:.1} %)", shown.denials));
    Ok(())
}

async fn set_policy(cx: &CliContext, args: &PolicySetArgs) -> CliResult {
    let policy = policy_file::read_policy_file(&args.file)?;
    let access = Coordinator::connect(cx, AccessMode::Write).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    access.client.set_policy(run, policy).await?;
    access.close().await?;
    if cx.is_json() {
        display::print_json(&serde_json::json!({ "run": run, "changed": true }));
    } else {
        display::print_line(&format!(
            "policy replaced; it takes effect in run {} from its next turn",
            run.short()
        ));
    }
    Ok(ExitKind::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policy_file_errors_name_the_file_and_field() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("p.toml");
        for (text, words) in [
            ("default = \"deny\"\nx = [", "p.toml: line 2 is not valid TOML"),
            ("rules = 3", "invalid type"),
            (
                "[[rules]]\nid = \"a\"\nverdict = \"deny\"\ncommands = [\"x\"]\nmatches = [\"y\"]",
                "p.toml: rules[0].matches[0] must be matched by `a`",
            ),
            ("[network]\nhosts = [\"*\"]", "p.toml: network.hosts[0] must be a host"),
        ] {
            std::fs::write(&file, text).expect("written");
            let failure = policy_file::read_policy_file(&file).expect_err(text);
            assert_eq!(failure.exit, ExitKind::Usage);
            let told = format!("{:#}", failure.error);
            assert!(told.contains(words), "{words} in {told}");
        }
        let none = policy_file::read_policy_file(&folder.path().join("none")).expect_err("no such file");
        assert!(format!("{:#}", none.error).starts_with("no file "), "{:#}", none.error);
        let text = "[[rules]]\nid = \"no-push\"\nverdict = \"deny\"\ncommands = [\"git push *\"]\n\
                    [network]\nhosts = [\"crates.io\"]\ncommands = [\"cargo fetch *\"]";
        std::fs::write(&file, text).expect("written");
        let policy = policy_file::read_policy_file(&file).expect("a policy");
        let pushed = judge_line(policy.clone(), "cd a && git push".to_owned());
        assert_eq!(
            (pushed.verdict, pushed.rule.as_str(), pushed.network),
            (RuleVerdict::Deny, "no-push", false)
        );
        let fetched = judge_line(policy, "cargo fetch".to_owned());
        assert_eq!(
            (fetched.verdict, fetched.rule.as_str(), fetched.network),
            (RuleVerdict::Allow, "default", true)
        );
    }

    #[test]
    fn denial_rate_is_a_share_of_all_calls() {
        assert_eq!((denial_rate(0, 0), denial_rate(1, 4)), (0.0, 0.25));
    }
}

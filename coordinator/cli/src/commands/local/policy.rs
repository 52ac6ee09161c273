//! `docket policy`: whether a policy holds what its examples say, what is in force in a run, and changing that.

use crate::tasks::policy_file;
use std::{collections::BTreeMap, path::PathBuf};

use docket_schema::{
    message::{CallId, ToolUse},
    policy::{Policy, Ruling},
    run::{RunEvent, RunState, Verdict},
};
use docket_worker::{client::Lineage, policy};
use serde::Serialize;

use crate::{
    connect::{
        access::{Access, Need},
        resolve,
    },
    context::Context,
    output::{
        display::{self, Cell, Table},
        fail::{Exit, FailWith as _, Outcome},
    },
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket policy check careful.toml -- git push origin main
  docket policy show 3f9c01ab
  docket policy set 3f9c01ab careful.toml")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Read a policy and try its rules on their own examples
    Check(CheckArgs),
    /// What is in force in a run, and how often each rule spoke
    Show(ShowArgs),
    /// Put a policy in the place of the task's, in a run that has not ended
    Set(SetArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "A file holds what [policy] of docket.toml holds: `default`, [[rules]] and [network].

Examples:
  docket policy check careful.toml
  docket policy check careful.toml -- git push origin main
  docket policy check careful.toml -- 'cd sub && cargo fetch'")]
struct CheckArgs {
    /// The file, TOML
    file: PathBuf,
    /// A shell line: what the policy says of it
    #[arg(last = true, value_name = "LINE")]
    line: Vec<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket policy show 3f9c01ab
  docket policy show 3f9c01ab --json | jq .verdicts")]
struct ShowArgs {
    /// A run, or a task whose last run is meant
    id: String,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "It holds from the run's next turn on, beside its worker's own policy, which nothing here changes: of
both the strictest verdict wins. It is the task's from then on: another try, a run that is resumed and forks have it too.

Examples:
  docket policy set 3f9c01ab careful.toml"
)]
struct SetArgs {
    /// A run, or a task whose last run is meant
    id: String,
    /// The file, TOML
    file: PathBuf,
}

/// Carries it out.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    match args.what {
        What::Check(args) => check(&cx, &args),
        What::Show(args) => show(&cx, &args).await,
        What::Set(args) => set(&cx, &args).await,
    }
}

/// Of all calls of tools, how many were refused.
pub(crate) fn rate(denials: u32, calls: u32) -> f64 {
    if calls == 0 { 0.0 } else { f64::from(denials) / f64::from(calls) }
}

const fn word(ruling: Ruling) -> &'static str {
    match ruling {
        Ruling::Allow => "allow",
        Ruling::Ask => "ask",
        Ruling::Deny => "deny",
    }
}

/// What a policy says of a line.
#[derive(Debug, Serialize)]
struct Said {
    line: String,
    verdict: Ruling,
    rule: String,
    about: String,
    reason: String,
    /// It gets what the policy lists of the network.
    network: bool,
}

fn said(policy: Policy, line: String) -> Said {
    let args = serde_json::json!({ "command": line });
    let tool =
        ToolUse { call: CallId("check".to_owned()), name: "run_command".to_owned(), args, malformed: None };
    let policies = [policy];
    let found = policy::judge(&policies, &tool, policy::Reach::Below);
    let network = policy::network(&policies, &tool, policy::Reach::Below).is_some();
    Said { line, verdict: found.ruling, rule: found.rule, about: found.about, reason: found.reason, network }
}

fn check(cx: &Context, args: &CheckArgs) -> Outcome {
    let policy = policy_file::read(&args.file)?;
    let examples: usize = policy.rules.iter().map(|rule| rule.matches.len() + rule.misses.len()).sum();
    let (rules, hosts) =
        (policy.rules.len(), policy.network.as_ref().map_or(0, |network| network.hosts.len()));
    let said = (!args.line.is_empty()).then(|| said(policy, args.line.join(" ")));
    if cx.json() {
        let json = serde_json::json!({ "rules": rules, "examples": examples, "hosts": hosts, "said": said });
        display::say_json(&json);
        return Ok(Exit::Ok);
    }
    match said {
        None => display::say(&format!(
            "{}: {rules} rules, {examples} examples, all as they say; {hosts} hosts of the network",
            args.file.display()
        )),
        Some(said) => {
            let reason = if said.reason.is_empty() { String::new() } else { format!(" ({})", said.reason) };
            let about = if said.about.is_empty() { &said.line } else { &said.about };
            let network = if said.network { "; it gets the network" } else { "" };
            let said = format!("{} by `{}`{reason}: {about}{network}", word(said.verdict), said.rule);
            display::say(&display::line(&said));
        }
    }
    Ok(Exit::Ok)
}

/// How often a rule spoke.
#[derive(Debug, Serialize)]
struct Count {
    verdict: &'static str,
    rule: String,
    calls: u32,
}

/// What is in force in a run.
#[derive(Debug, Serialize)]
struct InForce {
    run: docket_schema::ids::RunId,
    /// The worker's first, then the task's.
    policies: Vec<Policy>,
    verdicts: Vec<Count>,
    denials: u32,
    policy_denial_rate: f64,
}

async fn show(cx: &Context, args: &ShowArgs) -> Outcome {
    let access = Access::open(cx, Need::Read).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    let mut state = RunState::default();
    let mut counts: BTreeMap<(&'static str, String), u32> = BTreeMap::new();
    for event in access.client.all_events(run, Lineage::Whole).await? {
        let typed = state.apply_envelope(&event);
        typed.fail_with(Exit::Verification, || format!("the log of run {} cannot be folded", run.short()))?;
        let decoded = <RunEvent as docket_schema::event::TypedEvent>::decode(
            &event.kind,
            event.version,
            event.payload.as_str(),
        );
        let asked = match decoded {
            Ok(RunEvent::ToolRequested(asked)) => match asked.policy {
                Verdict::Allow { rule } => ("allow", rule),
                Verdict::Deny { rule, .. } => ("deny", rule),
                Verdict::Ask { rule, .. } => ("ask", rule),
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
    let verdicts: Vec<Count> =
        counts.into_iter().map(|((verdict, rule), calls)| Count { verdict, rule, calls }).collect();
    let totals = state.totals;
    let rate = rate(totals.denials, totals.tool_calls);
    let (policies, denials) = (state.policies, totals.denials);
    let shown = InForce { run, policies, verdicts, denials, policy_denial_rate: rate };
    if cx.json() {
        display::say_json(&shown);
    } else {
        say(cx, &shown)?;
    }
    Ok(Exit::Ok)
}

fn say(cx: &Context, shown: &InForce) -> Outcome<()> {
    if shown.policies.is_empty() {
        display::say("no policy is in force: every call is run");
    }
    for (nth, policy) in shown.policies.iter().enumerate() {
        display::say(if nth == 0 { "# of its worker" } else { "# of its task" });
        let text = toml::to_string(policy).fail_as(Exit::Failed)?;
        display::say(&display::block(text.trim_end()));
    }
    if !shown.verdicts.is_empty() {
        let mut table = Table::new(&["VERDICT", "RULE", "CALLS"]);
        for count in &shown.verdicts {
            table.row(vec![
                Cell::new(count.verdict),
                Cell::new(&count.rule),
                Cell::new(count.calls.to_string()),
            ]);
        }
        display::say(table.render(cx.screen).trim_end());
    }
    let percent = shown.policy_denial_rate * 100.0;
    display::say(&format!("{} calls refused ({percent:.1} of a hundred)", shown.denials));
    Ok(())
}

async fn set(cx: &Context, args: &SetArgs) -> Outcome {
    let policy = policy_file::read(&args.file)?;
    let access = Access::open(cx, Need::Write).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    access.client.set_policy(run, policy).await?;
    access.close().await?;
    if cx.json() {
        display::say_json(&serde_json::json!({ "run": run, "changed": true }));
    } else {
        display::say(&format!("changed; it holds in run {} from its next turn on", run.short()));
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_and_its_faults_are_told_by_name_and_field() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("p.toml");
        for (text, words) in [
            ("default = \"deny\"\nx = [", "p.toml: line 2 is not TOML"),
            ("rules = 3", "invalid type"),
            (
                "[[rules]]\nid = \"a\"\nverdict = \"deny\"\ncommands = [\"x\"]\nmatches = [\"y\"]",
                "p.toml: rules[0].matches[0] must be something of which `a` does speak",
            ),
            ("[network]\nhosts = [\"*\"]", "p.toml: network.hosts[0] must be a host"),
        ] {
            std::fs::write(&file, text).expect("written");
            let failure = policy_file::read(&file).expect_err(text);
            assert_eq!(failure.exit, Exit::Usage);
            let told = format!("{:#}", failure.error);
            assert!(told.contains(words), "{words} in {told}");
        }
        let none = policy_file::read(&folder.path().join("none")).expect_err("no such file");
        assert!(format!("{:#}", none.error).starts_with("there is no file "), "{:#}", none.error);
        let text = "[[rules]]\nid = \"no-push\"\nverdict = \"deny\"\ncommands = [\"git push *\"]\n\
                    [network]\nhosts = [\"crates.io\"]\ncommands = [\"cargo fetch *\"]";
        std::fs::write(&file, text).expect("written");
        let policy = policy_file::read(&file).expect("a policy");
        let pushed = said(policy.clone(), "cd a && git push".to_owned());
        assert_eq!((pushed.verdict, pushed.rule.as_str(), pushed.network), (Ruling::Deny, "no-push", false));
        let fetched = said(policy, "cargo fetch".to_owned());
        assert_eq!(
            (fetched.verdict, fetched.rule.as_str(), fetched.network),
            (Ruling::Allow, "default", true)
        );
    }

    #[test]
    fn a_rate_is_of_all_calls() {
        assert_eq!((rate(0, 0), rate(1, 4)), (0.0, 0.25));
    }
}

//! `--json` everywhere a script may read: every command that there is, by the list that the binary itself gives of them,
//! answers with JSON on standard output, or refuses with JSON on standard error. What is excused says why; what another
//! suite asks for its JSON names that suite, which is looked at.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{FinishedProcess, TestProgram, acquire_scenario_slot, run_program};
use serde_json::Value;

use super::home::{FilledHome, parse_row};

/// What a command is to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedJson {
    /// Lines of JSON, one at least.
    Said,
    /// As many lines of JSON as there are such things, which may be none.
    Listed,
    /// No: JSON with this exit code.
    Refused(i32),
}
use ExpectedJson::{Listed, Refused, Said};

/// Commands without JSON, and why.
const EXCUSED: [(&str, &str); 9] = [
    ("docket", "only its commands do anything"),
    ("docket-db", "only its commands do anything"),
    ("docket-policy", "only its commands do anything"),
    ("docket-tool", "only its commands do anything"),
    ("docket-token", "only its commands do anything"),
    ("docket-tool-edit_file", "speaks JSON Lines both ways, whether asked or not"),
    ("docket-mcp", "speaks JSON-RPC, whether asked or not"),
    ("docket-step", "is keys and a screen; `replay --json` gives the same to programs"),
    ("docket-completions", "is a script for a shell; refuses --json"),
];

/// Commands that are long or own a machine, and the file of a test that reads their JSON.
const ELSEWHERE: [(&str, &str, &str); 7] = [
    ("docket-bench", "bench.rs", include_str!("../bench.rs")),
    ("docket-demo", "demo.rs", include_str!("../demo.rs")),
    ("docket-shell", "resume.rs", include_str!("../resume.rs")),
    ("docket-up", "up.rs", include_str!("../up.rs")),
    ("docket-serve", "coordinator.rs", include_str!("../../../src/system/coordinator.rs")),
    ("docket-worker", "worker.rs", include_str!("../../../src/system/worker.rs")),
    ("docket-eval", "eval.rs", include_str!("../eval.rs")),
];

/// What is wrong with an answer, if anything.
fn json_fault(want: ExpectedJson, done: &FinishedProcess) -> Option<String> {
    let not_json = |text: &str| {
        text.lines()
            .find(|line| serde_json::from_str::<Value>(line).is_err())
            .map(|line| format!("no JSON: {line}"))
    };
    match want {
        Said | Listed if !done.success() => Some("it fails".to_owned()),
        Said if done.stdout.trim().is_empty() => Some("it says nothing".to_owned()),
        Said | Listed => not_json(&done.stdout),
        Refused(code) if done.code() != Some(code) => Some(format!("exit code {:?}", done.code())),
        Refused(code) => {
            let last = done.stderr.lines().last().unwrap_or_default();
            match serde_json::from_str::<Value>(last) {
                Ok(said) if said["exit"] == code && said["error"].is_string() => not_json(&done.stdout),
                Ok(_) | Err(_) => Some("its last line is no JSON with its exit code".to_owned()),
            }
        }
    }
}

/// Whether a test's text has a list of arguments that begins with the command, and `--json` in that same list.
fn asks_for_json(text: &str, command: &str) -> bool {
    text.split(&format!("[\"{command}\"")).skip(1).any(|rest| {
        let list = rest.split(']').next().unwrap_or_default();
        list.contains("\"--json\"")
    })
}

#[test]
fn json_flag_detection_needs_the_commands_own_arguments() {
    for (text, asks) in [
        (r#"run(&["up", "-v", "--json"])"#, true),
        (r#"["up".as_ref(), "--json".as_ref()]"#, true),
        (r#"run(&["up", "-v"]); run(&["ps", "--json"])"#, false),
        (r#"["ps", "up", "--json"]"#, false),
    ] {
        assert_eq!(asks_for_json(text, "up"), asks, "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_scriptable_command_supports_json() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = FilledHome::new().await?;
    let (task, second) = (stage.tasks[0].as_str(), stage.tasks[1].as_str());
    let run_id = stage.runs[0].as_str();
    let (held, spare) = (stage.submit_waiting_task().await?, stage.submit_waiting_task().await?);
    let (held, spare) = (held.as_str(), spare.as_str());
    let (repo, script) = (stage.repo_path()?, stage.write_script()?);
    let (repo, script) = (repo.as_str(), script.as_str());
    let in_folder = |name: &str| stage.folder.path().join(name).display().to_string();
    let (man, out, copy, elsewhere) =
        (in_folder("man"), in_folder("run.docket"), in_folder("copy.db"), in_folder("elsewhere"));
    let (man, out, copy, elsewhere) = (man.as_str(), out.as_str(), copy.as_str(), elsewhere.as_str());
    let (tree, policy, report) = (in_folder("tree"), in_folder("policy.toml"), in_folder("report.json"));
    let (tree, policy, report) = (tree.as_str(), policy.as_str(), report.as_str());
    std::fs::write(policy, "[[rules]]\nid = \"no-push\"\nverdict = \"deny\"\ncommands = [\"git push *\"]\n")?;
    let one = stage.write_backlog("one", &["One more"])?;
    let folder = stage.folder.path().join("sandboxed");
    std::fs::create_dir(&folder)?;
    let sandboxed = folder.to_str().context("UTF-8")?;
    let model = ["--model", "scripted:s", "--script", script];

    let commands: Vec<(&str, Vec<&str>, ExpectedJson)> = vec![
        ("docket-man", vec!["man", man], Said),
        ("docket-doctor", vec!["doctor"], Said),
        ("docket-dashboard", vec!["dashboard", "--print"], Said),
        ("docket-top", vec!["top"], Said),
        ("docket-ps", vec!["ps"], Said),
        ("docket-why", vec!["why", held], Said),
        ("docket-show", vec!["show", task], Said),
        ("docket-follow", vec!["follow", run_id], Said),
        ("docket-logs", vec!["logs", run_id], Said),
        ("docket-diff", vec!["diff", run_id], Said),
        ("docket-cat", vec!["cat", run_id, "README.md"], Said),
        ("docket-blame", vec!["blame", run_id, "src/a_rather_long_name_of_a_file.txt"], Said),
        ("docket-checkout", vec!["checkout", run_id, tree], Said),
        ("docket-replay", vec!["replay", run_id], Said),
        ("docket-verify", vec!["verify"], Said),
        ("docket-export", vec!["export", run_id, "-o", out], Said),
        ("docket-import", vec!["import", out], Said),
        ("docket-cost", vec!["cost", "--batch", "todo"], Said),
        ("docket-metrics", vec!["metrics", "--scripted"], Said),
        ("docket-compare", vec!["compare", "--of", task], Said),
        ("docket-batch", vec!["batch", "todo"], Said),
        ("docket-batch-budget", vec!["batch", "budget", "todo", "--usd", "5"], Said),
        ("docket-archive", vec!["archive", "--older-than", "90d", "--dry-run"], Said),
        ("docket-archive-list", vec!["archive", "list"], Said),
        ("docket-archive-restore", vec!["archive", "restore", "--batch", "old"], Said),
        ("docket-gc", vec!["gc"], Said),
        ("docket-db-backup", vec!["db", "backup", copy], Said),
        ("docket-db-migrate", vec!["--home", elsewhere, "db", "migrate"], Said),
        ("docket-db-rebuild", vec!["--home", elsewhere, "db", "rebuild"], Said),
        ("docket-db-restore", vec!["--home", elsewhere, "db", "restore", copy], Said),
        ("docket-eval-compare", vec!["eval", "compare", report, report], Refused(2)),
        ("docket-sandbox", vec!["sandbox", "--workspace", sandboxed, "--", "true"], Said),
        ("docket-policy-check", vec!["policy", "check", policy, "--", "git", "push", "origin"], Said),
        ("docket-policy-show", vec!["policy", "show", run_id], Said),
        ("docket-policy-set", vec!["policy", "set", run_id, policy], Refused(4)),
        (
            "docket-submit",
            [&["submit", "x", "--at", "2199-01-01T00:00:00Z", "--repo", repo][..], &model].concat(),
            Said,
        ),
        ("docket-run", [&["run", "x", "--repo", repo][..], &model].concat(), Said),
        ("docket-fork", vec!["fork", run_id, "--turn", "1"], Said),
        ("docket-accept", vec!["accept", task], Said),
        ("docket-reject", vec!["reject", second, "--comment", "not yet"], Said),
        ("docket-apply", vec!["apply", task, "--branch", "docket/x"], Said),
        ("docket-push", vec!["push", task, "--remote", "none", "--branch", "docket/y"], Refused(4)),
        ("docket-tell", vec!["tell", task, "look"], Refused(4)),
        ("docket-answer", vec!["answer", task, "blue"], Refused(4)),
        ("docket-resume", vec!["resume", run_id], Said),
        ("docket-pause", vec!["pause", held], Said),
        ("docket-unpause", vec!["unpause", held], Said),
        ("docket-reprioritize", vec!["reprioritize", "--priority", "5", held], Said),
        ("docket-cancel", vec!["cancel", spare], Said),
        ("docket-retry", vec!["retry", spare], Said),
        ("docket-queue", vec!["queue"], Said),
        ("docket-queue-list", vec!["queue", "list"], Said),
        ("docket-queue-set", vec!["queue", "set", "q", "--max", "3"], Said),
        ("docket-queue-pause", vec!["queue", "pause", "q"], Said),
        ("docket-queue-unpause", vec!["queue", "unpause", "q"], Said),
        ("docket-queue-drain", vec!["queue", "drain", "q", "--timeout", "30s"], Said),
        ("docket-inbox", vec!["inbox"], Listed),
        ("docket-inbox-list", vec!["inbox", "list"], Listed),
        ("docket-inbox-retry", vec!["inbox", "retry", "--all"], Refused(3)),
        ("docket-inbox-drop", vec!["inbox", "drop", "5"], Refused(3)),
        ("docket-notify-test", vec!["notify", "test"], Said),
        ("docket-notify", vec!["notify"], Said),
        ("docket-notify-list", vec!["notify", "list"], Said),
        ("docket-notify-retry", vec!["notify", "retry", "--all"], Listed),
        ("docket-notify-drop", vec!["notify", "drop", "--all"], Listed),
        ("docket-limit", vec!["limit"], Said),
        ("docket-limit-list", vec!["limit", "list"], Said),
        ("docket-limit-set", vec!["limit", "set", "anthropic", "--concurrent", "8"], Said),
        ("docket-limit-remove", vec!["limit", "remove", "anthropic"], Said),
        ("docket-memory", vec!["memory"], Said),
        ("docket-memory-list", vec!["memory", "list", "--repo", repo], Said),
        ("docket-memory-show", vec!["memory", "show", "how/test", "--repo", repo], Said),
        ("docket-memory-delete", vec!["memory", "delete", "how/test", "--repo", repo], Said),
        ("docket-schedule", vec!["schedule"], Said),
        ("docket-schedule-list", vec!["schedule", "list"], Said),
        ("docket-schedule-show", vec!["schedule", "show", "nightly"], Said),
        ("docket-schedule-pause", vec!["schedule", "pause", "nightly"], Said),
        ("docket-schedule-unpause", vec!["schedule", "unpause", "nightly"], Said),
        ("docket-schedule-run", vec!["schedule", "run", "nightly"], Said),
        ("docket-schedule-repin", vec!["schedule", "repin", "nightly", "--repo", repo], Said),
        (
            "docket-schedule-add",
            [&["schedule", "add", "weekly", "--cron", "@weekly", "x", "--repo", repo][..], &model].concat(),
            Said,
        ),
        ("docket-schedule-remove", vec!["schedule", "remove", "weekly"], Said),
        ("docket-token-create", vec!["token", "create", "--name", "a", "--role", "read"], Said),
        ("docket-token-list", vec!["token", "list"], Said),
        ("docket-token-revoke", vec!["token", "revoke", "a"], Said),
        ("docket-workers", vec!["workers"], Said),
        ("docket-workers-list", vec!["workers", "list"], Said),
        ("docket-workers-drain", vec!["workers", "drain", "nobody"], Refused(3)),
    ];
    let mut faults = Vec::new();
    for (page, args, want) in &commands {
        // What stands behind `--` is not docket's.
        let at = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        let done = stage.coordinator.run_docket(&[&args[..at], &["--json"], &args[at..]].concat()).await?;
        if let Some(fault) = json_fault(*want, &done) {
            faults.push(format!(
                "{page}: {fault}\n  {}\n  {}",
                done.stdout.trim_end(),
                done.stderr.trim_end()
            ));
        }
        ensure!(args.iter().any(|arg| page.contains(arg)), "{page} is not what {args:?} is");
    }
    // A backlog that is taken in, and not a run.
    let backlog = [&["import", &one, "--repo", repo][..], &model, &["--json"]].concat();
    faults.extend(
        json_fault(Said, &stage.coordinator.run_docket(&backlog).await?)
            .map(|fault| format!("import: {fault}")),
    );
    ensure!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));

    let tried = commands.iter().map(|(page, ..)| *page);
    let known: Vec<&str> =
        tried.chain(EXCUSED.map(|(page, _)| page)).chain(ELSEWHERE.map(|(page, ..)| page)).collect();
    let env = [("DOCKET_HOME", stage.coordinator.home().as_os_str())];
    let pages = run_program(TestProgram::Docket, stage.folder.path(), &env, &["man", man, "--json"])
        .await?
        .into_stdout()?;
    let pages: Vec<String> = serde_json::from_value(parse_row(&pages)?["pages"].clone())?;
    let pages: BTreeSet<&str> = pages.iter().map(|page| page.trim_end_matches(".1")).collect();
    let all: BTreeSet<&str> = known.iter().copied().collect();
    ensure!(all.len() == known.len(), "a command stands in two lists");
    ensure!(all == pages, "not tried: {:?}; not there: {:?}", &pages - &all, &all - &pages);
    for (page, file, text) in ELSEWHERE {
        let command = page.trim_start_matches("docket-");
        ensure!(asks_for_json(text, command), "{file} does not ask {page} for its JSON");
    }
    Ok(())
}

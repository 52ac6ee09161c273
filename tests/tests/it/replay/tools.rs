//! `--tools`: recorded calls run again, on runs whose calls do the same again and on runs whose calls do not.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{
    FinishedProcess, RunningProcess, SampleRepository, Signal, TestProgram, acquire_scenario_slot,
    poll_until, run_program, send_signal,
};
use serde_json::Value;
use tempfile::TempDir;

use super::parse_lines;

/// Edits, commands, tests that fail and pass, the model's own commit, and what is outside of every snapshot.
const STEADY: &str = r#"
[[turns]]
[[turns.calls]]
name = "read_file"
args = { path = "sum.sh" }
[[turns.calls]]
name = "run_tests"

[[turns]]
[[turns.calls]]
name = "edit_file"
args = { path = "sum.sh", edits = [{ search = "$1 - $2", replace = "$1 + $2" }] }
[[turns.calls]]
name = "run_command"
args = { command = "mkdir -p build/deep && cp sum.sh build/deep/ && ln -s sum.sh link && chmod 700 sum.sh && : > empty" }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "git add -A && git commit -qm mine && git rev-list --count HEAD > count; rm empty; cat made" }
[[turns.calls]]
name = "run_tests"

[[turns]]
[[turns.calls]]
name = "read_file"
args = { path = "no/such/file" }

[[turns]]
text = "It adds."
"#;

/// The second turn writes the time, the third reads it; the fourth waits where the first was not run.
pub(super) const FICKLE: &str = r#"
[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "mkdir -p ignored && touch ignored/here" }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "date +%s%N | tee now" }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "cp now then; date +%s%N" }

[[turns]]
[[turns.calls]]
name = "run_command"
args = { command = "test -e ignored/here || sleep 3600" }

[[turns]]
text = "It is late."
"#;

/// A home with one run in it, and nobody who serves it.
pub(super) struct ToolReplayFixture {
    pub(super) home: TempDir,
    pub(super) id: String,
}

impl ToolReplayFixture {
    pub(super) async fn play_run(script: &str, tests: &str, env: &[(&str, &str)]) -> Result<Self> {
        let home = tempfile::Builder::new().prefix("docket-home-").tempdir()?;
        let sample = SampleRepository::new(&[
            ("sum.sh", "echo $(($1 - $2))\n"),
            ("test.sh", "[ \"$(sh sum.sh 2 3)\" = 5 ] || { echo 'FAIL: 2 + 3'; exit 1; }\n"),
            (".gitignore", "ignored/\n"),
        ])?;
        let (script, repo) = (sample.write_script(script)?, sample.path());
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a UTF-8 path");
        let mut args = vec!["run".to_owned(), "Do it".to_owned(), "--repo".to_owned(), text(repo)?];
        args.extend(["--script".to_owned(), text(&script)?]);
        let rest = ["--model", "scripted:x", "--tests", tests, "--setup", "echo made > made"];
        args.extend(rest.iter().map(|arg| (*arg).to_owned()));
        let kept = Self { home, id: String::new() };
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        kept.run_docket(&args, env).await?;
        let tasks = parse_lines(&kept.run_docket(&["ps", "--json"], &[]).await?.into_stdout()?)?;
        let id = tasks[0]["run"].as_str().context("a run")?.to_owned();
        Ok(Self { id, ..kept })
    }

    pub(super) async fn run_docket(&self, args: &[&str], env: &[(&str, &str)]) -> Result<FinishedProcess> {
        let mut all: Vec<(&str, &OsStr)> = vec![("DOCKET_HOME", self.home.path().as_os_str())];
        all.extend(env.iter().map(|(name, value)| (*name, OsStr::new(*value))));
        run_program(TestProgram::Docket, self.home.path(), &all, args).await
    }

    /// The turns and the summary of `--tools`, behind the report of `--verify`.
    async fn replay_tools(&self, args: &[&str]) -> Result<(FinishedProcess, Vec<Value>, Value)> {
        let mut all = vec!["replay", self.id.as_str(), "--tools", "--json"];
        all.extend(args);
        let done = self.run_docket(&all, &[]).await?;
        let mut rows = parse_lines(&done.stdout).with_context(|| format!("{done:?}"))?;
        ensure!(rows.len() > 2 && rows[0]["replay"] == "verify", "{done:?}");
        ensure!(rows[1..].iter().all(|row| row["replay"] == "verify with tools"), "{done:?}");
        let summary = rows.pop().context("a summary")?;
        Ok((done, rows.split_off(1), summary))
    }

    /// The log's bytes, and what lies in the scratch folder.
    async fn log_and_scratch(&self) -> Result<(String, usize)> {
        let log = self.run_docket(&["logs", &self.id, "--json"], &[]).await?.into_stdout()?;
        Ok((log, std::fs::read_dir(self.home.path().join("scratch"))?.count()))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deterministic_calls_replay_identically() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let kept = ToolReplayFixture::play_run(STEADY, "sh test.sh", &[]).await?;
    let before = kept.log_and_scratch().await?;
    let (done, turns, summary) = kept.replay_tools(&["--gates"]).await?;
    ensure!(done.success(), "{done:?}");
    ensure!(turns.len() == 6 && turns.iter().all(|turn| turn["ok"] == true), "{turns:#?}");
    ensure!(summary["ok"] == true && summary["turns_differ"] == 0 && summary["not_run"] == 0, "{summary}");
    // The setup line, seven calls, and the check at the end.
    ensure!(summary["ran"] == 9, "{summary}");
    ensure!(turns[0]["calls"][0]["tool"] == "echo made > made", "{turns:#?}");
    ensure!(turns[3]["git_differs"] == true, "a commit carries its clock: {:#}", turns[3]);
    let same = before == kept.log_and_scratch().await?;
    ensure!(same && before.1 == 0, "the log and the scratch folder stay as they were");

    // Without gates their results are the log's; both commands do the same.
    let verified = kept.run_docket(&["verify", &kept.id, "--tools"], &[]).await?;
    ensure!(verified.success(), "{verified:?}");
    ensure!(verified.stdout.contains("replay (verify with tools) of run"), "{verified:?}");
    let (done, turns, summary) = kept.replay_tools(&["--turn", "2"]).await?;
    ensure!(done.success() && turns.len() == 1 && turns[0]["turn"] == 2, "{done:?}");
    ensure!(summary["ran"] == 2, "one turn alone, from the tree before it: {summary}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn differing_call_is_named_and_later_turns_are_unaffected() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let kept = ToolReplayFixture::play_run(FICKLE, "test -e then", &[]).await?;
    let (done, turns, summary) = kept.replay_tools(&[]).await?;
    ensure!(done.code() == Some(6) && summary["ok"] == false && summary["turns_differ"] == 1, "{done:?}");
    let judged: Vec<bool> = turns.iter().filter_map(|turn| turn["ok"].as_bool()).collect();
    ensure!(judged == [true, true, false, true, true, true], "{turns:#?}");
    let tree = &turns[2]["trees"][0];
    ensure!(tree["paths"][0]["text"] == "now" || tree["paths"][0] == "now", "{tree}");
    ensure!(tree["recorded"] == turns[2]["tree"] && tree["again"] != tree["recorded"], "{tree}");
    // What a call prints may differ; what it does may not.
    ensure!(turns[3]["calls"][0]["content_differs"] == true, "{:#}", turns[3]);
    let text = kept.run_docket(&["replay", &kept.id, "--tools", "--to", "3"], &[]).await?;
    ensure!(text.code() == Some(6) && text.stdout.contains("1 of 4 turns differ"), "{text:?}");

    // In the middle of a call that never ends, Ctrl-C ends all and leaves nothing behind.
    let before = kept.log_and_scratch().await?;
    let args = ["replay", kept.id.as_str(), "--tools", "--turn", "4"];
    let (mut process, _) = RunningProcess::start_docket("replay", kept.home.path(), &[], &args).await?;
    let scratch = kept.home.path().join("scratch");
    let works = || {
        let folder = std::fs::read_dir(&scratch).ok()?.flatten().next()?;
        folder.path().join("workspace/then").exists().then_some(())
    };
    poll_until("the recorded tree in the scratch folder", works).await.with_context(|| process.log_tail())?;
    send_signal(process.pid(), Signal::SIGINT);
    let status = process.wait().await?;
    ensure!(status.code() == Some(1), "{status} {}", process.log_tail());
    ensure!(before == kept.log_and_scratch().await?, "nothing stays behind");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsandboxed_calls_are_not_replayed() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let kept = ToolReplayFixture::play_run(FICKLE, "test -e then", &[("DOCKET_SANDBOX", "none")]).await?;
    let (done, turns, summary) = kept.replay_tools(&[]).await?;
    ensure!(done.success() && summary["not_run"] == 5, "{done:?}");
    for turn in &turns[1..=4] {
        ensure!(turn["calls"][0]["ran"] == "external" && turn["ok"] == true, "{turn:#}");
    }
    let text = kept.run_docket(&["replay", &kept.id, "--tools"], &[]).await?.into_stdout()?;
    ensure!(text.contains("not run again because it may have effects outside the workspace"), "{text}");
    // And without walls here, nothing is run here.
    let refused = kept.run_docket(&["replay", &kept.id, "--tools"], &[("DOCKET_SANDBOX", "none")]).await?;
    ensure!(refused.code() == Some(2) && refused.stderr.contains("only in a sandbox"), "{refused:?}");
    Ok(())
}

//! Resume and fork on real processes: the workspace of every turn comes back to the byte, whatever the run
//! did to it, and from there the run goes on as it did undisturbed.

mod manual_changes;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::{LineageView, TaskView},
    ids::{RunId, TaskId},
    run::{RunEvent, RunOutcome},
    task::TaskState,
};
use docket_tests::system::{
    CoordinatorProcess, DocketTerminal, FinishedProcess, LeaseDuration, RunHistory, SampleRepository,
    StoreLocation, WorkerOptions, WorkerProcess, acquire_scenario_slot, wait_until,
};

/// Prints one hash over everything that must come back: names (also such that are no text), kinds, modes,
/// link targets, contents, and of git its commits, branches, stashes, index and state. `build/` is ignored.
const MANIFEST: &str = r#"export LC_ALL=C GIT_OPTIONAL_LOCKS=0
{
  find . -path ./.git -prune -o -path ./build -prune -o -printf '%y %m %p -> %l\n' | sort
  find . -path ./.git -prune -o -path ./build -prune -o -type f -print0 | sort -z | xargs -0 sha256sum
  git log --all --format='%H %P %s' | sort; git branch --all; git stash list; git ls-files --stage
  git diff; git status --porcelain
} | if [ "$1" = full ]; then cat; else sha256sum | sed 's/^/manifest /'; fi
"#;

const FILES: [(&str, &str); 5] = [
    ("manifest.sh", MANIFEST),
    (".gitignore", "build/\n"),
    ("notes.txt", "first\nsecond\n"),
    ("src/calc.sh", "add() { echo $(($1 + $2)); }\n"),
    ("data/old.txt", "old\n"),
];

/// What each turn does. Commits bear fixed times, so that a turn that is played again makes the same ones.
const TURNS: [&str; 7] = [
    // Untracked, empty, no text in name and content, links, modes, empty folders.
    r#"mkdir -p sub empty/within && printf '\377\376\000bin' > "sub/$(printf 'n\377m')" && : > sub/nothing && ln -s ../notes.txt sub/link && ln -s nowhere dangling && chmod 600 notes.txt && chmod 700 empty && chmod 755 src/calc.sh"#,
    // Deletions and a commit of its own, on a branch of its own.
    r#"rm data/old.txt && git checkout -q -b mine && git add -A && git commit -qm 'the model was here' && git tag seen"#,
    // A stash, and something untracked over it.
    r#"echo wip >> notes.txt && git stash -q && echo loose > loose.txt"#,
    // What was a file becomes a folder, what was a folder a link; names with a new line.
    r#"rm loose.txt && mkdir loose.txt && echo in > loose.txt/in && rm -rf sub && ln -s src sub && echo odd > "$(printf 'two\nlines')""#,
    // The stash comes back, and is changed further, half of it staged.
    r#"git stash pop -q && git add notes.txt && echo more >> notes.txt && git rm -q --cached src/calc.sh && chmod 444 src/calc.sh"#,
    // History is rewritten, and a mode changes alone.
    r#"git add -A && git commit -q --amend -m 'rewritten' && git branch -q other HEAD && chmod 640 notes.txt"#,
    // Most of it goes.
    r#"rm -rf data empty dangling && test -f build/ready && echo setup-was-there"#,
];

fn turns_script() -> String {
    let mut text = String::new();
    for turn in TURNS {
        let fixed = "export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z";
        let command = format!("sh manifest.sh && {fixed} && {turn} && sh manifest.sh");
        text += &format!(
            "[[turns]]\n[[turns.calls]]\nname = \"run_command\"\nargs = {{ command = {command:?} }}\n"
        );
    }
    text + "[[turns]]\ntext = \"All of it is done.\"\n"
}

/// The coordinator, a worker, and the run that was not disturbed.
struct ResumeFixture {
    coordinator: CoordinatorProcess,
    _worker: WorkerProcess,
    task: TaskId,
    run: RunId,
    /// The manifest after each turn, from 0.
    manifests: Vec<String>,
}

impl ResumeFixture {
    async fn new() -> Result<Self> {
        let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
        let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
        let sample = SampleRepository::new(&FILES)?;
        let script = sample.write_script(&turns_script())?;
        let script = script.to_str().context("a UTF-8 path")?;
        let setup = "mkdir -p build && touch build/ready";
        let args = ["--model", "scripted:all", "--script", script, "--setup", setup];
        let (task, _) = sample.submit(&coordinator, &args).await?;
        let run = wait_until_finished(&coordinator, task, TaskState::Completed).await?;
        let manifests = turn_manifests(&coordinator.run_history(run).await?)?;
        ensure!(manifests.len() == TURNS.len() + 1, "{manifests:?}");
        let manifests = manifests.into_values().collect();
        Ok(Self { coordinator, _worker: worker, task, run, manifests })
    }

    /// The workspace of a turn, as a person finds it.
    async fn shell_manifest(&self, run: RunId, turn: usize, how: &str) -> Result<String> {
        let (run, turn) = (run.to_string(), turn.to_string());
        let args = ["shell", &run, "--turn", &turn, "--", "sh", "manifest.sh", how];
        Ok(self.coordinator.run_docket(&args).await?.into_stdout()?.trim().to_owned())
    }

    /// Checks a run that went on from `turn`: the same files then, at each turn after, and at the end.
    async fn check_same_as_undisturbed(&self, run: RunId, turn: usize) -> Result<()> {
        let history = self.coordinator.run_history(run).await?;
        let found = turn_manifests(&history)?;
        for (turn, wanted) in self.manifests.iter().enumerate() {
            ensure!(found.get(&turn) == Some(wanted), "run {run}, turn {turn}: {found:?}");
        }
        let undisturbed = self.coordinator.run_history(self.run).await?;
        ensure!(
            history.final_tree().is_some() && history.final_tree() == undisturbed.final_tree(),
            "another tree at the end"
        );
        let begun = history.events.iter().rposition(|event| matches!(event, RunEvent::Forked(_)));
        let own = &history.events[begun.context("it stands on another's history")?..];
        let RunEvent::Forked(forked) = &own[0] else { unreachable!("found by its kind") };
        ensure!(forked.turn.0 as usize == turn, "{forked:?}");
        let setups = own.iter().filter(|event| matches!(event, RunEvent::SetupFinished(_))).count();
        ensure!(setups == 1, "setup commands are run again: {}", history.format_kinds());
        history.verify(self.coordinator.client()).await
    }
}

/// The run that a task came to.
async fn wait_until_finished(
    coordinator: &CoordinatorProcess,
    task: TaskId,
    state: TaskState,
) -> Result<RunId> {
    let view = coordinator.wait_until_ended(task).await?;
    ensure!(view.task.state == state, "{:?}: {:?}", view.task.state, view.task.message);
    view.task.last_run.context("a run")
}

/// The manifest after each turn: a turn begins by printing that of the one before, and ends with its own.
fn turn_manifests(history: &RunHistory) -> Result<BTreeMap<usize, String>> {
    let mut found = BTreeMap::new();
    for (envelope, event) in history.envelopes.iter().zip(&history.events) {
        let RunEvent::ToolFinished(done) = event else { continue };
        let text = done.content.inline_bytes().context("short outputs are inline")?;
        let text = String::from_utf8(text)?;
        let seen: Vec<&str> = text.lines().filter(|line| line.starts_with("manifest ")).collect();
        let turn = envelope.turn.0 as usize;
        let [before, after] = seen[..] else { anyhow::bail!("turn {turn} failed: {text}") };
        let known = found.insert(turn - 1, before.to_owned());
        ensure!(known.is_none_or(|known| known == before), "turn {turn} does not begin where the last ended");
        found.insert(turn, after.to_owned());
    }
    Ok(found)
}

#[tokio::test]
async fn every_turn_is_restored_exactly_and_continues_identically() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = ResumeFixture::new().await?;
    let coordinator = &stage.coordinator;
    for (turn, wanted) in stage.manifests.iter().enumerate() {
        let found = stage.shell_manifest(stage.run, turn, "hash").await?;
        if found != *wanted {
            let full = stage.shell_manifest(stage.run, turn, "full").await?;
            anyhow::bail!("turn {turn}: {found} is not {wanted}: {full}");
        }
    }

    let run = stage.run.to_string();
    let refused = coordinator.run_docket(&["resume", &run, "--turn", "99"]).await?;
    ensure!(refused.code() == Some(3) && refused.stderr.contains("has turns 0 to 8"), "{}", refused.stderr);
    for turn in [5, 3, 0] {
        coordinator.run_docket(&["resume", &run, "--turn", &turn.to_string()]).await?.into_stdout()?;
        let resumed = wait_until_finished(coordinator, stage.task, TaskState::Completed).await?;
        ensure!(resumed != stage.run, "a new run");
        stage.check_same_as_undisturbed(resumed, turn).await?;
    }
    for turn in [6, 2] {
        let made = coordinator
            .run_docket(&["fork", &run, "--turn", &turn.to_string(), "--json"])
            .await?
            .into_stdout()?;
        let made: serde_json::Value = serde_json::from_str(&made)?;
        let task: TaskId = made["task"].as_str().context("a task")?.parse()?;
        let forked = wait_until_finished(coordinator, task, TaskState::Completed).await?;
        stage.check_same_as_undisturbed(forked, turn).await?;
    }
    let ResumeFixture { coordinator, _worker, .. } = stage;
    _worker.drain().await?;
    coordinator.end_and_check().await
}

const BLOCKS: &str = r#"
[[turns]]
[[turns.calls]]
name = "create_file"
args = { path = "one.txt", content = "1\n" }
[[turns]]
[[turns.calls]]
name = "create_file"
args = { path = "two.txt", content = "2\n" }
[[turns]]
when = { any_contains = "use port 80" }
text = "It listens."
[[turns.or]]
text = "BLOCKED: which port?"
"#;

/// Answers two turns and then refuses: the run fails.
const FAILS: &str = r#"
[[turns]]
[[turns.calls]]
name = "create_file"
args = { path = "one.txt", content = "1\n" }
[[turns]]
[[turns.calls]]
name = "create_file"
args = { path = "two.txt", content = "2\n" }
"#;

/// Thinks for as long as it may at its second turn.
const THINKS: &str = r#"
[[turns]]
[[turns.calls]]
name = "create_file"
args = { path = "one.txt", content = "1\n" }
[[turns]]
delay_ms = 600000
text = "Never said."
"#;

/// Submits a task that plays `script`, and waits until it is in `state`.
async fn submit_until_state(
    coordinator: &CoordinatorProcess,
    script: &str,
    more: &[&str],
    state: TaskState,
) -> Result<(TaskId, RunId)> {
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let script = sample.write_script(script)?;
    let mut args = vec!["--model", "scripted:s", "--script", script.to_str().context("a UTF-8 path")?];
    args.extend(more);
    let (task, _) = sample.submit(coordinator, &args).await?;
    let view = wait_for_state(coordinator, task, state).await?;
    Ok((task, view.task.last_run.context("a run")?))
}

async fn wait_for_state(
    coordinator: &CoordinatorProcess,
    task: TaskId,
    state: TaskState,
) -> Result<TaskView> {
    let there = wait_until("a task's state", async || {
        let view = coordinator.client().get_task(task).await.ok()?;
        (view.task.state == state).then_some(view)
    });
    there.await.with_context(|| format!("task {task} never was {state}"))
}

/// Resumes `run` at turn 1 and gives the new run, once a worker is at it or has ended it.
async fn resume_run(coordinator: &CoordinatorProcess, task: TaskId, run: RunId) -> Result<RunId> {
    coordinator.run_docket(&["resume", &run.to_string(), "--turn", "1"]).await?.into_stdout()?;
    let new = wait_until("the new run at work", async || {
        let new = coordinator.client().get_task(task).await.ok()?.task.last_run.filter(|new| *new != run)?;
        let history = coordinator.run_history(new).await.ok()?;
        let begun = history.events.iter().rposition(|event| matches!(event, RunEvent::Forked(_)))?;
        let recovered = |event: &RunEvent| matches!(event, RunEvent::RunRecovered(_));
        history.events[begun..].iter().any(recovered).then_some(new)
    });
    new.await.with_context(|| coordinator.log_tail())
}

async fn run_status(coordinator: &CoordinatorProcess, run: RunId) -> Result<String> {
    Ok(coordinator.client().get_run(run).await?.status)
}

#[tokio::test]
async fn runs_in_any_state_can_be_resumed() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;

    // Blocked: its run ends as superseded, and the new one asks again.
    let (task, run) = submit_until_state(&coordinator, BLOCKS, &[], TaskState::Blocked).await?;
    let new = resume_run(&coordinator, task, run).await?;
    ensure!(run_status(&coordinator, run).await? == "superseded");
    wait_for_state(&coordinator, task, TaskState::Blocked).await?;

    // Cancelled: it is as it ended, and its task goes on.
    coordinator.run_docket(&["cancel", &task.to_string()]).await?.into_stdout()?;
    ensure!(run_status(&coordinator, new).await? == "cancelled");
    let newer = resume_run(&coordinator, task, new).await?;
    ensure!(run_status(&coordinator, new).await? == "cancelled");
    wait_for_state(&coordinator, task, TaskState::Blocked).await?;

    // A word in time lets a fork of the same turn end well; the blocked run is not touched.
    let args = ["fork", &newer.to_string(), "--turn", "1", "--hint", "use port 80", "--count", "2", "--json"];
    for line in coordinator.run_docket(&args).await?.into_stdout()?.lines() {
        let made: serde_json::Value = serde_json::from_str(line)?;
        let forked: TaskId = made["task"].as_str().context("a task")?.parse()?;
        let run = wait_until_finished(&coordinator, forked, TaskState::Completed).await?;
        coordinator.run_history(run).await?.verify(coordinator.client()).await?;
    }
    ensure!(run_status(&coordinator, newer).await? == "blocked");

    // Failed with tries left, and discarded.
    let (task, run) = submit_until_state(&coordinator, FAILS, &[], TaskState::Retryable).await?;
    let new = resume_run(&coordinator, task, run).await?;
    ensure!(run_status(&coordinator, run).await? == "failed" && new != run);
    let (task, run) =
        submit_until_state(&coordinator, FAILS, &["--attempts", "1"], TaskState::Discarded).await?;
    let new = resume_run(&coordinator, task, run).await?;
    wait_until_finished(&coordinator, task, TaskState::Discarded).await?;
    let history = coordinator.run_history(new).await?;
    let ended = history.events.iter().filter(|event| {
        matches!(event, RunEvent::RunEnded(ended) if matches!(ended.result, RunOutcome::Failed { .. }))
    });
    ensure!(ended.count() == 1, "the shared history is without the old end: {}", history.format_kinds());

    check_running_runs_are_stopped(&coordinator).await?;
    check_lineage_is_shown(&coordinator, newer).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

/// Running: it is fenced and ends, its worker's one slot is free for the new run.
async fn check_running_runs_are_stopped(coordinator: &CoordinatorProcess) -> Result<()> {
    let (task, run) = submit_until_state(coordinator, THINKS, &[], TaskState::Running).await?;
    wait_until("the second turn", async || {
        (coordinator.client().get_run(run).await.ok()?.turn == 2).then_some(())
    })
    .await?;
    let refused = coordinator.run_docket(&["resume", &run.to_string(), "--turn", "2"]).await?;
    ensure!(
        refused.code() == Some(4) && refused.stderr.contains("the last finished turn is 1"),
        "{refused:?}"
    );
    let forked = coordinator.run_docket(&["fork", &run.to_string(), "--json"]).await?.into_stdout()?;
    let forked: serde_json::Value = serde_json::from_str(&forked)?;
    ensure!(forked["turn"] == 1 && run_status(coordinator, run).await? == "running", "{forked}");
    let forked = forked["task"].as_str().context("a task")?;
    coordinator.run_docket(&["cancel", forked]).await?.into_stdout()?;

    let new = resume_run(coordinator, task, run).await?;
    ensure!(run_status(coordinator, run).await? == "superseded");
    let (old, new) = (coordinator.run_history(run).await?, coordinator.run_history(new).await?);
    ensure!(
        old.count_kind("RunEnded") == 1 && new.count_kind("ModelAnswered") == 1,
        "{}",
        new.format_kinds()
    );
    coordinator.run_docket(&["cancel", &task.to_string()]).await?.into_stdout()?;
    wait_until_finished(coordinator, task, TaskState::Cancelled).await.map(|_| ())
}

/// `docket show` draws the tree from any of its runs, and says the same to programs.
async fn check_lineage_is_shown(coordinator: &CoordinatorProcess, run: RunId) -> Result<()> {
    let tree: LineageView = coordinator.client().get_lineage(run).await?;
    let text = coordinator.run_docket(&["show", &run.to_string()]).await?.into_stdout()?;
    let json = coordinator.run_docket(&["show", &run.to_string(), "--json"]).await?.into_stdout()?;
    let json: serde_json::Value = serde_json::from_str(&json)?;
    let listed = json["lineage"].as_array().context("a list")?;
    ensure!(tree.runs.len() == 5 && listed.len() == 5, "blocked, two resumed, two forked: {json}");
    for (one, listed) in tree.runs.iter().zip(listed) {
        ensure!(text.contains(&one.run.id.short()) && listed["run"] == one.run.id.to_string(), "{text}");
        ensure!(listed["status"] == one.run.status.as_str() && listed["model"] == "scripted:s", "{listed}");
    }
    ensure!(text.contains("├─ ") && text.contains("└─ ") && text.contains("forked at turn 1"), "{text}");
    Ok(())
}

/// Looks at the model's side of what a person changed: without the words it stops.
const MENDED: &str = r#"
[[turns]]
text = "I break it first."
[[turns.calls]]
name = "run_command"
args = { command = "echo broken > state.txt && echo gone > old.txt && touch \"$(printf 'n\\377')\"" }
[[turns]]
when = { any_contains = "A person changed the workspace" }
[[turns.calls]]
name = "run_command"
args = { command = "cat state.txt; ls" }
[[turns.or]]
text = "BLOCKED: state.txt is broken"
[[turns]]
when = { last_result_contains = "mended" }
text = "It holds."
[[turns.or]]
text = "BLOCKED: it is still broken"
"#;

async fn run_shell(
    coordinator: &CoordinatorProcess,
    run: RunId,
    then: &str,
    line: &str,
) -> Result<FinishedProcess> {
    let run = run.to_string();
    coordinator
        .run_docket(&["shell", &run, "--turn", "1", "--json", "--then", then, "--", "sh", "-c", line])
        .await
}

/// The one object that stands on standard output.
fn visit_report(finished: &FinishedProcess) -> Result<serde_json::Value> {
    ensure!(finished.stdout.lines().count() == 1, "{finished:?}");
    serde_json::from_str(&finished.stdout).with_context(|| format!("{finished:?}"))
}

#[tokio::test]
async fn manual_changes_in_a_shell_are_the_base_of_the_next_run() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let (task, run) = submit_until_state(&coordinator, MENDED, &[], TaskState::Blocked).await?;

    let looked =
        run_shell(&coordinator, run, "resume", "echo $DOCKET_RUN $DOCKET_TURN; pwd; cat state.txt").await?;
    ensure!(looked.stderr.starts_with(&format!("{run} 1\n/workspace\nbroken\n")), "{looked:?}");
    ensure!(looked.stderr.contains("nothing was changed") && looked.success(), "{looked:?}");
    let row = visit_report(&looked)?;
    ensure!(row["run"] == run.to_string() && row["turn"] == 1 && row["succeeded"] == true, "{row}");
    ensure!(row["then"].is_null() && row["changed"].as_array().is_some_and(Vec::is_empty), "{row}");
    // The walls are the run's: nothing of the host, no network but its own loopback, not root.
    let walls = "id -u; cat /etc/shadow 2>&1; grep -c : /proc/net/dev; exit 3";
    let walls = run_shell(&coordinator, run, "discard", walls).await?;
    ensure!(walls.code() == Some(1) && walls.stderr.starts_with("1000\n"), "{walls:?}");
    ensure!(walls.stderr.contains("No such file") && walls.stderr.contains("\n1\n"), "{walls:?}");
    ensure!(visit_report(&walls)?["succeeded"] == false, "{walls:?}");
    let thrown = run_shell(&coordinator, run, "discard", "echo thrown > state.txt").await?;
    ensure!(
        thrown.stderr.contains("discarded") && run_status(&coordinator, run).await? == "blocked",
        "{thrown:?}"
    );
    let row = visit_report(&thrown)?;
    ensure!(row["then"] == "discard" && row["changed"][0] == "state.txt" && row["made"].is_null(), "{row}");
    let plain = ["shell", &run.to_string(), "--turn", "1", "--", "cat", "state.txt"].map(str::to_owned);
    ensure!(
        coordinator.run_docket(&plain).await?.into_stdout()? == "broken\n",
        "without --json it is the command's own"
    );

    let mend = "echo mended > state.txt && rm old.txt && mkdir -m 700 new && : > new/empty";
    let row = visit_report(&run_shell(&coordinator, run, "fork", mend).await?)?;
    let (then, made) = (&row["then"], &row["made"]);
    ensure!(then == "fork" && made["parent"] == run.to_string() && row["git_changed"] == false, "{row}");
    let made: TaskId = made["task"].as_str().context("a task")?.parse()?;
    let forked = wait_until_finished(&coordinator, made, TaskState::Completed).await?;
    ensure!(run_status(&coordinator, run).await? == "blocked", "a fork leaves it alone");
    let row = visit_report(&run_shell(&coordinator, run, "resume", mend).await?)?;
    ensure!(row["then"] == "resume" && row["made"]["task"] == task.to_string(), "{row}");
    let new = wait_until_finished(&coordinator, task, TaskState::Completed).await?;
    ensure!(run_status(&coordinator, run).await? == "superseded");
    for new in [forked, new] {
        let history = coordinator.run_history(new).await?;
        let at = history.events.iter().position(|event| matches!(event, RunEvent::WorkspaceEdited(_)));
        let at = at.with_context(|| history.format_kinds())?;
        ensure!(matches!(history.events[at - 1], RunEvent::Forked(_)), "{}", history.format_kinds());
        let RunEvent::SnapshotTaken(taken) = &history.events[at + 1] else {
            anyhow::bail!("{}", history.format_kinds())
        };
        let paths: Vec<String> = taken.changes.iter().map(|change| change.path.to_string()).collect();
        ensure!(paths == ["new", "new/empty", "old.txt", "state.txt"], "{paths:?}");
        history.verify(coordinator.client()).await?;
        let seen = coordinator
            .run_docket(&["shell", &new.to_string(), "--", "cat", "state.txt"])
            .await?
            .into_stdout()?;
        ensure!(seen == "mended\n", "{seen}");
        manual_changes::check_manual_changes(&coordinator, new).await?;
    }
    worker.drain().await?;
    coordinator.end_and_check().await
}

#[tokio::test]
async fn shell_has_its_own_terminal_and_asks_about_changes() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let (_, run) = submit_until_state(&coordinator, MENDED, &[], TaskState::Blocked).await?;
    let home = coordinator.home().to_owned();
    let env = [("DOCKET_HOME", home.as_os_str()), ("TERM", "xterm".as_ref())];
    let mut person = DocketTerminal::start(&home, &env, &["shell", &run.to_string(), "--turn", "1"])?;
    let prompt = format!("{}@1 /workspace $ ", run.short());
    person.wait_for_text(&prompt).await?;
    person.send_keys("stty size; echo at $DOCKET_TURN; [ -t 0 ] && echo a-tty-$((40 + 2))\r")?;
    person.wait_for_text("24 80\r\n").await?;
    person.wait_for_text("at 1\r\n").await?;
    person.wait_for_text("a-tty-42").await?;
    // Ctrl-C ends what runs inside, not the shell.
    person.send_keys("sh -c 'echo sleeps-$((40 + 2)); exec sleep 1000'\r")?;
    person.wait_for_text("sleeps-42").await?;
    person.send_keys("\u{3}")?;
    person.wait_for_text(&prompt).await?;
    // Ctrl-Z stops it, and `fg` goes on with it. What it answers is not what was typed, so that neither is
    // taken for the other.
    person.send_keys("sh -c \"echo runs-$((40 + 3)); exec sed -u 's/x/y-/'\"\r")?;
    // What is typed while the shell reads a line is the shell's.
    person.wait_for_text("runs-43").await?;
    person.send_keys("x1\r")?;
    person.wait_for_text("y-1").await?;
    person.send_keys("\u{1a}")?;
    person.wait_for_text("Stopped").await?;
    person.send_keys("echo back-$((40 + 4)); fg\r")?;
    person.wait_for_text("back-44").await?;
    person.send_keys("x2\r")?;
    person.wait_for_text("y-2").await?;
    person.send_keys("\u{3}")?;
    person.wait_for_text(&prompt).await?;
    person.send_keys("echo mended > state.txt; exit\r")?;
    person.wait_for_text("~ state.txt").await?;
    person.wait_for_text("[r]esume").await?;
    person.send_keys("f\r")?;
    person.wait_for_text("continues from turn 1").await?;
    ensure!(person.wait().await?.success(), "{}", person.full_output());
    let tree = coordinator.client().get_lineage(run).await?;
    let task = tree.runs.get(1).context("a fork")?.run.task;
    wait_until_finished(&coordinator, task, TaskState::Completed).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

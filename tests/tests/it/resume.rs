//! Resume and fork on real processes: the workspace of every turn comes back to the byte, whatever the run
//! did to it, and from there the run goes on as it did undisturbed.

mod apart;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::{RunId, TaskId},
    run::{RunEvent, RunOutcome},
    task::TaskState,
    wire::{LineageView, TaskView},
};
use docket_tests::system::{
    Coordinator, Finished, History, LeaseTime, Place, Sample, Terminal, Worker, WorkerOptions, room, until,
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

fn script() -> String {
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
struct Stage {
    coordinator: Coordinator,
    _worker: Worker,
    task: TaskId,
    run: RunId,
    /// The manifest after each turn, from 0.
    manifests: Vec<String>,
}

impl Stage {
    async fn set() -> Result<Self> {
        let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
        let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
        let sample = Sample::new(&FILES)?;
        let script = sample.script(&script())?;
        let script = script.to_str().context("a UTF-8 path")?;
        let setup = "mkdir -p build && touch build/ready";
        let args = ["--model", "scripted:all", "--script", script, "--setup", setup];
        let (task, _) = sample.submit(&coordinator, &args).await?;
        let run = finished(&coordinator, task, TaskState::Completed).await?;
        let manifests = manifests(&coordinator.history(run).await?)?;
        ensure!(manifests.len() == TURNS.len() + 1, "{manifests:?}");
        let manifests = manifests.into_values().collect();
        Ok(Self { coordinator, _worker: worker, task, run, manifests })
    }

    /// The workspace of a turn, as a person finds it.
    async fn visited(&self, run: RunId, turn: usize, how: &str) -> Result<String> {
        let (run, turn) = (run.to_string(), turn.to_string());
        let args = ["shell", &run, "--turn", &turn, "--", "sh", "manifest.sh", how];
        Ok(self.coordinator.docket(&args).await?.ok()?.trim().to_owned())
    }

    /// Checks a run that went on from `turn`: the same files then, at each turn after, and at the end.
    async fn same_as_undisturbed(&self, run: RunId, turn: usize) -> Result<()> {
        let history = self.coordinator.history(run).await?;
        let found = manifests(&history)?;
        for (turn, wanted) in self.manifests.iter().enumerate() {
            ensure!(found.get(&turn) == Some(wanted), "run {run}, turn {turn}: {found:?}");
        }
        let undisturbed = self.coordinator.history(self.run).await?;
        ensure!(history.tree().is_some() && history.tree() == undisturbed.tree(), "another tree at the end");
        let begun = history.events.iter().rposition(|event| matches!(event, RunEvent::Forked(_)));
        let own = &history.events[begun.context("it stands on another's history")?..];
        let RunEvent::Forked(forked) = &own[0] else { unreachable!("found by its kind") };
        ensure!(forked.turn.0 as usize == turn, "{forked:?}");
        let setups = own.iter().filter(|event| matches!(event, RunEvent::SetupFinished(_))).count();
        ensure!(setups == 1, "setup commands are run again: {}", history.kinds());
        history.verify(self.coordinator.client()).await
    }
}

/// The run that a task came to.
async fn finished(coordinator: &Coordinator, task: TaskId, state: TaskState) -> Result<RunId> {
    let view = coordinator.ended(task).await?;
    ensure!(view.task.state == state, "{:?}: {:?}", view.task.state, view.task.message);
    view.task.last_run.context("a run")
}

/// The manifest after each turn: a turn begins by printing that of the one before, and ends with its own.
fn manifests(history: &History) -> Result<BTreeMap<usize, String>> {
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
async fn every_turn_comes_back_to_the_byte_and_goes_on_as_it_did() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set().await?;
    let coordinator = &stage.coordinator;
    for (turn, wanted) in stage.manifests.iter().enumerate() {
        let found = stage.visited(stage.run, turn, "hash").await?;
        if found != *wanted {
            let full = stage.visited(stage.run, turn, "full").await?;
            anyhow::bail!("turn {turn}: {found} is not {wanted}: {full}");
        }
    }

    let run = stage.run.to_string();
    let refused = coordinator.docket(&["resume", &run, "--turn", "99"]).await?;
    ensure!(refused.code() == Some(3) && refused.stderr.contains("from 0 to 8"), "{}", refused.stderr);
    for turn in [5, 3, 0] {
        coordinator.docket(&["resume", &run, "--turn", &turn.to_string()]).await?.ok()?;
        let resumed = finished(coordinator, stage.task, TaskState::Completed).await?;
        ensure!(resumed != stage.run, "a new run");
        stage.same_as_undisturbed(resumed, turn).await?;
    }
    for turn in [6, 2] {
        let made = coordinator.docket(&["fork", &run, "--turn", &turn.to_string(), "--json"]).await?.ok()?;
        let made: serde_json::Value = serde_json::from_str(&made)?;
        let task: TaskId = made["task"].as_str().context("a task")?.parse()?;
        let forked = finished(coordinator, task, TaskState::Completed).await?;
        stage.same_as_undisturbed(forked, turn).await?;
    }
    let Stage { coordinator, _worker, .. } = stage;
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
async fn brought_to(
    coordinator: &Coordinator,
    script: &str,
    more: &[&str],
    state: TaskState,
) -> Result<(TaskId, RunId)> {
    let sample = Sample::new(&[("a.txt", "a\n")])?;
    let script = sample.script(script)?;
    let mut args = vec!["--model", "scripted:s", "--script", script.to_str().context("a UTF-8 path")?];
    args.extend(more);
    let (task, _) = sample.submit(coordinator, &args).await?;
    let view = in_state(coordinator, task, state).await?;
    Ok((task, view.task.last_run.context("a run")?))
}

async fn in_state(coordinator: &Coordinator, task: TaskId, state: TaskState) -> Result<TaskView> {
    let there = until("a task's state", async || {
        let view = coordinator.client().task(task).await.ok()?;
        (view.task.state == state).then_some(view)
    });
    there.await.with_context(|| format!("task {task} never was {state}"))
}

/// Resumes `run` at turn 1 and gives the new run, once a worker is at it or has ended it.
async fn resumed(coordinator: &Coordinator, task: TaskId, run: RunId) -> Result<RunId> {
    coordinator.docket(&["resume", &run.to_string(), "--turn", "1"]).await?.ok()?;
    let new = until("the new run at work", async || {
        let new = coordinator.client().task(task).await.ok()?.task.last_run.filter(|new| *new != run)?;
        let history = coordinator.history(new).await.ok()?;
        let begun = history.events.iter().rposition(|event| matches!(event, RunEvent::Forked(_)))?;
        let recovered = |event: &RunEvent| matches!(event, RunEvent::RunRecovered(_));
        history.events[begun..].iter().any(recovered).then_some(new)
    });
    new.await.with_context(|| coordinator.tail())
}

async fn status(coordinator: &Coordinator, run: RunId) -> Result<String> {
    Ok(coordinator.client().run(run).await?.status)
}

#[tokio::test]
async fn a_run_in_any_state_is_resumed() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;

    // Blocked: its run ends as superseded, and the new one asks again.
    let (task, run) = brought_to(&coordinator, BLOCKS, &[], TaskState::Blocked).await?;
    let new = resumed(&coordinator, task, run).await?;
    ensure!(status(&coordinator, run).await? == "superseded");
    in_state(&coordinator, task, TaskState::Blocked).await?;

    // Cancelled: it is as it ended, and its task goes on.
    coordinator.docket(&["cancel", &task.to_string()]).await?.ok()?;
    ensure!(status(&coordinator, new).await? == "cancelled");
    let newer = resumed(&coordinator, task, new).await?;
    ensure!(status(&coordinator, new).await? == "cancelled");
    in_state(&coordinator, task, TaskState::Blocked).await?;

    // A word in time lets a fork of the same turn end well; the blocked run is not touched.
    let args = ["fork", &newer.to_string(), "--turn", "1", "--hint", "use port 80", "--count", "2", "--json"];
    for line in coordinator.docket(&args).await?.ok()?.lines() {
        let made: serde_json::Value = serde_json::from_str(line)?;
        let forked: TaskId = made["task"].as_str().context("a task")?.parse()?;
        let run = finished(&coordinator, forked, TaskState::Completed).await?;
        coordinator.history(run).await?.verify(coordinator.client()).await?;
    }
    ensure!(status(&coordinator, newer).await? == "blocked");

    // Failed with tries left, and discarded.
    let (task, run) = brought_to(&coordinator, FAILS, &[], TaskState::Retryable).await?;
    let new = resumed(&coordinator, task, run).await?;
    ensure!(status(&coordinator, run).await? == "failed" && new != run);
    let (task, run) = brought_to(&coordinator, FAILS, &["--attempts", "1"], TaskState::Discarded).await?;
    let new = resumed(&coordinator, task, run).await?;
    finished(&coordinator, task, TaskState::Discarded).await?;
    let history = coordinator.history(new).await?;
    let ended = history.events.iter().filter(|event| {
        matches!(event, RunEvent::RunEnded(ended) if matches!(ended.result, RunOutcome::Failed { .. }))
    });
    ensure!(ended.count() == 1, "the shared history is without the old end: {}", history.kinds());

    running_ones_are_stopped(&coordinator).await?;
    lineage_is_shown(&coordinator, newer).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

/// Running: it is fenced and ends, its worker's one slot is free for the new run.
async fn running_ones_are_stopped(coordinator: &Coordinator) -> Result<()> {
    let (task, run) = brought_to(coordinator, THINKS, &[], TaskState::Running).await?;
    until("the second turn", async || (coordinator.client().run(run).await.ok()?.turn == 2).then_some(()))
        .await?;
    let refused = coordinator.docket(&["resume", &run.to_string(), "--turn", "2"]).await?;
    ensure!(
        refused.code() == Some(4) && refused.stderr.contains("the last one that has is 1"),
        "{refused:?}"
    );
    let forked = coordinator.docket(&["fork", &run.to_string(), "--json"]).await?.ok()?;
    let forked: serde_json::Value = serde_json::from_str(&forked)?;
    ensure!(forked["turn"] == 1 && status(coordinator, run).await? == "running", "{forked}");
    let forked = forked["task"].as_str().context("a task")?;
    coordinator.docket(&["cancel", forked]).await?.ok()?;

    let new = resumed(coordinator, task, run).await?;
    ensure!(status(coordinator, run).await? == "superseded");
    let (old, new) = (coordinator.history(run).await?, coordinator.history(new).await?);
    ensure!(old.count("RunEnded") == 1 && new.count("ModelAnswered") == 1, "{}", new.kinds());
    coordinator.docket(&["cancel", &task.to_string()]).await?.ok()?;
    finished(coordinator, task, TaskState::Cancelled).await.map(|_| ())
}

/// `docket show` draws the tree from any of its runs, and says the same to programs.
async fn lineage_is_shown(coordinator: &Coordinator, run: RunId) -> Result<()> {
    let tree: LineageView = coordinator.client().lineage(run).await?;
    let text = coordinator.docket(&["show", &run.to_string()]).await?.ok()?;
    let json = coordinator.docket(&["show", &run.to_string(), "--json"]).await?.ok()?;
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

async fn shell(coordinator: &Coordinator, run: RunId, then: &str, line: &str) -> Result<Finished> {
    let run = run.to_string();
    coordinator
        .docket(&["shell", &run, "--turn", "1", "--json", "--then", then, "--", "sh", "-c", line])
        .await
}

/// The one object that stands on standard output.
fn visit(finished: &Finished) -> Result<serde_json::Value> {
    ensure!(finished.stdout.lines().count() == 1, "{finished:?}");
    serde_json::from_str(&finished.stdout).with_context(|| format!("{finished:?}"))
}

#[tokio::test]
async fn what_a_person_changes_in_a_shell_is_where_the_next_run_begins() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
    let (task, run) = brought_to(&coordinator, MENDED, &[], TaskState::Blocked).await?;

    let looked =
        shell(&coordinator, run, "resume", "echo $DOCKET_RUN $DOCKET_TURN; pwd; cat state.txt").await?;
    ensure!(looked.stderr.starts_with(&format!("{run} 1\n/workspace\nbroken\n")), "{looked:?}");
    ensure!(looked.stderr.contains("nothing was changed") && looked.success(), "{looked:?}");
    let row = visit(&looked)?;
    ensure!(row["run"] == run.to_string() && row["turn"] == 1 && row["succeeded"] == true, "{row}");
    ensure!(row["then"].is_null() && row["changed"].as_array().is_some_and(Vec::is_empty), "{row}");
    // The walls are the run's: nothing of the host, no network but its own loopback, not root.
    let walls = "id -u; cat /etc/shadow 2>&1; grep -c : /proc/net/dev; exit 3";
    let walls = shell(&coordinator, run, "discard", walls).await?;
    ensure!(walls.code() == Some(1) && walls.stderr.starts_with("1000\n"), "{walls:?}");
    ensure!(walls.stderr.contains("No such file") && walls.stderr.contains("\n1\n"), "{walls:?}");
    ensure!(visit(&walls)?["succeeded"] == false, "{walls:?}");
    let thrown = shell(&coordinator, run, "discard", "echo thrown > state.txt").await?;
    ensure!(
        thrown.stderr.contains("discarded") && status(&coordinator, run).await? == "blocked",
        "{thrown:?}"
    );
    let row = visit(&thrown)?;
    ensure!(row["then"] == "discard" && row["changed"][0] == "state.txt" && row["made"].is_null(), "{row}");
    let plain = ["shell", &run.to_string(), "--turn", "1", "--", "cat", "state.txt"].map(str::to_owned);
    ensure!(coordinator.docket(&plain).await?.ok()? == "broken\n", "without --json it is the command's own");

    let mend = "echo mended > state.txt && rm old.txt && mkdir -m 700 new && : > new/empty";
    let row = visit(&shell(&coordinator, run, "fork", mend).await?)?;
    let (then, made) = (&row["then"], &row["made"]);
    ensure!(then == "fork" && made["parent"] == run.to_string() && row["git_changed"] == false, "{row}");
    let made: TaskId = made["task"].as_str().context("a task")?.parse()?;
    let forked = finished(&coordinator, made, TaskState::Completed).await?;
    ensure!(status(&coordinator, run).await? == "blocked", "a fork leaves it alone");
    let row = visit(&shell(&coordinator, run, "resume", mend).await?)?;
    ensure!(row["then"] == "resume" && row["made"]["task"] == task.to_string(), "{row}");
    let new = finished(&coordinator, task, TaskState::Completed).await?;
    ensure!(status(&coordinator, run).await? == "superseded");
    for new in [forked, new] {
        let history = coordinator.history(new).await?;
        let at = history.events.iter().position(|event| matches!(event, RunEvent::WorkspaceEdited(_)));
        let at = at.with_context(|| history.kinds())?;
        ensure!(matches!(history.events[at - 1], RunEvent::Forked(_)), "{}", history.kinds());
        let RunEvent::SnapshotTaken(taken) = &history.events[at + 1] else {
            anyhow::bail!("{}", history.kinds())
        };
        let paths: Vec<String> = taken.changes.iter().map(|change| change.path.to_string()).collect();
        ensure!(paths == ["new", "new/empty", "old.txt", "state.txt"], "{paths:?}");
        history.verify(coordinator.client()).await?;
        let seen = coordinator.docket(&["shell", &new.to_string(), "--", "cat", "state.txt"]).await?.ok()?;
        ensure!(seen == "mended\n", "{seen}");
        apart::what_a_person_did(&coordinator, new).await?;
    }
    worker.drain().await?;
    coordinator.end_and_check().await
}

#[tokio::test]
async fn a_shell_is_a_terminal_of_its_own_and_asks_what_becomes_of_a_change() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
    let (_, run) = brought_to(&coordinator, MENDED, &[], TaskState::Blocked).await?;
    let home = coordinator.home().to_owned();
    let env = [("DOCKET_HOME", home.as_os_str()), ("TERM", "xterm".as_ref())];
    let mut person = Terminal::start(&home, &env, &["shell", &run.to_string(), "--turn", "1"])?;
    let prompt = format!("{}@1 /workspace $ ", run.short());
    person.shows(&prompt).await?;
    person.keys("stty size; echo at $DOCKET_TURN; [ -t 0 ] && echo a-tty-$((40 + 2))\r")?;
    person.shows("24 80\r\n").await?;
    person.shows("at 1\r\n").await?;
    person.shows("a-tty-42").await?;
    // Ctrl-C ends what runs inside, not the shell.
    person.keys("sh -c 'echo sleeps-$((40 + 2)); exec sleep 1000'\r")?;
    person.shows("sleeps-42").await?;
    person.keys("\u{3}")?;
    person.shows(&prompt).await?;
    // Ctrl-Z stops it, and `fg` goes on with it. What it answers is not what was typed, so that neither is
    // taken for the other.
    person.keys("sh -c \"echo runs-$((40 + 3)); exec sed -u 's/x/y-/'\"\r")?;
    // What is typed while the shell reads a line is the shell's.
    person.shows("runs-43").await?;
    person.keys("x1\r")?;
    person.shows("y-1").await?;
    person.keys("\u{1a}")?;
    person.shows("Stopped").await?;
    person.keys("echo back-$((40 + 4)); fg\r")?;
    person.shows("back-44").await?;
    person.keys("x2\r")?;
    person.shows("y-2").await?;
    person.keys("\u{3}")?;
    person.shows(&prompt).await?;
    person.keys("echo mended > state.txt; exit\r")?;
    person.shows("~ state.txt").await?;
    person.shows("[r]esume").await?;
    person.keys("f\r")?;
    person.shows("goes on from turn 1").await?;
    ensure!(person.wait().await?.success(), "{}", person.all());
    let tree = coordinator.client().lineage(run).await?;
    let task = tree.runs.get(1).context("a fork")?.run.task;
    finished(&coordinator, task, TaskState::Completed).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

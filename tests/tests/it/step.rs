//! The stepper as a person has it: the real binary on a terminal of 80 columns and 24 rows, on real runs.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{SampleRepository, Signal, TestProgram, acquire_scenario_slot, run_program};
use serde_json::Value;
use tempfile::TempDir;

use crate::terminal::TestTerminal;

/// Fails its final check twice: what it writes is never good. Its words are hostile.
const FAILING: &str = r#"
[[turns]]
text = "I write it.\u001B]0;owned\u0007\u001B[2J\u202Etxt"
calls = [{ name = "create_file", args = { path = "src/work.txt", content = "bad \u001B[2J\n" } }]
[[turns]]
text = "I look at it."
calls = [
  { name = "run_command", args = { command = "seq 1 3000; cat src/work.txt" } },
  { name = "read_file", args = { path = "missing.txt" } },
]
[[turns]]
text = "It is done."
[[turns]]
text = "I change it once more."
calls = [{ name = "edit_file", args = { path = "src/work.txt", edits = [{ search = "bad", replace = "worse" }] } }]
[[turns]]
text = "It is done now."
"#;

/// The same to begin with, then otherwise, and good.
const GOOD: &str = r#"
[[turns]]
text = "I write it well."
calls = [{ name = "create_file", args = { path = "src/work.txt", content = "good\n" } }]
[[turns]]
text = "It is done."
"#;

const CHECK: &str = "if grep -q good src/work.txt; then exit 0; else echo the work is bad; exit 1; fi";

/// A home with a failed run and one that succeeded.
struct StepHome {
    folder: TempDir,
    _sample: SampleRepository,
    failed: String,
    succeeded: String,
}

impl StepHome {
    async fn new() -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("docket-home-").tempdir()?;
        let home = folder.path();
        std::fs::write(home.join("docket.toml"), "[run]\ncorrections_max = 1\n")?;
        let sample = SampleRepository::new(&[("README.md", "read me\n"), ("src/lib.txt", "old\n")])?;
        let failed = run_task(home, &sample, FAILING).await?;
        let succeeded = run_task(home, &sample, GOOD).await?;
        Ok(Self { folder, _sample: sample, failed, succeeded })
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Does a task, and gives the id of its run.
async fn run_task(home: &Path, sample: &SampleRepository, script: &str) -> Result<String> {
    let env = [("DOCKET_HOME", OsStr::new(home))];
    std::fs::write(home.join("script.toml"), script)?;
    let repo = sample.path().to_str().context("a UTF-8 path")?;
    let args = [
        "run",
        "Do it",
        "--repo",
        repo,
        "--model",
        "scripted:x",
        "--script",
        "script.toml",
        "--tests",
        CHECK,
        "--attempts",
        "1",
        "--json",
    ];
    // Whether it succeeds is what the scripts differ in.
    let done = run_program(TestProgram::Docket, home, &env, &args).await?;
    let said = done
        .stdout
        .lines()
        .last()
        .with_context(|| format!("`run --json` says something: {}", done.stderr))?;
    let row: Value = serde_json::from_str(said).with_context(|| said.to_owned())?;
    let id = row["run"].as_str().or_else(|| row["last_run"].as_str());
    Ok(id.with_context(|| format!("a run in {said}"))?.to_owned())
}

/// Whether the terminal is as it was before.
fn check_terminal_restored(terminal: &TestTerminal) -> Result<()> {
    let state = terminal.screen_state();
    ensure!(!state.alternate_screen() && !state.hide_cursor(), "the other screen, or no cursor");
    ensure!(terminal.is_cooked()?, "raw keys");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_run_opens_at_the_failure_and_can_be_stepped() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = StepHome::new().await?;
    let mut terminal = TestTerminal::open(home.path(), &[], &["step", &home.failed])?;
    let screen = terminal.wait_for_texts(&["it went wrong at turn 5", "the work is bad", "final check"])?;
    ensure!(terminal.screen_state().alternate_screen() && !terminal.is_cooked()?, "it took the terminal");
    ensure!(
        screen.contains("failed, react/1 with scripted:x") && screen.contains("view: from the log"),
        "{screen}"
    );
    ensure!(screen.lines().any(|line| line.starts_with('>') && line.contains("gate failed")), "{screen}");

    terminal.press("E")?;
    terminal.wait_for_screen("the failure before", |screen| {
        is_current_turn(screen, "3") && screen.contains("the work is bad")
    })?;
    terminal.press("E")?;
    let screen = terminal.wait_for_screen("a failed tool", |screen| {
        is_current_turn(screen, "2") && screen.contains("missing.txt")
    })?;
    ensure!(screen.contains("tool failed"), "{screen}");

    terminal.press("k2")?;
    let screen = terminal.wait_for_texts(&["I write it.", "create_file"])?;
    ensure!(screen.contains(r"I write it.\e]0;owned\u{7}\e[2J\u{202e}txt"), "{screen}");
    terminal.press("4")?;
    terminal.wait_for_texts(&["added src/work.txt", r"+bad \e[2J"])?;

    terminal.press("/2718\r")?;
    terminal.wait_for_screen("a line of an output that lies out of line", |screen| {
        is_current_turn(screen, "2") && screen.contains("2718") && screen.contains("2719")
    })?;

    terminal.press("5")?;
    let screen = terminal.wait_for_texts(&["README.md", "src/lib.txt", "src/work.txt"])?;
    ensure!(screen.contains("3 files after turn 2"), "{screen}");
    terminal.press("owork\r")?;
    terminal.wait_for_texts(&[r"bad \e[2J", "src/work.txt after turn 2"])?;
    terminal.press("]]")?;
    terminal.wait_for_texts(&[r"worse \e[2J", "src/work.txt after turn 4"])?;

    terminal.press("\u{1b}")?;
    terminal.wait_for_texts(&["3 files after turn 4"])?;
    terminal.press("1x")?;
    terminal.wait_for_texts(&["their hash matches the recorded one", "\"max_tokens\": "])?;
    terminal.press("6")?;
    terminal.wait_for_texts(&["tokens", "this turn", "up to here"])?;
    terminal.press("?")?;
    terminal.wait_for_texts(&["next, previous failure"])?;
    terminal.resize(120, 40)?;
    terminal.wait_for_texts(&["next, previous failure", "resume from this turn; asks first"])?;

    terminal.press("qq")?;
    ensure!(terminal.wait_for_end()?.success(), "q ends it well");
    check_terminal_restored(&terminal)?;
    let raw = String::from_utf8_lossy(&terminal.raw);
    for obeyed in ["\u{1b}]0;owned", "\u{202e}", "bad \u{1b}["] {
        ensure!(!raw.contains(obeyed), "the terminal was sent {obeyed:?}");
    }
    Ok(())
}

/// Whether the timeline stands at a turn.
fn is_current_turn(screen: &str, turn: &str) -> bool {
    let mark = screen.lines().find(|line| line.starts_with('>'));
    mark.and_then(|line| line.trim_start_matches(['>', '*', '=', '≠', '+']).split_whitespace().next())
        == Some(turn)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_and_runs_can_be_compared_and_resumed() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = StepHome::new().await?;
    let args = ["step", &home.failed, "--with", &home.succeeded];
    let mut terminal = TestTerminal::open(home.path(), &[], &args)?;
    terminal.wait_for_texts(&["the runs diverge at turn 1", "only one of the runs has this turn"])?;
    terminal.press("gj")?;
    // All of it is there, so that a page further is one.
    terminal.wait_for_texts(&["the model decided differently", "I write it well.", "≠", " of 21"])?;
    terminal.press(" ")?;
    terminal.wait_for_texts(&["-bad", "+good"])?;
    terminal.press("mjjjc")?;
    terminal.wait_for_texts(&["from the end of turn 1 to the end of turn 4", "-bad", "+worse"])?;

    // What goes on from here: a new run of the same task, and a new task. Each asks first.
    terminal.press("gjr")?;
    terminal.wait_for_texts(&["docket resume", "--turn 1", "y confirms"])?;
    terminal.press("n")?;
    terminal.wait_for_screen("the question is gone", |screen| !screen.contains("y confirms"))?;
    let resumed = confirm_action(&mut terminal, "r")?;
    let forked = confirm_action(&mut terminal, "f")?;
    terminal.press("q")?;
    ensure!(terminal.wait_for_end()?.success(), "q ends it well");
    let env = [("DOCKET_HOME", OsStr::new(home.path()))];
    let mut tasks = Vec::new();
    for run_id in [&home.failed, &resumed, &forked] {
        let shown = run_program(TestProgram::Docket, home.path(), &env, &["show", run_id, "--json"])
            .await?
            .into_stdout()?;
        let row: Value = serde_json::from_str(&shown)?;
        let stands_on = row["parent"].as_str() == Some(home.failed.as_str()) && row["turn"] == 1;
        ensure!(stands_on || *run_id == home.failed, "{shown}");
        tasks.push(row["task"].as_str().context("a task")?.to_owned());
    }
    ensure!(tasks[0] == tasks[1] && tasks[0] != tasks[2], "{tasks:?}");
    // The shared history is walked as its own.
    let frame = run_program(TestProgram::Docket, home.path(), &env, &["step", &resumed, "--first-frame"])
        .await?
        .into_stdout()?;
    ensure!(frame.contains("create_file") && frame.contains("the run has not ended"), "{frame}");
    Ok(())
}

/// Confirms what a key asks, and gives the run that goes on.
fn confirm_action(terminal: &mut TestTerminal, key: &str) -> Result<String> {
    terminal.press(key)?;
    terminal.wait_for_texts(&["y confirms"])?;
    terminal.press("y")?;
    let screen = terminal.wait_for_texts(&["continues after turn 1"])?;
    let said = screen.lines().last().and_then(|line| line.strip_prefix("run ")).context("a new run")?;
    // Moving takes the message away, so that the next one is not taken for this one.
    terminal.press("kj")?;
    terminal.wait_for_screen("another line", |screen| !screen.contains("continues after turn 1"))?;
    Ok(said.split(' ').next().context("its id")?.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminal_is_restored_on_every_exit() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = StepHome::new().await?;
    for signal in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
        let mut terminal = TestTerminal::open(home.path(), &[], &["step", &home.succeeded])?;
        terminal.wait_for_texts(&["TURN", "succeeded"])?;
        terminal.send_signal(signal);
        ensure!(terminal.wait_for_end()?.success(), "{signal}");
        check_terminal_restored(&terminal).with_context(|| signal.to_string())?;
    }
    let mut terminal = TestTerminal::open(home.path(), &[], &["step", &home.succeeded])?;
    terminal.wait_for_texts(&["TURN", "succeeded"])?;
    terminal.press("\u{3}")?;
    ensure!(terminal.wait_for_end()?.success(), "Ctrl-C");
    check_terminal_restored(&terminal)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn colors_are_used_only_when_wanted() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = StepHome::new().await?;
    for (env, args, wanted) in [
        (&[][..], &["step", &home.succeeded][..], true),
        (&[("NO_COLOR", "1")][..], &["step", &home.succeeded][..], false),
        (&[][..], &["step", &home.succeeded, "--color", "never"][..], false),
        (&[("NO_COLOR", "1")][..], &["step", &home.succeeded, "--color", "always"][..], true),
    ] {
        let mut terminal = TestTerminal::open(home.path(), env, args)?;
        terminal.wait_for_texts(&["TURN", "succeeded", "ok"])?;
        let state = terminal.screen_state();
        let cells = (0..24).flat_map(|row| (0..80).filter_map(move |column| state.cell(row, column)));
        let colored = cells.filter(|cell| cell.fgcolor() != vt100::Color::Default).count();
        ensure!((colored > 0) == wanted, "{env:?} {args:?}: {colored} cells have a colour");
    }
    Ok(())
}

#[tokio::test]
async fn step_without_a_terminal_names_the_alternative() -> Result<()> {
    let home = tempfile::tempdir()?;
    let env = [("DOCKET_HOME", OsStr::new(home.path()))];
    for args in [&["step", "abc"][..], &["step", "abc", "--json"][..]] {
        let done = run_program(TestProgram::Docket, home.path(), &env, args).await?;
        ensure!(done.code() == Some(2) && done.stderr.contains("docket replay RUN"), "{}", done.stderr);
    }
    Ok(())
}

/// What the bench measures is the screen that a person sees first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_frame_is_printed_without_a_terminal() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = StepHome::new().await?;
    let env = [("DOCKET_HOME", OsStr::new(home.path()))];
    let args = ["step", &home.failed, "--first-frame"];
    let frame = run_program(TestProgram::Docket, home.path(), &env, &args).await?.into_stdout()?;
    ensure!(frame.lines().count() == 24, "{frame}");
    ensure!(frame.contains("it went wrong at turn 5") && frame.contains("gate failed"), "{frame}");
    Ok(())
}

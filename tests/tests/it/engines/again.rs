//! What a person says is heard, whatever the engine and wherever the run stands: of a run that had ended well, of one that
//! failed, and while the last checks run.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    run::{RunEvent, RunOutcome},
    task::TaskState,
};
use docket_tests::{
    system::{room, seen},
    talks::{ENGINES, Makes, makes, script, talk},
};

use super::stage::{Stage, own};

/// The words by which scripts know that a person has spoken.
const PERSON: &str = "Seven is wanted";
/// What is checked at the end: `f` gives a number of one digit that is not below the one in this file.
const TESTS: &str = "test \"$(sed -n 's/.*return //p' a.py)\" -ge \"$(cat least)\"";

/// A script: `f` gives 2, and 7 once a person has spoken, which is done in this round of the team.
fn then_seven(engine: &str, round: u32) -> String {
    let then = makes(engine, Makes { from: 2, to: 7, at: PERSON, round });
    script(&[then, makes(engine, Makes { from: 1, to: 2, at: "", round: 1 })])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_goes_on_with_what_was_rejected_is_asked_with_the_persons_words() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set("").await?;
    for engine in ENGINES {
        let task = stage.submit(engine, &then_seven(engine, 2), "2", &["--tests", TESTS]).await?;
        let first = stage.ends(task, TaskState::Completed).await.context(engine)?;
        stage.gives(task, 2).await.context(engine)?;
        let docket = async |args: &[&str]| stage.coordinator.docket(args).await?.ok();
        docket(&["reject", &task.to_string(), "--comment", PERSON]).await?;
        let second = stage.ends(task, TaskState::Completed).await.context(engine)?;
        ensure!(second.events.len() > first.events.len(), "{engine}: no run went on");
        let checked = own(&second)?.iter().any(|event| matches!(event, RunEvent::GateFinished(_)));
        ensure!(checked, "{engine}: its checks did not run again: {}", second.kinds());
        stage.gives(task, 7).await.context(engine)?;
    }
    stage.end().await
}

/// A way to fail, and what is said until a person speaks.
struct Fails {
    engine: &'static str,
    /// How its run ends.
    why: &'static str,
    /// Its cap of turns.
    turns: &'static str,
    /// What is said before all else.
    first: String,
    /// The number that `f` comes to give without a person's words.
    base: u32,
    /// The one that it gives when they come, and the round of the team in which it comes to give 7 then.
    from: u32,
    round: u32,
}

impl Fails {
    /// Nobody gets to change the file before the run fails; whoever does then lets `f` give 7.
    fn early(engine: &'static str, why: &'static str, first: String) -> Self {
        Self { engine, why, turns: "30", first, base: 7, from: 1, round: 1 }
    }

    /// The file is changed, and not as it is wanted: the checks fail again and again.
    fn late(engine: &'static str, why: &'static str, first: String) -> Self {
        Self { engine, why, turns: "30", first, base: 2, from: 2, round: 4 }
    }

    fn script(&self) -> String {
        let then = makes(self.engine, Makes { from: self.from, to: 7, at: PERSON, round: self.round });
        let base = makes(self.engine, Makes { from: 1, to: self.base, at: "", round: 1 });
        script(&[then, self.first.clone(), base])
    }
}

/// Each engine with its own ways to fail, and at its cap of turns.
fn ways_to_fail() -> Vec<Fails> {
    let says = |role: &str, text: &str| talk(role, "", &[text]);
    let nothing = r#"{"actions": [{"kind": "message", "text": "done"}]}"#;
    let no_card = "!{ name = \"plan_card\", args = { summary = \"s\", steps = [], files = [] } }";
    let looks = "!{ name = \"list_files\", args = {} }";
    let seven = Makes { from: 1, to: 7, at: PERSON, round: 1 };
    let designs = talk("architect", PERSON, &[r#"{"design": "Let f give 7.", "files": []}"#]);
    let cannot = r#"{"done": false, "summary": "I cannot"}"#;
    let executes = seven.by_command("executor", PERSON, r#"{"success": true, "output": "it does"}"#);
    let codes = seven.by_command("coder", PERSON, r#"{"done": true, "summary": "it does"}"#);
    vec![
        Fails::late("react", "gates", String::new()),
        // It plans the same again and again, which cannot be done twice.
        Fails::late("plan", "plan", String::new()),
        Fails::late("review", "gates", String::new()),
        Fails::late("architect", "gates", talk("architect", "asked again", &[nothing])),
        Fails::late("team", "gates", String::new()),
        Fails::late("sop", "gates", String::new()),
        Fails::early("plan", "plan", says("planner", "I would change a.py.")),
        Fails { base: 2, ..Fails::early("review", "plan", says("executor", "It did not work.")) },
        Fails { base: 2, round: 4, ..Fails::early("team", "plan", says("coder", cannot)) },
        Fails::early("team", "plan", [designs, says("architect", "Let f give 7.")].concat()),
        Fails::early("sop", "plan", says("planner", no_card)),
        Fails::early("sop", "empty_answers", says("planner", "I would change a.py.")),
        Fails { turns: "4", ..Fails::early("react", "turn_limit", says("", looks)) },
        Fails { turns: "1", ..Fails::early("plan", "turn_limit", String::new()) },
        Fails {
            turns: "4",
            base: 2,
            ..Fails::early("review", "turn_limit", [executes, says("executor", looks)].concat())
        },
        Fails { turns: "3", ..Fails::late("architect", "turn_limit", String::new()) },
        Fails {
            turns: "8",
            base: 2,
            round: 9,
            ..Fails::early("team", "turn_limit", [codes, says("coder", looks)].concat())
        },
        Fails { turns: "6", ..Fails::early("sop", "turn_limit", says("planner", looks)) },
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_run_that_is_resumed_with_a_persons_words_hears_them_and_goes_on() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set("[run]\ncorrections_max = 2\ncorrection_turns = 0\n").await?;
    for way in ways_to_fail() {
        let name = || format!("{}: {} {:?}", way.engine, way.why, way.first);
        let flags = ["--tests", TESTS, "--turns", way.turns];
        let task = stage.submit(way.engine, &way.script(), "7", &flags).await?;
        let first = stage.ends(task, TaskState::Discarded).await.with_context(name)?;
        let Some(RunEvent::RunEnded(end)) = first.events.last() else { anyhow::bail!("{}", first.kinds()) };
        let RunOutcome::Failed { why, message } = &end.result else { anyhow::bail!("{end:?}") };
        let why = serde_json::to_value(why)?;
        ensure!(why == way.why, "{}: {why}: {message}", name());
        let args = ["resume", &task.to_string(), "--hint", PERSON].map(str::to_owned);
        stage.coordinator.docket(&args).await?.ok()?;
        stage.ends(task, TaskState::Completed).await.with_context(name)?;
        stage.gives(task, 7).await.with_context(name)?;
    }
    stage.end().await
}

/// What a run met that ended it is not met by the one that goes on from it before a model was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_run_that_is_resumed_without_words_asks_a_model_before_it_fails_again() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set("[run]\ncorrections_max = 2\ncorrection_turns = 0\n").await?;
    for way in ways_to_fail() {
        let name = || format!("{}: {} {:?}", way.engine, way.why, way.first);
        // Of whoever waits for a person's words nobody says them.
        let base = makes(way.engine, Makes { from: 1, to: way.base, at: "", round: 1 });
        let flags = ["--tests", TESTS, "--turns", way.turns];
        let task = stage.submit(way.engine, &script(&[way.first.clone(), base]), "7", &flags).await?;
        stage.ends(task, TaskState::Discarded).await.with_context(name)?;
        stage.docket(&["resume", &task.to_string()]).await?;
        let view = stage.coordinator.ended(task).await.with_context(name)?.task;
        let history = stage.coordinator.history(view.last_run.context("a run")?).await?;
        history.verify(stage.coordinator.client()).await.with_context(name)?;
        let asks = own(&history)?.iter().any(|event| matches!(event, RunEvent::ModelRequested(_)));
        ensure!(asks, "{}: {:?}; {}", name(), view.message, history.kinds());
    }
    stage.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_of_a_person_while_the_last_checks_run_are_read_before_the_end() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set("").await?;
    // The first check waits to be let on; `here` is no part of the tree.
    let waits =
        format!("[ -e here/go ] || {{ mkdir -p here; until [ -e here/go ]; do sleep 0.02; done; }}; {TESTS}");
    for engine in ENGINES {
        let task = stage.submit(engine, &then_seven(engine, 2), "2", &["--tests", &waits]).await?;
        let at = seen("a check in its middle", || {
            let mut folders = stage.worker.workspaces().into_iter().map(|folder| folder.join("here"));
            folders.find(|here| here.is_dir() && !here.join("go").exists())
        });
        let here = at.await.with_context(|| format!("{engine}: {}", stage.worker.tail()))?;
        let args = ["tell", &task.to_string(), PERSON].map(str::to_owned);
        stage.coordinator.docket(&args).await?.ok()?;
        std::fs::write(here.join("go"), "")?;
        let history = stage.ends(task, TaskState::Completed).await.context(engine)?;
        let told = history.events.iter().position(|event| matches!(event, RunEvent::Told(_)));
        let behind = &history.events[told.context("it was told")?..];
        ensure!(matches!(behind.get(1), Some(RunEvent::GateFinished(_))), "{engine}: {}", history.kinds());
        ensure!(behind.iter().any(|event| matches!(event, RunEvent::ModelRequested(_))), "{engine}");
        if engine != "sop" {
            stage.gives(task, 7).await.context(engine)?;
        }
    }
    stage.end().await
}

//! What a person says is heard, whatever the engine and wherever the run stands: of a run that had ended well, of one that
//! failed, and while the last checks run.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    run::{RunEvent, RunOutcome},
    task::TaskState,
};
use docket_tests::{
    scripted_talks::{ENGINES, FunctionChange, function_change_talks, join_talks, role_talk},
    system::{acquire_scenario_slot, poll_until},
};

use super::fixture::{EngineFixture, own_events};

/// The words by which scripts know that a person has spoken.
const PERSON: &str = "Seven is wanted";
/// What is checked at the end: `f` gives a number of one digit that is not below the one in this file.
const TESTS: &str = "test \"$(sed -n 's/.*return //p' a.py)\" -ge \"$(cat least)\"";

/// A script: `f` gives 2, and 7 once a person has spoken, which is done in this round of the team.
fn script_returning_seven(engine: &str, round: u32) -> String {
    let then = function_change_talks(engine, FunctionChange { from: 2, to: 7, at: PERSON, round });
    join_talks(&[then, function_change_talks(engine, FunctionChange { from: 1, to: 2, at: "", round: 1 })])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn continued_rejected_run_shows_the_model_the_comment() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = EngineFixture::new("").await?;
    for engine in ENGINES {
        let task =
            stage.submit_task(engine, &script_returning_seven(engine, 2), "2", &["--tests", TESTS]).await?;
        let first = stage.wait_for_verified_end(task, TaskState::Completed).await.context(engine)?;
        stage.assert_result(task, 2).await.context(engine)?;
        let docket = async |args: &[&str]| stage.coordinator.run_docket(args).await?.into_stdout();
        docket(&["reject", &task.to_string(), "--comment", PERSON]).await?;
        let second = stage.wait_for_verified_end(task, TaskState::Completed).await.context(engine)?;
        ensure!(second.events.len() > first.events.len(), "{engine}: no run went on");
        let checked = own_events(&second)?.iter().any(|event| matches!(event, RunEvent::GateFinished(_)));
        ensure!(checked, "{engine}: its checks did not run again: {}", second.format_kinds());
        stage.assert_result(task, 7).await.context(engine)?;
    }
    stage.shut_down().await
}

/// A way to fail, and what is said until a person speaks.
struct FailureScript {
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

impl FailureScript {
    /// Nobody gets to change the file before the run fails; whoever does then lets `f` give 7.
    fn fails_before_change(engine: &'static str, why: &'static str, first: String) -> Self {
        Self { engine, why, turns: "30", first, base: 7, from: 1, round: 1 }
    }

    /// The file is changed, and not as it is wanted: the checks fail again and again.
    fn fails_after_change(engine: &'static str, why: &'static str, first: String) -> Self {
        Self { engine, why, turns: "30", first, base: 2, from: 2, round: 4 }
    }

    fn build_script(&self) -> String {
        let then = function_change_talks(
            self.engine,
            FunctionChange { from: self.from, to: 7, at: PERSON, round: self.round },
        );
        let base =
            function_change_talks(self.engine, FunctionChange { from: 1, to: self.base, at: "", round: 1 });
        join_talks(&[then, self.first.clone(), base])
    }
}

/// Each engine with its own ways to fail, and at its cap of turns.
fn failure_scripts() -> Vec<FailureScript> {
    let says = |role: &str, text: &str| role_talk(role, "", &[text]);
    let nothing = r#"{"actions": [{"kind": "message", "text": "done"}]}"#;
    let no_card = "!{ name = \"plan_card\", args = { summary = \"s\", steps = [], files = [] } }";
    let looks = "!{ name = \"list_files\", args = {} }";
    let seven = FunctionChange { from: 1, to: 7, at: PERSON, round: 1 };
    let designs = role_talk("architect", PERSON, &[r#"{"design": "Let f give 7.", "files": []}"#]);
    let cannot = r#"{"done": false, "summary": "I cannot"}"#;
    let executes = seven.command_talk("executor", PERSON, r#"{"success": true, "output": "it does"}"#);
    let codes = seven.command_talk("coder", PERSON, r#"{"done": true, "summary": "it does"}"#);
    vec![
        FailureScript::fails_after_change("react", "gates", String::new()),
        // It plans the same again and again, which cannot be done twice.
        FailureScript::fails_after_change("plan", "plan", String::new()),
        FailureScript::fails_after_change("review", "gates", String::new()),
        FailureScript::fails_after_change(
            "architect",
            "gates",
            role_talk("architect", "asked again", &[nothing]),
        ),
        FailureScript::fails_after_change("team", "gates", String::new()),
        FailureScript::fails_after_change("sop", "gates", String::new()),
        FailureScript::fails_before_change("plan", "plan", says("planner", "I would change a.py.")),
        FailureScript {
            base: 2,
            ..FailureScript::fails_before_change("review", "plan", says("executor", "It did not work."))
        },
        FailureScript {
            base: 2,
            round: 4,
            ..FailureScript::fails_before_change("team", "plan", says("coder", cannot))
        },
        FailureScript::fails_before_change(
            "team",
            "plan",
            [designs, says("architect", "Let f give 7.")].concat(),
        ),
        FailureScript::fails_before_change("sop", "plan", says("planner", no_card)),
        FailureScript::fails_before_change("sop", "empty_answers", says("planner", "I would change a.py.")),
        FailureScript {
            turns: "4",
            ..FailureScript::fails_before_change("react", "turn_limit", says("", looks))
        },
        FailureScript {
            turns: "1",
            ..FailureScript::fails_before_change("plan", "turn_limit", String::new())
        },
        FailureScript {
            turns: "4",
            base: 2,
            ..FailureScript::fails_before_change(
                "review",
                "turn_limit",
                [executes, says("executor", looks)].concat(),
            )
        },
        FailureScript {
            turns: "3",
            ..FailureScript::fails_after_change("architect", "turn_limit", String::new())
        },
        FailureScript {
            turns: "8",
            base: 2,
            round: 9,
            ..FailureScript::fails_before_change("team", "turn_limit", [codes, says("coder", looks)].concat())
        },
        FailureScript {
            turns: "6",
            ..FailureScript::fails_before_change("sop", "turn_limit", says("planner", looks))
        },
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_run_resumed_with_a_message_uses_it() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = EngineFixture::new("[run]\ncorrections_max = 2\ncorrection_turns = 0\n").await?;
    for way in failure_scripts() {
        let name = || format!("{}: {} {:?}", way.engine, way.why, way.first);
        let flags = ["--tests", TESTS, "--turns", way.turns];
        let task = stage.submit_task(way.engine, &way.build_script(), "7", &flags).await?;
        let first = stage.wait_for_verified_end(task, TaskState::Discarded).await.with_context(name)?;
        let Some(RunEvent::RunEnded(end)) = first.events.last() else {
            anyhow::bail!("{}", first.format_kinds())
        };
        let RunOutcome::Failed { why, message } = &end.result else { anyhow::bail!("{end:?}") };
        let why = serde_json::to_value(why)?;
        ensure!(why == way.why, "{}: {why}: {message}", name());
        let args = ["resume", &task.to_string(), "--hint", PERSON].map(str::to_owned);
        stage.coordinator.run_docket(&args).await?.into_stdout()?;
        stage.wait_for_verified_end(task, TaskState::Completed).await.with_context(name)?;
        stage.assert_result(task, 7).await.with_context(name)?;
    }
    stage.shut_down().await
}

/// What a run met that ended it is not met by the one that goes on from it before a model was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_run_resumed_without_a_message_asks_the_model_first() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = EngineFixture::new("[run]\ncorrections_max = 2\ncorrection_turns = 0\n").await?;
    for way in failure_scripts() {
        let name = || format!("{}: {} {:?}", way.engine, way.why, way.first);
        // Of whoever waits for a person's words nobody says them.
        let base =
            function_change_talks(way.engine, FunctionChange { from: 1, to: way.base, at: "", round: 1 });
        let flags = ["--tests", TESTS, "--turns", way.turns];
        let task =
            stage.submit_task(way.engine, &join_talks(&[way.first.clone(), base]), "7", &flags).await?;
        stage.wait_for_verified_end(task, TaskState::Discarded).await.with_context(name)?;
        stage.docket_output(&["resume", &task.to_string()]).await?;
        let view = stage.coordinator.wait_until_ended(task).await.with_context(name)?.task;
        let history = stage.coordinator.run_history(view.last_run.context("a run")?).await?;
        history.verify(stage.coordinator.client()).await.with_context(name)?;
        let asks = own_events(&history)?.iter().any(|event| matches!(event, RunEvent::ModelRequested(_)));
        ensure!(asks, "{}: {:?}; {}", name(), view.message, history.format_kinds());
    }
    stage.shut_down().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn message_during_final_checks_is_read_before_the_end() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = EngineFixture::new("").await?;
    // The first check waits to be let on; `here` is no part of the tree.
    let waits =
        format!("[ -e here/go ] || {{ mkdir -p here; until [ -e here/go ]; do sleep 0.02; done; }}; {TESTS}");
    for engine in ENGINES {
        let task =
            stage.submit_task(engine, &script_returning_seven(engine, 2), "2", &["--tests", &waits]).await?;
        let at = poll_until("a check in its middle", || {
            let mut folders = stage.worker.workspaces().into_iter().map(|folder| folder.join("here"));
            folders.find(|here| here.is_dir() && !here.join("go").exists())
        });
        let here = at.await.with_context(|| format!("{engine}: {}", stage.worker.log_tail()))?;
        let args = ["tell", &task.to_string(), PERSON].map(str::to_owned);
        stage.coordinator.run_docket(&args).await?.into_stdout()?;
        std::fs::write(here.join("go"), "")?;
        let history = stage.wait_for_verified_end(task, TaskState::Completed).await.context(engine)?;
        let told = history.events.iter().position(|event| matches!(event, RunEvent::Told(_)));
        let behind = &history.events[told.context("it was told")?..];
        ensure!(
            matches!(behind.get(1), Some(RunEvent::GateFinished(_))),
            "{engine}: {}",
            history.format_kinds()
        );
        ensure!(behind.iter().any(|event| matches!(event, RunEvent::ModelRequested(_))), "{engine}");
        if engine != "sop" {
            stage.assert_result(task, 7).await.context(engine)?;
        }
    }
    stage.shut_down().await
}

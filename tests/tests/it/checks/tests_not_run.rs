//! Checks of tests that run none: there was nothing to run any more, or nothing to run it with.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::TaskView,
    run::{RunEvent, RunOutcome},
    task::{TaskBlockedReason, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    system::{SampleRepository, acquire_scenario_slot, has_program, wait_until},
};
use docket_worker::model::{ModelProvider, ScriptedModel};

use super::{CheckFixture, CheckedRun};

const TEST: &str =
    "import unittest\n\n\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.fail('a')\n";

fn failure_message(played: &CheckedRun) -> Option<String> {
    played.history.events.iter().find_map(|event| match event {
        RunEvent::RunEnded(ended) => match &ended.result {
            RunOutcome::Failed { message, .. } => Some(message.clone()),
            _ => None,
        },
        _ => None,
    })
}

/// Who removes the only test, which fails, has not made it pass.
async fn removed_failing_test_does_not_pass(house: &CheckFixture) -> Result<()> {
    let script = r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "rm test_a.py" } }]
[[turns]]
text = "Done."
[[turns]]
text = "Done, I say."
"#;
    let played = house.play_script("removed", &[("test_a.py", TEST)], script).await?;
    ensure!(played.final_checks() == ["tests failed", "tests failed"], "{:?}", played.final_checks());
    ensure!(played.asked[2].contains("this run removed the tests of: test_a.py"), "{}", played.asked[2]);
    let said = failure_message(&played);
    let wanted = "the final checks still fail after 1 round of correction: tests (no test was run)";
    ensure!(said.as_deref() == Some(wanted), "{said:?}");
    Ok(())
}

/// Of several, the rest decides; that one went is recorded. One that was moved did not go.
async fn removed_test_is_recorded_and_moved_test_is_not(house: &CheckFixture) -> Result<()> {
    let script = r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "rm test_a.py; mkdir -p more; touch more/__init__.py; mv test_b.py more/" } }]
[[turns]]
text = "Done."
"#;
    let good = TEST.replace("self.fail('a')", "pass");
    let files = [("test_a.py", TEST), ("test_b.py", good.as_str())];
    let played = house.play_script("moved", &files, script).await?;
    played.assert_succeeded()?;
    let removed: Vec<String> = played
        .history
        .events
        .iter()
        .filter_map(|event| match event {
            RunEvent::GateFinished(done) => Some(done.facts.removed_tests.iter().map(ToString::to_string)),
            _ => None,
        })
        .flatten()
        .collect();
    ensure!(removed == ["test_a.py"], "{removed:?}");
    Ok(())
}

/// A runner that the run itself put out of reach is its own to mend.
async fn runner_lost_by_the_run_is_its_own_fault(house: &CheckFixture) -> Result<()> {
    let script = r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "echo no-such-runner > test.sh" } }]
[[turns]]
text = "Done."
[[turns]]
text = "Done, I say."
"#;
    let played = house.play_script("lost", &[("test.sh", "exit 0\n")], script).await?;
    ensure!(played.final_checks() == ["tests failed", "tests failed"], "{:?}", played.final_checks());
    ensure!(
        failure_message(&played).is_some_and(|said| said.ends_with("tests (exit status 127)")),
        "{:?}",
        failure_message(&played)
    );
    Ok(())
}

/// One that never was there is a person's, who is asked at once and costs no round; after the answer the check runs
/// again.
async fn missing_runner_asks_a_person(house: &CheckFixture) -> Result<()> {
    let script = "[[turns]]\ncalls = [{ name = \"create_file\", args = { path = \"a.txt\", content = \"a\" } }]\n\
                  [[turns]]\ntext = \"Done.\"\n[[turns]]\ntext = \"Done again.\"\n";
    let server = ModelServer::start(ScriptedModel::parse(script.as_bytes())?).await?;
    let sample = SampleRepository::new(&[("test.sh", "no-such-runner\n")])?;
    let args = ["--model", "openai:template", "--queue", "never-template", "--attempts", "1"];
    let (template, spec) = sample.submit(&house.coordinator, &args).await?;
    house.coordinator.client().cancel(template, "a template").await?;
    let model = server.model_ref(ModelProvider::OpenAi, "x");
    let task = house.coordinator.submit_like(&spec, &"never".parse()?, model).await?;
    let blocked = async |checks: usize| -> Result<TaskView> {
        let rests = wait_until("a task that asks", async || {
            let view = house.coordinator.client().get_task(task).await.ok()?;
            let run = view.task.run.or(view.task.last_run)?;
            let history = house.coordinator.run_history(run).await.ok()?;
            let asks = view.task.state == TaskState::Blocked && history.count_kind("GateFinished") == checks;
            (asks || view.task.state.is_ended()).then_some(view)
        });
        rests.await.with_context(|| house.worker.log_tail())
    };
    for checks in [1usize, 2] {
        let view = blocked(checks).await?;
        let said = view.task.message.clone().unwrap_or_default();
        ensure!(view.task.blocked_why == Some(TaskBlockedReason::Person), "{:?}", view.task);
        ensure!(
            said.starts_with(
                "The result is unverified: the final check `tests` did not run: no-such-runner is not there"
            ),
            "{said}"
        );
        ensure!(server.call_count() == checks as u64 + 1, "{} calls", server.call_count());
        if checks == 1 {
            house.docket_output(&["answer", &task.to_string(), "It is installed."]).await?;
        }
    }
    house.coordinator.client().cancel(task, "enough").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_without_test_runs_verify_nothing() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let house = CheckFixture::new("[run]\ncorrections_max = 1\nplan_asks_max = 0\n").await?;
    if has_program("python3") {
        removed_failing_test_does_not_pass(&house).await?;
        removed_test_is_recorded_and_moved_test_is_not(&house).await?;
    }
    runner_lost_by_the_run_is_its_own_fault(&house).await?;
    missing_runner_asks_a_person(&house).await?;
    house.shut_down().await
}

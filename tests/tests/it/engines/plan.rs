//! `plan`: a plan, its steps, the final checks, and corrections that end.

use anyhow::{Result, ensure};
use docket_tests::scripted_talks::{STALE_PATCH, VALID_PATCH};

use super::play_engine;

const STEPS: &str = r#"
[[talks]]
role = "planner"
opening_contains = "something failed"
[[talks.turns]]
text = '{"steps": [{"kind": "edit", "path": "a.py", "text": "return 2"}]}'
[[talks]]
role = "planner"
[[talks.turns]]
text = '''PLAN'''
[[talks.turns]]
text = '''AGAIN'''
[[talks.turns]]
text = '''AGAIN'''
[[talks]]
role = "executor"
opening_contains = "could not be applied"
[[talks.turns]]
text = """RETRY"""
[[talks]]
role = "executor"
opening_contains = "The file `a.py`"
[[talks.turns]]
text = """FIRST"""
[[talks]]
role = "executor"
opening_contains = "The file `b.py`"
[[talks.turns]]
text = """
*** Begin Patch
*** Add File: b.py
+def g():
+    return 3
*** End Patch"""
"#;

const WHOLE: &str = r#"{"steps": [{"kind": "edit", "path": "a.py", "text": "return 2 from f"},
    {"kind": "edit", "path": "b.py", "text": "make g"}, {"kind": "command", "command": "grep -q g b.py"}]}"#;

fn plan_script(plan: &str, again: &str, first: &str, retry: &str) -> String {
    STEPS.replace("PLAN", plan).replace("AGAIN", again).replace("FIRST", first).replace("RETRY", retry)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_run_in_order_and_checks_at_the_end() -> Result<()> {
    docket_tests::needs!("python3");
    let played = play_engine("plan", &plan_script(WHOLE, "", VALID_PATCH, "")).await?;
    played.assert_sequence(&[
        "planner: the plan",
        "planned 3",
        "executor: step 1: a.py",
        "step 1 done",
        "executor: step 2: b.py",
        "step 2 done",
        "step 3 done",
        "check passed true",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    ensure!(played.diff.contains("+    return 2") && played.diff.contains("+++ b/b.py"), "{}", played.diff);
    ensure!(played.events.iter().filter(|event| event["kind"] == "ModelAnswered").count() == 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_plan_is_returned_a_limited_number_of_times() -> Result<()> {
    docket_tests::needs!("python3");
    let wrong = r#"{"steps": [{"kind": "dance"}]}"#;
    let played = play_engine("plan", &plan_script(wrong, WHOLE, VALID_PATCH, "")).await?;
    played.assert_sequence(&[
        "invalid \"plan\": \"steps[0]: `kind` is `dance`",
        "planned 3",
        "step 3 done",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    let played = play_engine("plan", &plan_script(wrong, "no plan at all", VALID_PATCH, "")).await?;
    ensure!(played.count_gists("invalid") == 2 && played.outcome.starts_with("plan: "), "{}", played.outcome);
    ensure!(played.outcome.contains("3 plans in a row"), "{}", played.outcome);
    played.keep_golden_log("plan-invalid").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patch_of_another_file_is_refused_and_failed_patch_is_retried() -> Result<()> {
    docket_tests::needs!("python3");
    let foreign = "*** Begin Patch\n*** Update File: tests/test_a.py\n-    assert f() == 2\n+    assert True\n*** End Patch";
    let played = play_engine("plan", &plan_script(WHOLE, "", foreign, VALID_PATCH)).await?;
    played.assert_sequence(&[
        "invalid \"patch\": \"it changes `tests/test_a.py`, and only `a.py` may be changed",
        "step 1 done",
    ])?;
    ensure!(played.outcome == "succeeded" && !played.diff.contains("test_a.py"), "{}", played.diff);
    played.keep_golden_log("plan-foreign").await?;
    let played = play_engine("plan", &plan_script(WHOLE, "", STALE_PATCH, VALID_PATCH)).await?;
    played.assert_sequence(&["\"error\"", "invalid \"patch\"", "executor: step 1: a.py", "step 1 done"])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failures_are_corrected_a_limited_number_of_times() -> Result<()> {
    docket_tests::needs!("python3");
    let command = r#"{"steps": [{"kind": "command", "command": "false"}]}"#;
    let played = play_engine("plan", &plan_script(command, "", VALID_PATCH, "")).await?;
    played.assert_sequence(&[
        "step 1 failed",
        "correcting",
        "dropped",
        "planner: correction 1",
        "planned 1",
        "step 1 done",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    played.keep_golden_log("plan-failed-command").await?;
    // A step of tests: before the edit they fail, and are what is corrected; behind it they pass.
    let tests =
        r#"{"steps": [{"kind": "tests"}, {"kind": "edit", "path": "a.py", "text": "return 2 from f"}]}"#;
    let played = play_engine("plan", &plan_script(tests, "", VALID_PATCH, "")).await?;
    played.assert_sequence(&[
        "step 1 failed",
        "correcting",
        "planner: correction 1",
        "step 1 done",
        "check passed true",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    played.keep_golden_log("plan-tests-fail").await?;
    let tests =
        r#"{"steps": [{"kind": "edit", "path": "a.py", "text": "return 2 from f"}, {"kind": "tests"}]}"#;
    let played = play_engine("plan", &plan_script(tests, "", VALID_PATCH, "")).await?;
    played.assert_sequence(&["step 1 done", "step 2 done", "check passed true"])?;
    ensure!(played.outcome == "succeeded" && played.count_gists("correcting") == 0, "{:#?}", played.gists);
    let ran = |event: &&serde_json::Value| {
        event["kind"] == "ToolRequested" && event["payload"]["tool"] == "run_tests"
    };
    ensure!(played.events.iter().filter(ran).count() == 1, "{:#?}", played.gists);
    played.keep_golden_log("plan-tests-pass").await?;
    // The checks fail, and are what is corrected.
    let message = r#"{"steps": [{"kind": "message", "text": "nothing to do"}]}"#;
    let played = play_engine("plan", &plan_script(message, "", VALID_PATCH, "")).await?;
    played.assert_sequence(&[
        "step 1 done",
        "check passed false",
        "correcting",
        "correction 1",
        "check passed true",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    played.keep_golden_log("plan-corrected").await?;
    let played = play_engine("plan", &plan_script(message, "", STALE_PATCH, STALE_PATCH)).await?;
    ensure!(played.count_gists("planner: correction") == 3, "{:#?}", played.gists);
    ensure!(
        played.outcome.starts_with("plan: ") && played.outcome.contains("after 3 corrections"),
        "{}",
        played.outcome
    );
    played.keep_golden_log("plan-exhausted").await?;
    Ok(())
}

//! `review`: planner, executor, reviewer, advance, and what they do with answers that cannot be read.

use anyhow::{Result, ensure};

use super::{play_engine, play_with_policy};

/// A planner that is asked again, and at first; an executor; a reviewer.
const TALKS: &str = r#"
[[talks]]
role = "planner"
opening_contains = "asked again"
[[talks.turns]]
text = '''AGAIN'''
[[talks]]
role = "planner"
[[talks.turns]]
text = '''FIRST'''
[[talks]]
role = "executor"
opening_contains = ": mend f"
[[talks.turns]]
calls = [ { name = "read_file", args = { path = "a.py" } } ]
[[talks.turns]]
calls = [ { name = "edit_file", args = { path = "a.py", edits = [ { search = "    return 1", replace = "    return 2" } ] } } ]
[[talks.turns]]
text = '{"success": true, "output": "f returns 2"}'
[[talks]]
role = "executor"
opening_contains = ": fail"
[[talks.turns]]
text = 'I could not.'
[[talks]]
role = "executor"
[[talks.turns]]
calls = [ { name = "list_files", args = {} } ]
[[talks.turns]]
text = '{"success": true, "output": "looked"}'
[[talks]]
role = "reviewer"
opening_contains = "f returns 2"
[[talks.turns]]
text = '{"verdict": "finish", "reason": "the goal is reached"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '''VERDICT'''
"#;

const GOES_ON: &str = r#"{"verdict": "continue", "reason": "good"}"#;

fn review_script(first: &str, again: &str, verdict: &str) -> String {
    TALKS.replace("FIRST", first).replace("AGAIN", again).replace("VERDICT", verdict)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_is_executed_and_reviewed_step_by_step() -> Result<()> {
    docket_tests::needs!("python3");
    let played = play_engine("review", &review_script(r#"["look around", "mend f"]"#, "[]", GOES_ON)).await?;
    played.assert_sequence(&[
        "planner: plan 1",
        "planned 2",
        "executor: plan 1, step 1 of 2",
        "step 1 done",
        "reviewer: plan 1, step 1 of 2",
        "verdict continue",
        "executor: plan 1, step 2 of 2",
        "step 2 done",
        "verdict finish",
        "check passed true",
    ])?;
    ensure!(played.outcome == "succeeded" && played.diff.contains("+    return 2"), "{}", played.outcome);
    // The first judges what only looked; the second sees what was changed, line by line.
    let (first, second) = (played.role_opening("reviewer", 0)?, played.role_opening("reviewer", 1)?);
    ensure!(
        !first.contains("return 2") && second.contains("-    return 1\n+    return 2"),
        "{first}\n{second}"
    );
    played.keep_golden_log("review-2").await?;
    Ok(())
}

/// What policy hides from everybody it hides from the reviewer, too: of that it reads the name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reviewer_sees_only_what_policy_allows() -> Result<()> {
    docket_tests::needs!("python3");
    const RULES: &str = r#"
default = "allow"
[[rules]]
id = "kept"
verdict = "deny"
tools = ["read_file"]
paths = ["kept.txt"]
"#;
    let script = review_script(r#"["look around", "mend f"]"#, "[]", GOES_ON).replace(
        "calls = [ { name = \"list_files\", args = {} } ]",
        "calls = [ { name = \"run_command\", args = { command = \"python3 -c \\\"open('kept.txt', 'w').write('hush' * 2)\\\"\" } } ]",
    );
    let played = play_with_policy("review", &script, RULES).await?;
    ensure!(played.outcome == "succeeded" && played.diff.contains("hushhush"), "{:#?}", played.gists);
    let opening = played.role_opening("reviewer", 1)?;
    ensure!(opening.contains("kept.txt") && !opening.contains("hushhush"), "{opening}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_step_skips_the_reviewer() -> Result<()> {
    docket_tests::needs!("python3");
    // What is no array is one step as it stands; what is no JSON of the executor's is a failure.
    let played = play_engine("review", &review_script("Your step: fail", r#"["mend f"]"#, GOES_ON)).await?;
    played.assert_sequence(&[
        "planned 1",
        "step 1 failed",
        "dropped: \"step 1 failed",
        "planner: plan 2",
        "step 1 done",
        "verdict finish",
    ])?;
    ensure!(played.count_gists("reviewer:") == 1 && played.outcome == "succeeded", "{:#?}", played.gists);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_verdict_means_retry_and_exhausted_plan_is_replaced() -> Result<()> {
    docket_tests::needs!("python3");
    for (verdict, told, name) in [
        ("Looks fine to me.", "verdict retry", "review-2-retry"),
        (r#"{"verdict": "replan", "reason": "no"}"#, "verdict replan", "review-2-replan"),
        (GOES_ON, "dropped: \"all its steps are done", "review-2-plan-used-up"),
    ] {
        let played =
            play_engine("review", &review_script(r#"["look around"]"#, r#"["mend f"]"#, verdict)).await?;
        played.assert_sequence(&["step 1 done", told, "planner: plan 2", "step 1 done", "verdict finish"])?;
        ensure!(played.outcome == "succeeded", "{}", played.outcome);
        played.keep_golden_log(name).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_plan_ends_the_run_and_plans_are_limited_to_ten() -> Result<()> {
    docket_tests::needs!("python3");
    let played = play_engine("review", &review_script("[]", r#"["mend f"]"#, GOES_ON)).await?;
    played.assert_sequence(&[
        "planned 0",
        "check passed false",
        "dropped: \"the final checks failed",
        "planner: plan 2",
        "check passed true",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    played.keep_golden_log("review-2-checks-fail").await?;
    let played = play_engine("review", &review_script("Your step: fail", "Your step: fail", GOES_ON)).await?;
    ensure!(played.count_gists("planner:") == 10, "{:#?}", played.gists);
    ensure!(
        played.outcome.starts_with("plan: ") && played.outcome.contains("10 times"),
        "{}",
        played.outcome
    );
    played.keep_golden_log("review-2-ten-plans").await?;
    Ok(())
}

/// A plan that no request can quote is not one without steps, which would end the work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_long_plan_is_requested_again() -> Result<()> {
    docket_tests::needs!("python3");
    let long = format!(
        "[[talks]]\nrole = \"planner\"\n[[talks.turns]]\ntext = '{}'\n[[talks.turns]]\ntext = '[\"mend f\"]'\n",
        "Look, then mend. ".repeat(4100)
    );
    let played = play_engine("review", &format!("{long}{}", review_script("[]", "[]", GOES_ON))).await?;
    played.assert_sequence(&["invalid \"plan\"", "planned 1", "step 1 done", "verdict finish"])?;
    let problem = played.gists.iter().find(|gist| gist.starts_with("invalid")).map_or("", String::as_str);
    ensure!(
        problem.contains("65536 bytes") && played.count_gists("planner:") == 1,
        "{problem}: {:#?}",
        played.gists
    );
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_have_only_their_own_tools() -> Result<()> {
    docket_tests::needs!("python3");
    let calls = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [ { name = "run_command", args = { command = "touch evil" } } ]
[[talks.turns]]
text = '["mend f"]'
"#;
    let played = play_engine("review", &format!("{calls}{}", review_script("[]", "[]", GOES_ON))).await?;
    played.assert_sequence(&["planner: plan 1", "\"refused\"", "planned 1", "verdict finish"])?;
    let denied = |event: &&serde_json::Value| {
        event["kind"] == "ToolRequested" && event["payload"]["policy"]["rule"] == "role"
    };
    ensure!(played.events.iter().filter(denied).count() == 1 && !played.diff.contains("evil"));
    Ok(())
}

//! A model that ignores the rules is stopped by the runtime, with an event and a reason, whatever the engine. Here are the
//! cases that no other test has; this is where all of them are:
//!
//! | what a model does | react | plan | review | architect | team | sop |
//! |---|---|---|---|---|---|---|
//! | writes or runs where it is to plan or to judge | – (one conversation) | [`plan_planner_cannot_write`] | `review::roles_have_only_their_own_tools` | `architect::architect_reads_and_writes_nothing` | `team::tester_writes_only_tests_and_readers_write_nothing` | `sop::builder_tools_need_a_plan_and_early_completion_is_refused`, `sop::trivial_change_is_self_reviewed_read_only` |
//! | changes a file that is not its own | – (any is) | `plan::patch_of_another_file_is_refused_and_failed_patch_is_retried` | – | `architect::patch_of_another_file_is_refused_and_recorded` | `team::a_tester_writes_…` by tools, `team::tester_command_changes_outside_tests_are_reverted` by commands | – |
//! | ends where it may not | [`react_false_test_claim_is_caught_by_checks`] | – (no word of a model's ends it) | – | – | `team::sent_back_work_is_not_finished_and_rounds_are_limited_to_three` | `sop::plain_text_ends_no_phase_and_fails_the_run_eventually` |
//! | sends plans that cannot be taken, again and again | – (no plan) | `plan::invalid_plan_is_returned_a_limited_number_of_times` | `review::empty_plan_ends_the_run_and_plans_are_limited_to_ten` (each is one step) | `architect::invalid_plan_is_returned_once_and_then_asks_a_person` | `team::answer_violating_its_schema_is_returned_and_three_fail_the_run` | `sop::invalid_plan_is_returned_a_limited_number_of_times` |
//! | claims that tests passed that did not run | [`react_false_test_claim_is_caught_by_checks`] | [`plan_false_test_claim_is_caught_by_checks`] | [`review_false_test_claim_is_caught_by_checks`] | [`architect_false_test_claim_is_caught_by_checks`] | `team::tester_claims_must_match_observed_results` | `sop::model_claims_about_tests_are_ignored` |

use anyhow::{Context as _, Result, ensure};
use docket_tests::{
    scripted_talks::{FunctionChange, function_change_talks, join_talks, role_talk},
    system::{TestProgram, run_program},
};

use super::{play_engine, play_on_files};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_planner_cannot_write() -> Result<()> {
    docket_tests::needs!("python3");
    let writes = "!{ name = \"create_file\", args = { path = \"evil.py\", content = \"x = 1\\n\" } }, \
                  { name = \"run_command\", args = { command = \"touch evil\" } }";
    let steps = r#"{"steps": [{"kind": "edit", "path": "a.py", "text": "let f give 2"}]}"#;
    let talks = [
        role_talk("planner", "", &[writes, steps]),
        function_change_talks("plan", FunctionChange { from: 1, to: 2, at: "", round: 1 }),
    ];
    let played = play_engine("plan", &join_talks(&talks)).await?;
    played.assert_sequence(&[
        "planner: the plan",
        "\"refused\"",
        "\"refused\"",
        "planned 1",
        "step 1 done",
    ])?;
    let refused = played.events.iter().filter(|event| event["payload"]["policy"]["rule"] == "role");
    let reasons: Vec<String> =
        refused.map(|event| event["payload"]["policy"]["reason"].to_string()).collect();
    ensure!(
        reasons.len() == 2 && reasons.iter().all(|why| why.contains("the role `planner` has no tools")),
        "{reasons:?}"
    );
    ensure!(
        played.outcome == "succeeded" && !played.diff.contains("evil"),
        "{}: {}",
        played.outcome,
        played.diff
    );
    Ok(())
}

/// Whatever is claimed, nothing is done: the checks are what counts, in each round, and the last one ends the run.
async fn check_false_claims(engine: &str, talks: &[String], rounds: usize, outcome: &str) -> Result<()> {
    let played = play_engine(engine, &join_talks(talks)).await?;
    ensure!(played.count_gists("check passed true") == 0, "{:#?}", played.gists);
    ensure!(played.count_gists("check passed false") == rounds, "{:#?}", played.gists);
    ensure!(
        played.outcome.starts_with(outcome) && played.outcome.contains("the final checks"),
        "{}",
        played.outcome
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn react_false_test_claim_is_caught_by_checks() -> Result<()> {
    docket_tests::needs!("python3");
    let says = ["!{ name = \"list_files\", args = {} }", "I ran all tests, and all of them passed."];
    check_false_claims("react", &[role_talk("", "", &says)], 4, "gates: ").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_false_test_claim_is_caught_by_checks() -> Result<()> {
    docket_tests::needs!("python3");
    let says = r#"{"steps": [{"kind": "message", "text": "I ran all tests, and all of them passed"}]}"#;
    check_false_claims("plan", &[role_talk("planner", "", &[says])], 4, "").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn review_false_test_claim_is_caught_by_checks() -> Result<()> {
    docket_tests::needs!("python3");
    let talks = [
        role_talk("planner", "", &[r#"["mend f"]"#]),
        role_talk("executor", "", &[r#"{"success": true, "output": "all tests passed"}"#]),
        role_talk("reviewer", "", &[r#"{"verdict": "finish", "reason": "all tests passed"}"#]),
    ];
    check_false_claims("review", &talks, 4, "gates: ").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn architect_false_test_claim_is_caught_by_checks() -> Result<()> {
    docket_tests::needs!("python3");
    let talks = [
        role_talk("architect", "", &[r#"{"actions": [{"kind": "message", "text": "all tests passed"}]}"#]),
        role_talk("verifier", "", &[r#"{"verdict": "accept", "reason": "all tests passed"}"#]),
    ];
    check_false_claims("architect", &talks, 3, "gates: ").await
}

/// Where nothing can say whether the work is right, the log says that nothing did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unverified_success_is_recorded_as_unverified() -> Result<()> {
    let plan = "[[talks]]\nrole = \"planner\"\n[[talks.turns]]\n\
                text = '{\"steps\": [{\"kind\": \"message\", \"text\": \"nothing to do\"}]}'\n";
    let react = "[[turns]]\ncalls = [{ name = \"create_file\", args = { path = \"made.txt\", content = \"x\" } }]\n\
                 [[turns]]\ntext = \"Done.\"\n";
    for (engine, script) in [("react", react), ("plan", plan)] {
        for (flags, unverified) in [(&[][..], true), (&["--tests", "true"], false)] {
            let played =
                play_on_files(&[("note.txt", "one\n")], script, &[&["--engine", engine], flags].concat())
                    .await?;
            let end = played.events.iter().find(|event| event["kind"] == "RunEnded").context("an end")?;
            ensure!(played.outcome == "succeeded", "{}", played.outcome);
            let why = end["payload"]["unverified"]["reason"].as_str();
            ensure!(why == unverified.then_some("there are no checks"), "{engine}: {end}");
            let env = [("DOCKET_HOME", played.home.path().as_os_str())];
            for command in ["logs", "follow"] {
                let args = [command, played.run.as_str()];
                let told =
                    run_program(TestProgram::Docket, played.home.path(), &env, &args).await?.into_stdout()?;
                ensure!(told.contains("unverified: there are no checks") == unverified, "{command}: {told}");
            }
        }
    }
    Ok(())
}

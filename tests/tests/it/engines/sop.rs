//! `sop`: phases, modes, artifacts, gates, and the one way to end.

use anyhow::{Context as _, Result, ensure};
use docket_schema::artifact::{DiffCard, PlanCard, ReviewReport, TestReport, TestStatus};
use docket_tests::system::{TestProgram, run_program};
use serde_json::Value;

use super::{EngineRun, FILES, play_engine, play_on_files};

/// A planner that reads and plans; a builder that mends `f`, adds a file and hands in why; a reviewer; the end.
const HAPPY: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [{ name = "read_file", args = { path = "a.py" } }]
[[talks.turns]]
calls = [{ name = "plan_card", args = { summary = "f returns 1", steps = ["return 2", "add g"], files = ["a.py", "b.py"] } }]
[[talks]]
role = "builder"
[[talks.turns]]
calls = [
  { name = "read_file", args = { path = "a.py" } },
  { name = "edit_file", args = { path = "a.py", edits = [{ search = "    return 1", replace = "    return 2" }] } },
  { name = "create_file", args = { path = "b.py", content = "def g():\n    return 3\n" } },
]
[[talks.turns]]
calls = [{ name = "diff_card", args = { rationale = "f was off by one" } }]
[[talks]]
role = "reviewer"
[[talks.turns]]
calls = [{ name = "review_report", args = { risks = ["g is tested nowhere"], recommendations = ["test g"] } }]
[[talks.turns]]
calls = [{ name = "complete_task", args = { summary = "f returns 2" } }]
"#;

const PLANS: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [{ name = "plan_card", args = { summary = "f returns 1", steps = ["return 2"], files = ["a.py"] } }]
"#;

/// The builder mends `f`, and its next turns follow.
const MENDS: &str = r#"
[[talks]]
role = "builder"
[[talks.turns]]
calls = [
  { name = "read_file", args = { path = "a.py" } },
  { name = "edit_file", args = { path = "a.py", edits = [{ search = "    return 1", replace = "    return 2" }] } },
]
"#;

const HANDS_IN: &str = r#"
[[talks.turns]]
calls = [{ name = "diff_card", args = { rationale = "f was off by one" } }]
"#;

const REPORTS: &str = r#"
[[talks.turns]]
calls = [{ name = "review_report", args = { risks = ["none: one constant"], recommendations = [] } }]
"#;

const COMPLETES: &str = r#"
[[talks.turns]]
calls = [{ name = "complete_task", args = { summary = "f returns 2" } }]
"#;

fn text_turn(words: &str) -> String {
    format!("[[talks.turns]]\ntext = '''{words}'''\n")
}

impl EngineRun {
    /// The last artifact of this name, read strictly: nothing may be missing, and nothing else be there.
    fn last_artifact<T: serde::de::DeserializeOwned>(&self, name: &str) -> Result<T> {
        let of = |fact: &&Value| fact["fact"] == "artifact" && fact["name"] == name;
        let facts = self.events.iter().filter(|event| event["kind"] == "Concluded");
        let mut facts = facts.filter_map(|event| event["payload"]["facts"].as_array()).flatten().rev();
        let last = facts.find(of).with_context(|| format!("no {name}: {:#?}", self.gists))?;
        Ok(serde_json::from_value(last["content"].clone())?)
    }

    fn events_of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |event| event["kind"] == kind).map(|event| &event["payload"])
    }

    /// What was refused by the rule `mode`: the tool, and why.
    fn mode_refusals(&self) -> Vec<(String, String)> {
        let by_mode = self.events_of_kind("ToolRequested").filter(|asked| asked["policy"]["rule"] == "mode");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        by_mode.map(|asked| (text(&asked["tool"]), text(&asked["policy"]["reason"]))).collect()
    }

    fn count_nudges(&self, words: &str) -> usize {
        let nudge = |asked: &&Value| asked["nudge"].as_str().is_some_and(|nudge| nudge.contains(words));
        self.events_of_kind("ModelRequested").filter(nudge).count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_phase_leaves_its_artifact_and_every_gate_is_recorded() -> Result<()> {
    docket_tests::needs!("python3");
    let played = play_engine("sop", HAPPY).await?;
    played.assert_sequence(&[
        "phase understand",
        "phase plan",
        "planner: the plan",
        "planned 2",
        "artifact PlanCard",
        "phase implement",
        "builder: the change",
        "artifact DiffCard",
        "gate tests_exist passed",
        "phase verify",
        "check passed true",
        "artifact TestReport",
        "gate tests_pass passed",
        "phase review",
        "reviewer: review 1",
        "artifact ReviewReport",
        "gate risk_reported passed",
        "phase complete",
    ])?;
    ensure!(played.outcome == "succeeded" && played.mode_refusals().is_empty(), "{}", played.outcome);
    ensure!(played.diff.contains("+    return 2") && played.diff.contains("+++ b/b.py"), "{}", played.diff);

    let plan: PlanCard = played.last_artifact("PlanCard")?;
    ensure!(plan.steps == ["return 2", "add g"] && plan.files.len() == 2, "{plan:?}");
    // Figures are the runtime's: the model gave no more than a reason.
    let card: DiffCard = played.last_artifact("DiffCard")?;
    let files: Vec<_> =
        card.files.iter().map(|file| (file.path.to_string(), file.added, file.removed)).collect();
    ensure!(files == [("a.py".to_owned(), 1, 1), ("b.py".to_owned(), 2, 0)], "{card:?}");
    ensure!(card.hunks.len() == 2 && card.rationale == "f was off by one", "{card:?}");
    let report: TestReport = played.last_artifact("TestReport")?;
    let of_tests = |gate: &&Value| gate["call"] == serde_json::json!(report.call);
    let finished =
        played.events_of_kind("GateFinished").find(of_tests).context("the check that it was read from")?;
    ensure!(report.status == TestStatus::Passed && report.command.contains("a.f() == 2"), "{report:?}");
    ensure!(finished["duration_ms"].as_u64().unwrap_or_default() == report.duration_ms, "{finished}");
    let review: ReviewReport = played.last_artifact("ReviewReport")?;
    ensure!(review.risks == ["g is tested nowhere"] && review.must_change.is_empty(), "{review:?}");
    let end = played.events_of_kind("RunEnded").next().context("an end")?;
    ensure!(end["summary"].to_string().contains("f returns 2"), "{end}");

    // What the planner was given: how the workspace stands, who uses whom, what was changed last.
    let survey = played
        .events_of_kind("ToolFinished")
        .find(|done| done["call"] == "r0")
        .context("the survey")?
        .to_string();
    for words in ["3 files in 2 folders", "tests/test_a.py uses a.py", " start\\nA\\ta.py"] {
        ensure!(survey.contains(words), "{words}: {survey}");
    }
    check_views(&played).await?;
    check_metrics(&played).await
}

async fn docket_output(played: &EngineRun, args: &[&str]) -> Result<String> {
    let env = [("DOCKET_HOME", played.home.path().as_os_str())];
    run_program(TestProgram::Docket, played.home.path(), &env, args).await?.into_stdout()
}

async fn check_views(played: &EngineRun) -> Result<()> {
    let row: Value = serde_json::from_str(&docket_output(played, &["show", &played.run, "--json"]).await?)?;
    let work = &row["work"];
    let card: DiffCard = serde_json::from_value(work["artifacts"]["DiffCard"].clone())?;
    ensure!(
        card == played.last_artifact("DiffCard")?
            && work["artifacts"].as_object().map_or(0, |all| all.len()) == 4
    );
    ensure!(work["quality_gates"]["tests_pass"]["verdict"] == "passed", "{work}");
    ensure!(work["procedure_phase"] == "complete", "{work}");
    let text = docket_output(played, &["show", &played.run]).await?;
    for words in
        ["PlanCard  2 steps, 2 files: f returns 1", "DiffCard  a.py +1 -1, b.py +2 -0", "tests_exist  passed"]
    {
        ensure!(text.contains(words), "{words}: {text}");
    }
    let log = docket_output(played, &["logs", &played.run]).await?;
    ensure!(log.contains("quality gate risk_reported: passed: 1 risk is told"), "{log}");
    Ok(())
}

async fn check_metrics(played: &EngineRun) -> Result<()> {
    let report: Value =
        serde_json::from_str(&docket_output(played, &["metrics", "--scripted", "--json"]).await?)?;
    let of = |name: &str| report["all"].as_array()?.iter().find(|view| view["metric"] == name);
    let is = |name: &str, ratio: (u64, u64)| {
        let found = of(name).map(|view| view["ratio"].clone());
        ensure!(found == Some(serde_json::json!({ "of": ratio.0, "all": ratio.1 })), "{name}: {report}");
        Ok(())
    };
    is("artifact_completeness", (4, 4))?;
    is("patch_apply_rate", (2, 2))?;
    is("policy_denial_rate", (0, 1))?;
    ensure!(of("time_to_plan_s").is_some_and(|view| view["ratio"]["all"] == 1), "{report}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trivial_change_is_self_reviewed_read_only() -> Result<()> {
    docket_tests::needs!("python3");
    let edits = r#"
[[talks.turns]]
calls = [{ name = "edit_file", args = { path = "a.py", edits = [{ search = "    return 2", replace = "    return 7" }] } }]
"#;
    let script = [PLANS, MENDS, HANDS_IN, edits, REPORTS, COMPLETES].concat();
    let played = play_engine("sop", &script).await?;
    played.assert_sequence(&[
        "gate tests_pass passed",
        "phase review",
        "\"refused\"",
        "gate risk_reported passed",
        "phase complete",
    ])?;
    ensure!(played.outcome == "succeeded" && played.count_gists("reviewer:") == 0, "{:#?}", played.gists);
    let refused = played.mode_refusals();
    ensure!(refused.len() == 1 && refused[0].1.contains("review mode only reads"), "{refused:?}");
    ensure!(played.diff.contains("+    return 2") && !played.diff.contains("return 7"), "{}", played.diff);
    played.keep_golden_log("sop-review-only-reads").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn builder_tools_need_a_plan_and_early_completion_is_refused() -> Result<()> {
    docket_tests::needs!("python3");
    let early = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [
  { name = "create_file", args = { path = "evil.py", content = "x = 1\n" } },
  { name = "run_command", args = { command = "touch evil" } },
  { name = "complete_task", args = { summary = "done" } },
]
[[talks.turns]]
calls = [{ name = "plan_card", args = { summary = "f returns 1", steps = ["return 2"], files = ["a.py"] } }]
"#;
    let hasty = r#"
[[talks.turns]]
calls = [{ name = "complete_task", args = { summary = "done" } }]
"#;
    let script = [early, MENDS, hasty, HANDS_IN, REPORTS, COMPLETES].concat();
    let played = play_engine("sop", &script).await?;
    let refused = played.mode_refusals();
    let tools: Vec<&str> = refused.iter().map(|(tool, _)| tool.as_str()).collect();
    ensure!(tools == ["create_file", "run_command", "complete_task", "complete_task"], "{refused:?}");
    for (at, words) in
        [(0, "there is no PlanCard yet"), (2, "ends by `plan_card`"), (3, "ends by `diff_card`")]
    {
        ensure!(refused[at].1.contains(words), "{words}: {refused:?}");
    }
    // Recorded as refused, and nothing came of it.
    ensure!(played.events_of_kind("ToolFinished").filter(|done| done["status"] == "refused").count() == 4);
    ensure!(played.outcome == "succeeded" && !played.diff.contains("evil"), "{}", played.diff);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plain_text_ends_no_phase_and_fails_the_run_eventually() -> Result<()> {
    docket_tests::needs!("python3");
    let script = [
        PLANS,
        MENDS,
        HANDS_IN,
        REPORTS,
        &text_turn("All is done."),
        &text_turn("Really."),
        &text_turn("Bye."),
    ]
    .concat();
    let played = play_engine("sop", &script).await?;
    ensure!(played.outcome.starts_with("empty_answers: "), "{}", played.outcome);
    ensure!(played.outcome.contains("`complete_task` alone"), "{}", played.outcome);
    ensure!(played.count_nudges("words end nothing here") == 2, "{:#?}", played.gists);
    played.keep_golden_log("sop-words-end-nothing").await?;
    // Who says so once is asked again, and may end well; who is blocked asks a person.
    let script = [PLANS, MENDS, &text_turn("I changed f."), HANDS_IN, REPORTS, COMPLETES].concat();
    let played = play_engine("sop", &script).await?;
    ensure!(
        played.outcome == "succeeded" && played.count_nudges("end it by `diff_card`") == 1,
        "{}",
        played.outcome
    );
    let script = [PLANS, MENDS, &text_turn("BLOCKED: Which f is meant?")].concat();
    let played = play_engine("sop", &script).await?;
    ensure!(played.outcome == "blocked: {\"text\":\"Which f is meant?\"}", "{}", played.outcome);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_claims_about_tests_are_ignored() -> Result<()> {
    docket_tests::needs!("python3");
    let claims = r#"
[[talks]]
role = "builder"
[[talks.turns]]
calls = [
  { name = "read_file", args = { path = "a.py" } },
  { name = "edit_file", args = { path = "a.py", edits = [{ search = "    return 1", replace = "    return 5" }] } },
  { name = "diff_card", args = { rationale = "I ran all tests, and all of them passed" } },
]
"#;
    let mends = r#"
[[talks.turns]]
calls = [{ name = "edit_file", args = { path = "a.py", edits = [{ search = "    return 5", replace = "    return 2" }] } }]
"#;
    let played = play_engine("sop", &[PLANS, claims, mends, HANDS_IN, REPORTS, COMPLETES].concat()).await?;
    played.assert_sequence(&[
        "gate tests_exist passed",
        "check passed false",
        "artifact TestReport",
        "phase implement",
        "gate tests_pass failed: The final checks failed: tests",
        "check passed true",
        "gate tests_pass passed",
    ])?;
    ensure!(played.outcome == "succeeded" && played.count_nudges("Mend that, then call `diff_card`") == 1);
    let facts =
        played.events_of_kind("Concluded").filter_map(|concluded| concluded["facts"].as_array()).flatten();
    let reports: Vec<&Value> =
        facts.filter(|fact| fact["name"] == "TestReport").map(|fact| &fact["content"]["status"]).collect();
    ensure!(reports == ["failed", "passed"], "{reports:?}");
    // Who never mends it is stopped, with the report that says why.
    let stays = [claims, HANDS_IN, HANDS_IN, HANDS_IN].concat();
    let played = play_engine("sop", &[PLANS, &stays].concat()).await?;
    ensure!(played.outcome.starts_with("gates: "), "{}", played.outcome);
    let report: TestReport = played.last_artifact("TestReport")?;
    ensure!(
        report.status == TestStatus::Failed && played.count_gists("gate tests_pass failed") == 4,
        "{report:?}"
    );
    played.keep_golden_log("sop-tests-never-pass").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_plan_is_returned_a_limited_number_of_times() -> Result<()> {
    docket_tests::needs!("python3");
    let wrong = "[[talks.turns]]\ncalls = [{ name = \"plan_card\", args = { summary = \"s\", steps = [], files = [] } }]\n";
    let begins = "[[talks]]\nrole = \"planner\"\n";
    let right = PLANS.split_once(begins).context("a planner")?.1;
    let script = [begins, wrong, right, MENDS, HANDS_IN, REPORTS, COMPLETES].concat();
    let played = play_engine("sop", &script).await?;
    played.assert_sequence(&["invalid \"PlanCard\": ", "artifact PlanCard"])?;
    ensure!(
        played.outcome == "succeeded" && played.count_nudges("`steps` needs at least 1") == 1,
        "{}",
        played.outcome
    );
    let played = play_engine("sop", &[begins, wrong, wrong, wrong].concat()).await?;
    ensure!(played.count_gists("invalid") == 2 && played.outcome.starts_with("plan: "), "{}", played.outcome);
    ensure!(played.outcome.contains("3 times in a row no PlanCard"), "{}", played.outcome);
    ensure!(played.diff.is_empty() && played.count_gists("phase implement") == 0, "{:#?}", played.gists);
    played.keep_golden_log("sop-plans-used-up").await?;
    Ok(())
}

const TESTED: [&str; 4] = ["--engine", "sop", "--tests", "python3 -c 'import a; assert a.f() == 2'"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_leaves_one_last_turn_and_keeps_the_work() -> Result<()> {
    docket_tests::needs!("python3");
    let last = r#"
[[talks.turns]]
calls = [
  { name = "edit_file", args = { path = "a.py", edits = [{ search = "    return 2", replace = "    return 9" }] } },
  { name = "complete_task", args = { summary = "f returns 2; nothing is checked yet" } },
]
"#;
    let flags = [&TESTED[..], &["--turns", "3"]].concat();
    let played = play_on_files(&FILES, &[PLANS, MENDS, last].concat(), &flags).await?;
    played.assert_sequence(&[
        "phase implement",
        "last turn: \"the cap of 3 turns is reached in phase `implement`\"",
        "phase complete",
    ])?;
    let refused = played.mode_refusals();
    ensure!(
        refused.len() == 1 && refused[0].1 == "this is the last turn: only `complete_task` may be called"
    );
    ensure!(played.count_nudges("This is your last turn") == 1, "{:#?}", played.gists);
    ensure!(
        played.outcome.starts_with("turn_limit: ") && played.outcome.contains("1 path is changed"),
        "{}",
        played.outcome
    );
    let end = played.events_of_kind("RunEnded").next().context("an end")?;
    ensure!(end["summary"].to_string().contains("nothing is checked yet"), "{end}");
    ensure!(played.diff.contains("+    return 2") && !played.diff.contains("return 9"), "{}", played.diff);
    let card: DiffCard = played.last_artifact("DiffCard")?;
    ensure!(card.files.len() == 1 && card.rationale.contains("nothing is checked yet"), "{card:?}");

    // Who does not even that ends likewise, in its planning as well.
    let played =
        play_on_files(&FILES, &[PLANS, MENDS, &text_turn("Just a moment.")].concat(), &flags).await?;
    ensure!(played.outcome.contains("its last turn did not call `complete_task`"), "{}", played.outcome);
    played.keep_golden_log("sop-last-turn-silent").await?;
    // Whatever was said before, the turn is told to be the last.
    const BUILDS: &str = "[[talks]]\nrole = \"builder\"\n";
    for before in [text_turn("Hm."), text_turn("")] {
        let played = play_on_files(&FILES, &[PLANS, BUILDS, &before, COMPLETES].concat(), &flags).await?;
        ensure!(
            played.count_nudges("This is your last turn: the cap of 3 turns") == 1,
            "{:#?}",
            played.gists
        );
        ensure!(played.count_nudges("words end nothing here") == 0, "{:#?}", played.gists);
        ensure!(played.outcome.starts_with("turn_limit: "), "{}", played.outcome);
    }
    // What cannot be taken is told as that.
    let hollow = "[[talks.turns]]\ncalls = [{ name = \"complete_task\", args = {} }]\n";
    let hollow = play_on_files(&FILES, &[PLANS, MENDS, hollow].concat(), &flags).await?;
    let told = "its last turn called `complete_task` with what could not be taken: ";
    ensure!(hollow.outcome.contains(told) && hollow.outcome.contains("`summary`"), "{}", hollow.outcome);
    hollow.keep_golden_log("sop-last-turn-hollow").await?;
    ensure!(
        played.diff.contains("+    return 2") && played.events_of_kind("ModelAnswered").count() == 3,
        "{}",
        played.diff
    );
    let played = play_on_files(&FILES, PLANS, &[&TESTED[..], &["--turns", "1"]].concat()).await?;
    ensure!(
        played.outcome.contains("in phase `plan`") && played.mode_refusals().len() == 1,
        "{}",
        played.outcome
    );

    // A budget is met the same way: it pays for these two turns and one more, not for two more.
    let first =
        play_on_files(&FILES, &[PLANS, MENDS, HANDS_IN, REPORTS, COMPLETES].concat(), &TESTED).await?;
    // By the rule for what no model has counted yet a token has three bytes; the last answer has 1024 tokens.
    let asked: Vec<u64> =
        first.events_of_kind("ModelRequested").filter_map(|asked| asked["request_bytes"].as_u64()).collect();
    let planned = first.events_of_kind("ModelAnswered").next().map(answer_tokens).context("an answer")?;
    let budget = (planned + 2 * (asked[1] / 3 + 1024) + 200).to_string();
    let flags = [&TESTED[..], &["--max-tokens", &budget]].concat();
    let played = play_on_files(&FILES, &[PLANS, MENDS, last].concat(), &flags).await?;
    ensure!(
        played.count_gists("last turn: \"the budget of tokens is nearly used up") == 1,
        "{asked:?} {:#?}",
        played.gists
    );
    ensure!(
        played.outcome.starts_with("limit: ") && played.diff.contains("+    return 2"),
        "{}",
        played.outcome
    );
    let end = played.events_of_kind("RunEnded").next().context("an end")?;
    ensure!(end["summary"].to_string().contains("nothing is checked yet"), "{asked:?} {end}");
    played.keep_golden_log("sop-tokens").await?;
    Ok(())
}

/// A command or an answer that would take all of the time leaves some for the last turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_budget_leaves_a_last_turn() -> Result<()> {
    docket_tests::needs!("python3");
    let ends = r#"
[[talks.turns]]
when = { last_text_contains = "This is your last turn" }
calls = [{ name = "complete_task", args = { summary = "f returns 2; nothing is checked yet" } }]
"#;
    let sleeps = "[[talks.turns]]\ncalls = [{ name = \"run_command\", args = { command = \"sleep 60\" } }]\n";
    let thinks = "or = [{ text = \"Hm.\", delay_ms = 60000 }]\n";
    let flags = [&TESTED[..], &["--max-time", "10s"]].concat();
    for (name, takes) in [("sop-time-command", [sleeps, ends]), ("sop-time-model", [ends, thinks])] {
        let played = play_on_files(&FILES, &[PLANS, MENDS, &takes.concat()].concat(), &flags).await?;
        played.assert_sequence(&[
            "last turn: \"the budget of time is nearly used up in phase `implement`\"",
            "phase complete",
        ])?;
        ensure!(played.count_nudges("This is your last turn") == 1, "{name}: {:#?}", played.gists);
        let outcome = &played.outcome;
        ensure!(outcome.starts_with("limit: ") && outcome.contains("1 path is changed"), "{name}: {outcome}");
        let end = played.events_of_kind("RunEnded").next().context("an end")?;
        ensure!(end["summary"].to_string().contains("nothing is checked yet"), "{name}: {end}");
        ensure!(played.diff.contains("+    return 2"), "{name}: {}", played.diff);
        played.keep_golden_log(name).await?;
    }
    Ok(())
}

fn answer_tokens(answered: &Value) -> u64 {
    let names = ["input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens"];
    names.iter().filter_map(|name| answered["usage"][*name].as_u64()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn review_without_risks_is_invalid() -> Result<()> {
    docket_tests::needs!("python3");
    let empty = "[[talks.turns]]\ncalls = [{ name = \"review_report\", args = { risks = [], recommendations = [] } }]\n";
    let reviewer = "[[talks]]\nrole = \"reviewer\"\n";
    let until = HAPPY.split_once(reviewer).context("a reviewer")?.0;
    let script = [until, reviewer, &text_turn("Looks good to me."), empty, REPORTS, COMPLETES].concat();
    let played = play_engine("sop", &script).await?;
    played.assert_sequence(&[
        "gate risk_reported failed: no ReviewReport was handed in",
        "gate risk_reported failed: bad arguments for review_report: `risks` needs at least 1",
        "artifact ReviewReport",
        "gate risk_reported passed",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    let script = [until, reviewer, &text_turn("Good."), empty, &text_turn("Very good.")].concat();
    let played = play_engine("sop", &script).await?;
    ensure!(
        played.outcome.starts_with("gates: ") && played.outcome.contains("`risk_reported`"),
        "{}",
        played.outcome
    );
    ensure!(
        played.count_gists("gate risk_reported failed") == 3
            && played.count_gists("artifact ReviewReport") == 0
    );
    played.keep_golden_log("sop-no-risk").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requested_review_changes_return_to_the_builder() -> Result<()> {
    docket_tests::needs!("python3");
    let wants = r#"
[[talks]]
role = "reviewer"
opening_contains = "def g():\n+    return 4"
[[talks.turns]]
calls = [{ name = "review_report", args = { risks = ["none is left: g is what was asked for"], recommendations = [] } }]
[[talks.turns]]
calls = [{ name = "complete_task", args = { summary = "f returns 2, g returns 4" } }]
[[talks]]
role = "builder"
opening_contains = "must be mended before the task may end:\n- g must return 4"
[[talks.turns]]
calls = [
  { name = "read_file", args = { path = "b.py" } },
  { name = "edit_file", args = { path = "b.py", edits = [{ search = "return 3", replace = "return 4" }] } },
  { name = "diff_card", args = { rationale = "g returned 3" } },
]
"#;
    let happy = HAPPY.replace(
        "recommendations = [\"test g\"]",
        "recommendations = [\"test g\"], must_change = [\"g must return 4\"]",
    );
    let played = play_engine("sop", &[wants, &happy].concat()).await?;
    played.assert_sequence(&[
        "reviewer: review 1",
        "correcting",
        "phase implement",
        "builder: the change, round 2",
        "reviewer: review 2",
        "gate risk_reported passed",
        "phase complete",
    ])?;
    ensure!(played.outcome == "succeeded" && played.diff.contains("+    return 4"), "{}", played.outcome);
    played.keep_golden_log("sop-must-change").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_tests_need_a_reason_to_complete() -> Result<()> {
    let files = [("a.txt", "one\n")];
    let plan = PLANS.replace("a.py", "a.txt");
    let mends = r#"
[[talks]]
role = "builder"
[[talks.turns]]
calls = [
  { name = "read_file", args = { path = "a.txt" } },
  { name = "edit_file", args = { path = "a.txt", edits = [{ search = "one", replace = "two" }] } },
]
"#;
    let reason = r#"
[[talks.turns]]
calls = [{ name = "diff_card", args = { rationale = "a word", not_verified_because = "it is prose" } }]
"#;
    let script = [&plan, mends, HANDS_IN, reason, REPORTS, COMPLETES].concat();
    let played = play_on_files(&files, &script, &["--engine", "sop"]).await?;
    played.assert_sequence(&[
        "gate tests_exist failed: No test is there",
        "gate tests_exist excused: it is prose",
        "phase verify",
        "artifact TestReport",
        "gate tests_pass excused: it is prose",
    ])?;
    ensure!(
        played.outcome == "succeeded" && played.count_nudges("No test is there") == 1,
        "{}",
        played.outcome
    );
    let report: TestReport = played.last_artifact("TestReport")?;
    ensure!(report.status == TestStatus::NotRun && report.reason == "it is prose", "{report:?}");
    played.keep_golden_log("sop-not-verified").await?;
    let script = [&plan, mends, HANDS_IN, HANDS_IN, HANDS_IN, HANDS_IN].concat();
    let played = play_on_files(&files, &script, &["--engine", "sop"]).await?;
    ensure!(
        played.outcome.starts_with("gates: ") && played.outcome.contains("`tests_exist`"),
        "{}",
        played.outcome
    );
    played.keep_golden_log("sop-no-test").await?;
    Ok(())
}

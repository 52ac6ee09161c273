//! `team`: all passes through the orchestrator; each role knows what it is handed; what is said is held against schemas, and
//! against what was done.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{ids::QueueName, task::TaskState};
use docket_tests::{
    model_server::ModelServer,
    scripted_talks::role_talk,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
        acquire_scenario_slot,
    },
};
use docket_worker::model::{ModelProvider, ROLE_MARK, ScriptedModel};
use serde_json::Value;

use super::{EngineRun, FILES, play_engine, play_on_files, play_with_settings};

const READ: &str = "!{ name = \"read_file\", args = { path = \"a.py\" } }";
const EDIT: &str = "!{ name = \"edit_file\", args = { path = \"a.py\", edits = [ { search = \"    return 1\", replace = \"    return 2\" } ] } }";
const TESTS: &str =
    "!{ name = \"run_command\", args = { command = \"python3 -c 'import a; assert a.f() == 2'\" } }";
const RUN_TESTS: &str = "!{ name = \"run_tests\", args = {} }";
const DESIGNED: &str =
    r#"{"design": "DESIGNED: f returns 2", "files": [{"path": "a.py", "change": "return 2"}]}"#;
const DONE: &str = r#"{"done": true, "summary": "CODED: f returns 2"}"#;
const PASSED: &str = r#"{"outcome": "passed", "summary": "TESTED: f() is 2"}"#;
const APPROVED: &str = r#"{"verdict": "approve", "summary": "REVIEWED: it is right"}"#;
const SENT_BACK: &str = r#"{"verdict": "send_back", "summary": "f has no documentation"}"#;
const FINISH: &str = r#"{"action": "finish", "reason": "all is done", "summary": "f returns 2 now"}"#;
const AGAIN: &str = r#"{"action": "again", "reason": "it is not right yet", "from": "coder"}"#;

/// A team whose members do their parts, but for those who are said to do otherwise.
fn team_script(otherwise: &[String]) -> String {
    let brief = |role: &str, results: &str| {
        let words = format!("BRIEF-OF-{}", role.to_uppercase());
        let order = format!(r#"{{"action": "hand_over", "brief": "{words}", "results": [{results}]}}"#);
        role_talk("orchestrator", &format!("Brief the {role} now"), &[&order])
    };
    let usual = [
        brief("architect", r#""task""#),
        brief("coder", r#""architect""#),
        brief("tester", r#""changes""#),
        brief("reviewer", r#""task", "coder""#),
        role_talk("orchestrator", "It cannot be finished", &[AGAIN]),
        role_talk("orchestrator", "All roles have spoken", &[FINISH]),
        role_talk("architect", "BRIEF", &[READ, DESIGNED]),
        role_talk("coder", "BRIEF", &[READ, EDIT, DONE]),
        role_talk("tester", "BRIEF", &[TESTS, PASSED]),
        role_talk("reviewer", "BRIEF", &[APPROVED]),
    ];
    [otherwise, &usual].concat().concat()
}

fn refusals_by_rule<'a>(played: &'a EngineRun, rule: &str) -> Vec<&'a str> {
    let requested = played.events.iter().filter(|event| event["kind"] == "ToolRequested");
    let policies = requested.map(|event| &event["payload"]["policy"]).filter(|policy| policy["rule"] == rule);
    policies.filter_map(|policy| policy["reason"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_role_takes_part_and_the_orchestrator_coordinates() -> Result<()> {
    docket_tests::needs!("python3");
    let played = play_engine("team", &team_script(&[])).await?;
    played.assert_sequence(&[
        "planned 4",
        "orchestrator: round 1: a brief for the architect",
        "answered orchestrator",
        "architect: round 1",
        "answered architect",
        "step 1 done",
        "orchestrator: round 1: a brief for the coder",
        "coder: round 1",
        "step 2 done",
        "orchestrator: round 1: a brief for the tester",
        "tester: round 1",
        "answered tester",
        "check passed true",
        "step 3 done",
        "orchestrator: round 1: a brief for the reviewer",
        "reviewer: round 1",
        "step 4 done",
        "orchestrator: round 1: what follows",
        "verdict finish",
        "check passed true",
    ])?;
    ensure!(played.outcome == "succeeded" && played.diff.contains("+    return 2"), "{}", played.outcome);
    let end = played.events.iter().find(|event| event["kind"] == "RunEnded").context("an end")?;
    ensure!(end["payload"]["summary"].to_string().contains("f returns 2 now"), "{end}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answer_violating_its_schema_is_returned_and_three_fail_the_run() -> Result<()> {
    docket_tests::needs!("python3");
    let played = play_engine(
        "team",
        &team_script(&[
            role_talk("architect", "BRIEF", &["I would return 2.", r#"{"design": "", "file": 1}"#, DESIGNED]),
            role_talk(
                "orchestrator",
                "Brief the tester now",
                &[
                    r#"{"action": "hand_over", "brief": "b", "results": ["reviewer"]}"#,
                    r#"{"action": "hand_over", "brief": "BRIEF again", "results": []}"#,
                ],
            ),
        ]),
    )
    .await?;
    played.assert_sequence(&[
        "invalid \"answer of the architect\": \"there is no JSON in it\"",
        "`/files`: it is missing; `/design`: it must have at least 1 characters, and has 0; `/file`: it is not known",
        "answered architect",
        "invalid \"order\": \"`/results/0`: there is no such result; there are task, changes, checks, architect, coder",
        "tester: round 1",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    let played = play_engine(
        "team",
        &team_script(&[role_talk("coder", "BRIEF", &["Done.", "It is done.", "Really done."])]),
    )
    .await?;
    ensure!(played.count_gists("invalid \"answer of the coder\"") == 2, "{:#?}", played.gists);
    ensure!(
        played.outcome.starts_with("plan: ")
            && played.outcome.contains(
                "3 answers of the coder in a row could not be taken; the last one: there is no JSON"
            ),
        "{}",
        played.outcome
    );
    Ok(())
}

/// The coder's second and third part: nothing is left to change.
fn later_round_scripts() -> Vec<String> {
    let order = r#"{"action": "hand_over", "brief": "MORE of it", "results": ["reviewer"]}"#;
    vec![
        role_talk("orchestrator", "Brief the coder now, for round 2", &[order]),
        role_talk("orchestrator", "Brief the coder now, for round 3", &[order]),
        role_talk("coder", "MORE of it", &[DONE]),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sent_back_work_is_not_finished_and_rounds_are_limited_to_three() -> Result<()> {
    docket_tests::needs!("python3");
    let looks = r#"{"action": "hand_over", "brief": "SECOND-LOOK"}"#;
    let second = [
        role_talk("orchestrator", "Brief the reviewer now, for round 2", &[looks]),
        role_talk("reviewer", "SECOND-LOOK", &[APPROVED]),
        role_talk("reviewer", "BRIEF", &[SENT_BACK]),
        role_talk("orchestrator", "It cannot be finished", &[FINISH, AGAIN]),
    ];
    let played = play_engine("team", &team_script(&[&later_round_scripts()[..], &second].concat())).await?;
    played.assert_sequence(&[
        "step 4 failed",
        "invalid \"order\": \"`/action`: it cannot be \\\"finish\\\": the reviewer sent it back: f has no documentation",
        "verdict retry",
        "planned 3",
        "coder: round 2",
        "reviewer: round 2",
        "verdict finish",
        "check passed true",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    played.keep_golden_log("team-sent-back").await?;
    let sends = [role_talk("reviewer", "BRIEF", &[SENT_BACK])];
    let played = play_engine("team", &team_script(&[&later_round_scripts()[..], &sends].concat())).await?;
    ensure!(
        played.count_gists("reviewer: round") == 3 && played.count_gists("verdict retry") == 2,
        "{:#?}",
        played.gists
    );
    ensure!(
        played.outcome.starts_with("plan: ")
            && played
                .outcome
                .contains("not done after 3 rounds: the reviewer sent it back: f has no documentation"),
        "{}",
        played.outcome
    );
    played.keep_golden_log("team-rounds-used-up").await?;
    // Whoever says that it is not done is believed, whatever the others say.
    let not_done = r#"{"done": false, "summary": "h is missing"}"#;
    let says = [role_talk("coder", "BRIEF", &[READ, EDIT, not_done])];
    let played =
        play_engine("team", &team_script(&[&later_round_scripts()[..], &second[..2], &says].concat()))
            .await?;
    played.assert_sequence(&[
        "step 2 failed",
        "step 4 done",
        "verdict retry",
        "coder: round 2",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    played.keep_golden_log("team-coder-not-done").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tester_claims_must_match_observed_results() -> Result<()> {
    docket_tests::needs!("python3");
    // Who ran nothing is told so.
    let played =
        play_engine("team", &team_script(&[role_talk("tester", "BRIEF", &[PASSED, TESTS, PASSED])])).await?;
    played.assert_sequence(&[
        "\"`/outcome`: it is \\\"passed\\\", and you ran nothing",
        "answered tester",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    played.keep_golden_log("team-ran-nothing").await?;
    // Who ran something else is found out by the checks that the runtime runs.
    let lies = [
        role_talk("coder", "BRIEF", &[READ, DONE]),
        role_talk("coder", "MORE of it", &[READ, EDIT, DONE]),
        role_talk("tester", "BRIEF", &["!{ name = \"run_command\", args = { command = \"true\" } }", PASSED]),
    ];
    let played = play_engine("team", &team_script(&[&lies[..], &later_round_scripts()].concat())).await?;
    played.assert_sequence(&[
        "tester: round 1",
        "answered tester",
        "phase round",
        "check passed false",
        "step 3 failed",
        "verdict retry",
        "coder: round 2",
        "check passed true",
        "step 2 done",
        "verdict finish",
        "check passed true",
    ])?;
    let told = "says that tests passed; the checks that the runtime ran fail: tests (exit status 1)";
    let concluded =
        |event: &&Value| event["kind"] == "Concluded" && event["payload"].to_string().contains(told);
    ensure!(played.events.iter().any(|event| concluded(&event)), "{:#?}", played.gists);
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tester_writes_only_tests_and_readers_write_nothing() -> Result<()> {
    docket_tests::needs!("python3");
    let write = |path: &str| {
        format!("!{{ name = \"write_file\", args = {{ path = \"{path}\", content = \"x = 1\\n\" }} }}")
    };
    let otherwise = [
        role_talk("tester", "BRIEF", &[&write("b.py"), &write("tests/test_b.py"), TESTS, PASSED]),
        role_talk("reviewer", "BRIEF", &[&write("c.py"), APPROVED]),
    ];
    let played = play_engine("team", &team_script(&otherwise)).await?;
    let refused = refusals_by_rule(&played, "role");
    ensure!(refused.len() == 2, "{refused:?}");
    ensure!(refused[0].contains("the role `tester` writes tests only, and `b.py` is none"), "{refused:?}");
    ensure!(refused[1].contains("the role `reviewer` has no tool `write_file`"), "{refused:?}");
    let wrote = |path: &str| played.diff.contains(&format!("b/{path}"));
    ensure!(wrote("tests/test_b.py") && !wrote("b.py") && !wrote("c.py"), "{}", played.diff);
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tester_command_changes_outside_tests_are_reverted() -> Result<()> {
    docket_tests::needs!("python3");
    let line = "sed -i 's/return 2/return 5/' a.py && rm c.txt && mkdir -p new/deep empty && echo x > new/deep/b.py && \
                chmod 600 notes.md && echo y > tests/test_b.py && python3 -c 'import a; assert a.f() == 5'";
    let both = format!("!{{ name = \"run_command\", args = {{ command = \"{line}\" }} }}, {}", &TESTS[1..]);
    let files =
        [&FILES[..], &[("c.txt", "c\n"), ("notes.md", "n\n"), (".gitignore", "__pycache__/\n")]].concat();
    let flags = ["--engine", "team", "--tests", "python3 -c 'import a; assert a.f() == 2'"];
    let played =
        play_on_files(&files, &team_script(&[role_talk("tester", "BRIEF", &[&both, PASSED])]), &flags)
            .await?;
    let done: Vec<&Value> = played
        .events
        .iter()
        .filter(|event| event["kind"] == "ToolFinished")
        .map(|event| &event["payload"])
        .collect();
    let at =
        done.iter().position(|done| !done["facts"]["put_back"].is_null()).context("nothing was put back")?;
    let (first, second) = (done[at], done[at + 1]);
    // The command itself saw what it had made of the file; the one after it did not.
    ensure!(first["status"] == "ok" && second["status"] == "ok", "{first} {second}");
    let paths: Vec<&str> =
        first["facts"]["put_back"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for path in ["a.py", "c.txt", "new/deep/b.py", "empty", "notes.md"] {
        ensure!(paths.contains(&path), "{path}: {paths:?}");
    }
    ensure!(!paths.contains(&"tests/test_b.py") && second["facts"]["put_back"].is_null(), "{first} {second}");
    let told = first["content"].to_string();
    ensure!(told.contains("writes tests only, by commands as well") && told.contains("`a.py`"), "{told}");
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    ensure!(
        played.diff.contains("+    return 2") && played.diff.contains("b/tests/test_b.py"),
        "{}",
        played.diff
    );
    for path in ["c.txt", "b/new", "empty", "notes.md", "return 5"] {
        ensure!(!played.diff.contains(path), "{path}: {}", played.diff);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_round_starts_no_later_than_the_role_that_sent_the_work_back() -> Result<()> {
    docket_tests::needs!("python3");
    let failed = r#"{"outcome": "failed", "summary": "f gives 1 on Mondays"}"#;
    let from_reviewer = r#"{"action": "again", "reason": "look once more", "from": "reviewer"}"#;
    let second = r#"{"action": "hand_over", "brief": "SECOND try", "results": ["tester"]}"#;
    let otherwise = [
        role_talk("orchestrator", "It cannot be finished", &[from_reviewer]),
        role_talk("orchestrator", "Brief the tester now, for round 2", &[second]),
        role_talk("tester", "SECOND try", &[TESTS, PASSED]),
        role_talk("tester", "BRIEF", &[TESTS, failed]),
    ];
    let played = play_engine("team", &team_script(&otherwise)).await?;
    played.assert_sequence(&[
        "step 3 failed",
        "reviewer: round 1",
        "step 4 done",
        "verdict retry",
        "planned 2",
        "tester: round 2",
        "step 1 done",
        "reviewer: round 2",
        "verdict finish",
        "check passed true",
    ])?;
    ensure!(played.outcome == "succeeded" && played.count_gists("coder: round") == 1, "{:#?}", played.gists);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tester_without_checks_cannot_claim_unseen_tests() -> Result<()> {
    docket_tests::needs!("python3");
    let run = |line: &str| format!("!{{ name = \"run_command\", args = {{ command = \"{line}\" }} }}");
    let looked = r#"{"outcome": "none", "summary": "there are no tests; it says two"}"#;
    let otherwise = [
        role_talk("architect", "BRIEF", &[DESIGNED]),
        role_talk("coder", "BRIEF", &[&run("echo two > notes.txt"), DONE]),
        role_talk(
            "tester",
            "BRIEF",
            &[&run("false"), PASSED, &run("grep two notes.txt"), PASSED, RUN_TESTS, looked],
        ),
    ];
    let played =
        play_on_files(&[("notes.txt", "one\n")], &team_script(&otherwise), &["--engine", "team"]).await?;
    let told = "\"`/outcome`: it is \\\"passed\\\", and nothing shows it";
    played.assert_sequence(&[
        "tester: round 1",
        told,
        told,
        "answered tester",
        "step 3 done",
        "reviewer: round 1",
        "verdict finish",
    ])?;
    ensure!(played.count_gists("check passed") == 0 && played.outcome == "succeeded", "{:#?}", played.gists);
    played.keep_golden_log("team-tests-unproven").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn decisions_for_a_person_are_asked() -> Result<()> {
    docket_tests::needs!("python3");
    let asks = r#"{"action": "ask", "question": "Is 2 the number?"}"#;
    let played =
        play_engine("team", &team_script(&[role_talk("orchestrator", "Brief the architect now", &[asks])]))
            .await?;
    ensure!(played.outcome == "blocked: {\"text\":\"Is 2 the number?\"}", "{}", played.outcome);
    played.keep_golden_log("team-asks").await?;
    ensure!(played.count_gists("architect: ") == 0, "{:#?}", played.gists);
    Ok(())
}

const DOCUMENTER: &str = r#"
[task]
model = "scripted:main"
[team.roles.documenter]
prompt = "You document what was changed, in words of one line."
after = "coder"
tools = ["read_file"]
answer = { type = "object", required = ["text"], properties = { text = { type = "string", minLength = 3 } } }
model = "scripted:writer"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn role_added_by_settings_takes_its_turn() -> Result<()> {
    docket_tests::needs!("python3");
    let order = r#"{"action": "hand_over", "brief": "BRIEF-OF-DOCUMENTER", "results": ["coder"]}"#;
    let talks = [
        role_talk("orchestrator", "Brief the documenter now", &[order]),
        role_talk(
            "documenter",
            "BRIEF-OF-DOCUMENTER",
            &[r#"{"text": "f"}"#, EDIT, r#"{"text": "f returns 2"}"#],
        ),
    ];
    let played = play_with_settings("team", &team_script(&talks), DOCUMENTER, &[]).await?;
    played.assert_sequence(&[
        "planned 5",
        "coder: round 1",
        "orchestrator: round 1: a brief for the documenter",
        "documenter: round 1",
        "invalid \"answer of the documenter\": \"`/text`: it must have at least 3 characters",
        "answered documenter",
        "tester: round 1",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    ensure!(
        refusals_by_rule(&played, "role")
            == ["the role `documenter` has no tool `edit_file`; it has read_file"]
    );
    let asked =
        |event: &&Value| event["kind"] == "ModelRequested" && event["payload"]["role"] == "documenter";
    let models = played.events.iter().filter(asked).map(|event| &event["payload"]["model"]["name"]);
    ensure!(models.collect::<Vec<_>>() == ["writer"; 3]);
    // All that decides stands in the log: it was verified without the settings, which are a folder's that is gone.
    let started = played.events.iter().find(|event| event["kind"] == "RunStarted").context("a start")?;
    let names: Vec<&str> = started["payload"]["roles"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|role| role["name"].as_str())
        .collect();
    ensure!(names == ["orchestrator", "architect", "coder", "documenter", "tester", "reviewer"], "{names:?}");
    played.keep_golden_log("team-added-role").await?;
    Ok(())
}

/// What stands in a request, and the role that it is for.
fn request_role_and_text(body: &[u8]) -> Result<(String, String)> {
    let body: Value = serde_json::from_slice(body)?;
    let messages = body["messages"].as_array().context("messages")?;
    let system = messages[0]["content"].to_string();
    let role = system.split(ROLE_MARK).nth(1).context("a role's prompt")?;
    let role = role.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default().to_owned();
    Ok((role, messages[1..].iter().map(ToString::to_string).collect()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_contain_only_what_the_role_was_handed() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(team_script(&[]).as_bytes())?).await?;
    let sample = SampleRepository::new(&FILES)?;
    let args = ["--model", "openai:template", "--queue", "template", "--engine", "team", "--tests", "true"];
    let (template, spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "team".parse()?;
    let options = WorkerOptions { slots: 1, queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let task = coordinator.submit_like(&spec, &queue, server.model_ref(ModelProvider::OpenAi, "x")).await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    let title = format!("# Task: {}", spec.title);
    let words = [
        title.as_str(),
        "BRIEF-OF-ARCHITECT",
        "DESIGNED",
        "BRIEF-OF-CODER",
        "CODED",
        "BRIEF-OF-TESTER",
        "TESTED",
        "BRIEF-OF-REVIEWER",
        "REVIEWED",
    ];
    let mut seen = std::collections::BTreeSet::new();
    for got in server.requests() {
        let (role, said) = request_role_and_text(&got.body)?;
        let own: &[&str] = match role.as_str() {
            "architect" => &[&title, "BRIEF-OF-ARCHITECT"],
            "coder" => &["BRIEF-OF-CODER", "DESIGNED"],
            "tester" => &["BRIEF-OF-TESTER"],
            "reviewer" => &[&title, "BRIEF-OF-REVIEWER", "CODED"],
            "orchestrator" => {
                ensure!(!said.contains("BRIEF-OF-"), "its own orders are over with the conversation: {said}");
                seen.insert(role);
                continue;
            }
            other => anyhow::bail!("who is {other}?"),
        };
        for word in words {
            ensure!(said.contains(word) == own.contains(&word), "{role}, {word}: {said}");
        }
        seen.insert(role);
    }
    ensure!(seen.len() == 5, "{seen:?}");
    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    history.verify(coordinator.client()).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

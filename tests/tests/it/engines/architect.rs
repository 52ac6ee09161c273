//! `architect`: a plan that is checked, files changed one by one by whoever sees nothing else, what is mended and what
//! goes back, and a verifier at the end.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{ids::QueueName, task::TaskState};
use docket_tests::{
    model_server::ModelServer,
    scripted_talks::{STALE_PATCH, VALID_PATCH},
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
        acquire_scenario_slot,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};
use serde_json::Value;

use super::{EngineRun, play_engine};

/// An architect that is asked again, and at first; a coder by what it is told; a verifier.
const TALKS: &str = r#"
[[talks]]
role = "architect"
opening_contains = "asked again"
[[talks.turns]]
text = '''AGAIN'''
[[talks]]
role = "architect"
[[talks.turns]]
text = '''FIRST'''
[[talks.turns]]
text = '''SECOND'''
[[talks.turns]]
text = '''SECOND'''
[[talks]]
role = "coder"
opening_contains = "The patch was:"
[[talks.turns]]
text = """THIRD_TRY"""
[[talks]]
role = "coder"
opening_contains = "could not be applied"
[[talks.turns]]
text = """SECOND_TRY"""
[[talks]]
role = "coder"
opening_contains = "Mend the cause"
[[talks.turns]]
text = """MEND"""
[[talks]]
role = "coder"
opening_contains = "add h"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: a.py
@@ def f():
     return 2
+
+
+def h():
+    return f()
*** End Patch"""
[[talks]]
role = "coder"
opening_contains = "return 2 from f"
[[talks.turns]]
text = """PATCH"""
[[talks]]
role = "coder"
opening_contains = "The file `b.py`"
[[talks.turns]]
text = """
*** Begin Patch
*** Add File: b.py
+def g():
+    return 3
*** End Patch"""
[[talks]]
role = "verifier"
opening_contains = "(plan 2"
[[talks.turns]]
text = '{"verdict": "accept", "reason": "now it does"}'
[[talks]]
role = "verifier"
[[talks.turns]]
text = '''VERDICT'''
"#;

const WRONG: &str = "*** Begin Patch\n*** Update File: a.py\n-    return 1\n+    return 3\n*** End Patch";
const RIGHTED: &str = "*** Begin Patch\n*** Update File: a.py\n-    return 3\n+    return 2\n*** End Patch";
const ACCEPT: &str = r#"{"verdict": "accept", "reason": "f returns 2"}"#;
const EDIT: &str = r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "return 2 from f"}]}"#;
const MESSAGE: &str = r#"{"actions": [{"kind": "message", "text": "nothing to do"}]}"#;

/// What is said; what a test leaves out is as it should be.
struct ArchitectScript<'a> {
    first: &'a str,
    second: &'a str,
    again: &'a str,
    patch: &'a str,
    second_try: &'a str,
    third_try: &'a str,
    mend: &'a str,
    verdict: &'a str,
}

impl Default for ArchitectScript<'_> {
    fn default() -> Self {
        Self {
            first: EDIT,
            second: EDIT,
            again: EDIT,
            patch: VALID_PATCH,
            second_try: VALID_PATCH,
            third_try: VALID_PATCH,
            mend: RIGHTED,
            verdict: ACCEPT,
        }
    }
}

impl ArchitectScript<'_> {
    fn build_script(&self) -> String {
        TALKS
            .replace("AGAIN", self.again)
            .replace("FIRST", self.first)
            .replace("SECOND_TRY", self.second_try)
            .replace("SECOND", self.second)
            .replace("PATCH", self.patch)
            .replace("THIRD_TRY", self.third_try)
            .replace("MEND", self.mend)
            .replace("VERDICT", self.verdict)
    }

    async fn play(&self) -> Result<EngineRun> {
        play_engine("architect", &self.build_script()).await
    }
}

fn count_answers(played: &EngineRun) -> usize {
    played.events.iter().filter(|event| event["kind"] == "ModelAnswered").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_is_executed_file_by_file_and_verified() -> Result<()> {
    docket_tests::needs!("python3");
    let plan = r#"{"actions": [
        {"kind": "edit", "file": "a.py", "description": "return 2 from f", "hints": "tests/test_a.py wants it"},
        {"kind": "edit", "file": "b.py", "description": "make g"},
        {"kind": "edit", "file": "a.py", "description": "add h"},
        {"kind": "command", "cmd": "python3 -c 'import a, b; assert a.h() + b.g() == 5'", "expect": "pass"},
        {"kind": "command", "cmd": "grep -q nothing b.py", "expect": "fail"},
        {"kind": "message", "text": "h is new"}]}"#;
    let played = ArchitectScript { first: plan, ..ArchitectScript::default() }.play().await?;
    played.assert_sequence(&[
        "architect: plan 1",
        "planned 6",
        "phase ",
        "coder: step 1: a.py",
        "step 1 done",
        "summarized",
        "coder: step 2: b.py",
        "step 2 done",
        "coder: step 3: a.py",
        "step 3 done",
        "step 4 done",
        "step 5 done",
        "step 6 done",
        "check passed true",
        "verifier: plan 1",
        "verdict finish",
    ])?;
    ensure!(
        played.outcome == "succeeded" && count_answers(&played) == 5,
        "{}: {:#?}",
        played.outcome,
        played.gists
    );
    for holds in ["+    return 2", "+++ b/b.py", "+def h():"] {
        ensure!(played.diff.contains(holds), "{holds}: {}", played.diff);
    }
    // One file, the words for it, what was done to it before; nothing of the task, nothing of other files.
    let (first, third) = (played.role_opening("coder", 0)?, played.role_opening("coder", 2)?);
    ensure!(first.contains("tests/test_a.py wants it") && first.contains("return 1\n"), "{first}");
    // The task's text is a blob of its own.
    ensure!(!first.contains("blob") && !first.contains("before:"), "{first}");
    ensure!(third.contains("What was done to `a.py` before: - return 2 from f (+1 −1)"), "{third}");
    ensure!(third.contains("return 2\n") && !third.contains("def g"), "{third}");
    let judged = played.role_opening("verifier", 0)?;
    for holds in ["-    return 1\n+    return 2", "new file b.py", "+def h():", "The check `tests` passed"] {
        ensure!(judged.contains(holds), "{holds}: {judged}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_plan_is_returned_once_and_then_asks_a_person() -> Result<()> {
    docket_tests::needs!("python3");
    let outside = r#"{"actions": [{"kind": "edit", "file": "../a.py", "description": "x"}]}"#;
    let played = ArchitectScript { first: outside, ..ArchitectScript::default() }.play().await?;
    played.assert_sequence(&[
        "invalid \"plan\": \"actions[0]: `../a.py` is no file's path",
        "planned 1",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded" && played.count_gists("invalid") == 1, "{}", played.outcome);
    let played =
        ArchitectScript { first: outside, second: "I would change a.py.", ..ArchitectScript::default() }
            .play()
            .await?;
    ensure!(
        played.count_gists("invalid \"plan\"") == 3 && count_answers(&played) == 3,
        "{:#?}",
        played.gists
    );
    ensure!(
        played.outcome.starts_with("blocked: ") && played.outcome.contains("there is no JSON in it"),
        "{}",
        played.outcome
    );
    let played =
        ArchitectScript { first: "BLOCKED: which of the two?", ..ArchitectScript::default() }.play().await?;
    ensure!(played.outcome == r#"blocked: {"text":"which of the two?"}"#, "{}", played.outcome);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_patch_is_retried_twice_and_then_returned_to_the_architect() -> Result<()> {
    docket_tests::needs!("python3");
    let played =
        ArchitectScript { patch: STALE_PATCH, second_try: STALE_PATCH, ..ArchitectScript::default() }
            .play()
            .await?;
    played.assert_sequence(&[
        "\"error\"",
        "invalid \"patch\"",
        "\"error\"",
        "invalid \"patch\"",
        "step 1 done",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded" && played.count_gists("coder:") == 3, "{:#?}", played.gists);
    let (second, third) = (played.role_opening("coder", 1)?, played.role_opening("coder", 2)?);
    ensure!(second.contains("could not be applied") && second.contains("return 1\n"), "{second}");
    ensure!(
        !second.contains("The patch was:") && third.contains("The patch was:\n*** Begin Patch"),
        "{third}"
    );
    played.keep_golden_log("architect-third-try").await?;
    // Whatever was wrong with it, the last try has what was refused.
    let foreign = "*** Begin Patch\n*** Update File: b.py\n-x\n+y\n*** End Patch";
    for (second_try, name) in [("I would rather not.", "unreadable"), (foreign, "foreign")] {
        let played =
            ArchitectScript { patch: STALE_PATCH, second_try, ..ArchitectScript::default() }.play().await?;
        let third = played.role_opening("coder", 2)?;
        ensure!(third.contains(&format!("The patch was:\n{second_try}")), "{third}");
        ensure!(played.outcome == "succeeded", "{}", played.outcome);
        played.keep_golden_log(&format!("architect-third-try-after-{name}")).await?;
    }
    let played = ArchitectScript {
        patch: STALE_PATCH,
        second_try: STALE_PATCH,
        third_try: STALE_PATCH,
        again: MESSAGE,
        ..ArchitectScript::default()
    };
    let played = played.play().await?;
    played.assert_sequence(&[
        "step 1 failed",
        "dropped: \"action 1, the edit of a.py, failed",
        "architect: plan 2",
        "planned 1",
    ])?;
    ensure!(played.count_gists("coder:") == 3 && !played.diff.contains("a.py"), "{:#?}", played.gists);
    played.keep_golden_log("architect-escalates").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patch_of_another_file_is_refused_and_recorded() -> Result<()> {
    docket_tests::needs!("python3");
    let foreign = "*** Begin Patch\n*** Update File: tests/test_a.py\n-    assert f() == 2\n+    assert True\n*** End Patch";
    let beside = "*** Begin Patch\n*** Add File: a.py\n+x\n*** Add File: evil.py\n+y\n*** End Patch";
    let both = format!(
        "{}\n*** Update File: tests/test_a.py\n-    assert f() == 2\n+    assert True\n*** End Patch",
        VALID_PATCH.trim_end_matches("\n*** End Patch")
    );
    for (patch, other) in
        [(foreign, "tests/test_a.py"), (beside, "evil.py"), (both.as_str(), "tests/test_a.py")]
    {
        let played = ArchitectScript { patch, ..ArchitectScript::default() }.play().await?;
        let refused =
            played.gists.iter().find(|gist| gist.starts_with("invalid \"patch\"")).context("a refusal")?;
        ensure!(refused.contains(other) && refused.contains("`a.py`"), "{refused}");
        played.assert_sequence(&["invalid \"patch\"", "step 1 done", "verdict finish"])?;
        ensure!(
            played.outcome == "succeeded" && !played.diff.contains("test_a") && !played.diff.contains("evil"),
            "{}",
            played.diff
        );
        played
            .keep_golden_log(&format!(
                "architect-foreign-{}",
                other.rsplit('/').next().unwrap_or(other).replace('.', "-")
            ))
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coder_fixes_a_failure_of_its_change_once() -> Result<()> {
    docket_tests::needs!("python3");
    // A command.
    let plan = r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "return 2 from f"},
        {"kind": "command", "cmd": "python3 -c 'import a; assert a.f() == 2'"}]}"#;
    let played = ArchitectScript { first: plan, patch: WRONG, ..ArchitectScript::default() }.play().await?;
    played.assert_sequence(&[
        "step 1 done",
        "step 2 failed",
        "coder: step 2: mend a.py",
        "summarized",
        "step 2 done",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded" && played.count_gists("architect:") == 1, "{:#?}", played.gists);
    ensure!(played.role_opening("coder", 1)?.contains("AssertionError"));
    played.keep_golden_log("architect-mends-a-command").await?;
    // What does not parse.
    let open = "*** Begin Patch\n*** Update File: a.py\n-    return 1\n+    return (2\n*** End Patch";
    let closed = "*** Begin Patch\n*** Update File: a.py\n-    return (2\n+    return 2\n*** End Patch";
    let played = ArchitectScript { patch: open, mend: closed, ..ArchitectScript::default() }.play().await?;
    played.assert_sequence(&[
        "step 1 failed",
        "coder: step 1: mend a.py",
        "step 1 done",
        "check passed true",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded" && played.count_gists("architect:") == 1, "{:#?}", played.gists);
    played.keep_golden_log("architect-mends-what-does-not-parse").await?;
    // The final checks.
    let played = ArchitectScript { patch: WRONG, ..ArchitectScript::default() }.play().await?;
    played.assert_sequence(&[
        "step 1 done",
        "check passed false",
        "coder: final checks: mend a.py",
        "summarized",
        "check passed true",
        "verdict finish",
    ])?;
    played.keep_golden_log("architect-mends-checks-and-says-so").await?;
    ensure!(played.outcome == "succeeded" && played.count_gists("architect:") == 1, "{:#?}", played.gists);
    // Once, and no more: the architect is asked again.
    let played =
        ArchitectScript { patch: WRONG, mend: "UNCHANGED", again: MESSAGE, ..ArchitectScript::default() }
            .play()
            .await?;
    played.assert_sequence(&[
        "check passed false",
        "coder: final checks: mend a.py",
        "dropped: \"the final checks failed",
        "architect: plan 2",
    ])?;
    played.keep_golden_log("architect-mends-nothing").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn verifier_rejection_is_retried_once_and_then_asks_a_person() -> Result<()> {
    docket_tests::needs!("python3");
    let reject = r#"{"verdict": "reject", "reason": "there is no h"}"#;
    let more = r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "add h"}]}"#;
    let played =
        ArchitectScript { verdict: reject, again: more, ..ArchitectScript::default() }.play().await?;
    played.assert_sequence(&[
        "verdict replan",
        "dropped: \"the verifier does not accept the work: there is no h",
        "architect: plan 2",
        "coder: step 1: a.py",
        "check passed true",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded" && played.diff.contains("+def h():"), "{}", played.outcome);
    let again = played.role_opening("architect", 1)?;
    ensure!(again.contains("What was changed, file by file:\na.py:\n- return 2 from f (+1 −1)"), "{again}");
    let script =
        ArchitectScript { verdict: reject, again: MESSAGE, ..ArchitectScript::default() }.build_script();
    let played = play_engine(
        "architect",
        &script.replace(r#"{"verdict": "accept", "reason": "now it does"}"#, reject),
    )
    .await?;
    ensure!(
        played.count_gists("architect:") == 2 && played.count_gists("verdict replan") == 2,
        "{:#?}",
        played.gists
    );
    ensure!(
        played.outcome.starts_with("blocked: ") && played.outcome.contains("there is no h"),
        "{}",
        played.outcome
    );
    played.keep_golden_log("architect-rejected-twice").await?;
    // Verdicts that cannot be taken are a person's as well.
    let more =
        "text = '''It is fine.'''\n[[talks.turns]]\ntext = '''Fine.'''\n[[talks.turns]]\ntext = '''Yes.'''";
    let script = ArchitectScript { verdict: "It is fine.", ..ArchitectScript::default() }.build_script();
    let played = play_engine("architect", &script.replace("text = '''It is fine.'''", more)).await?;
    ensure!(played.count_gists("invalid \"verdict") == 3, "{:#?}", played.gists);
    ensure!(played.outcome.starts_with("blocked: "), "{}", played.outcome);
    played.keep_golden_log("architect-no-verdict").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_final_checks_return_to_the_architect_and_finally_fail_the_run() -> Result<()> {
    docket_tests::needs!("python3");
    let played = ArchitectScript { first: MESSAGE, ..ArchitectScript::default() }.play().await?;
    played.assert_sequence(&[
        "step 1 done",
        "check passed false",
        "architect: plan 2",
        "step 1 done",
        "check passed true",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    ensure!(played.role_opening("architect", 1)?.contains("The check `tests` said:"));
    let played =
        ArchitectScript { first: MESSAGE, again: MESSAGE, ..ArchitectScript::default() }.play().await?;
    ensure!(
        played.count_gists("architect:") == 3 && played.count_gists("verifier:") == 0,
        "{:#?}",
        played.gists
    );
    ensure!(
        played.outcome.starts_with("gates: ") && played.outcome.contains("still fail"),
        "{}",
        played.outcome
    );
    played.keep_golden_log("architect-checks-exhausted").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn architect_reads_and_writes_nothing() -> Result<()> {
    docket_tests::needs!("python3");
    let looks = r#"
[[talks]]
role = "architect"
[[talks.turns]]
calls = [ { name = "read_file", args = { path = "a.py" } }, { name = "run_command", args = { command = "touch evil" } } ]
[[talks.turns]]
text = '''PLAN'''
"#;
    let played = play_engine(
        "architect",
        &format!("{}{}", looks.replace("PLAN", EDIT), ArchitectScript::default().build_script()),
    )
    .await?;
    played.assert_sequence(&["architect: plan 1", "\"ok\"", "\"refused\"", "planned 1", "verdict finish"])?;
    let denied =
        |event: &&Value| event["kind"] == "ToolRequested" && event["payload"]["policy"]["rule"] == "role";
    ensure!(
        played.events.iter().filter(denied).count() == 1 && !played.diff.contains("evil"),
        "{}",
        played.diff
    );
    Ok(())
}

/// A list of what may be run, and a file that nobody may read.
const RULES: &str = r#"
default = "deny"
[[rules]]
id = "tools"
verdict = "allow"
tools = ["read_file", "edit_file"]
[[rules]]
id = "runners"
verdict = "allow"
tools = ["run_command"]
commands = ["python3 *"]
[[rules]]
id = "kept"
verdict = "deny"
tools = ["read_file"]
paths = ["kept.txt"]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policy_applies_to_plans_and_shown_files() -> Result<()> {
    docket_tests::needs!("python3");
    let refused = r#"{"actions": [{"kind": "command", "cmd": "curl http://127.0.0.1:9"}]}"#;
    let allowed = r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "return 2 from f"},
        {"kind": "command", "cmd": "python3 -c \"open('kept.txt', 'w').write('hush' * 2)\""}]}"#;
    let script =
        ArchitectScript { first: refused, second: allowed, ..ArchitectScript::default() }.build_script();
    let played = super::play_with_policy("architect", &script, RULES).await?;
    played.assert_sequence(&[
        "invalid \"plan\": \"actions[0]: policy does not allow `curl http://127.0.0.1:9`",
        "planned 2",
        "step 2 done",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded" && played.diff.contains("hushhush"), "{}", played.outcome);
    let judged = played.role_opening("verifier", 0)?;
    ensure!(judged.contains("kept.txt: changed; policy") && judged.contains("+    return 2"), "{judged}");
    ensure!(!judged.contains("hushhush"), "{judged}");
    played.keep_golden_log("architect-policy").await?;
    Ok(())
}

/// Where no policy speaks of commands a plan starts what is on docket's own list, and it is told what that is (D9).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plan_runs_only_listed_commands() -> Result<()> {
    docket_tests::needs!("python3");
    let refused = r#"{"actions": [{"kind": "command", "cmd": "systemctl restart db"}]}"#;
    let allowed = r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "return 2 from f"},
        {"kind": "command", "cmd": "python3 -c 'import a; assert a.f() == 2'"}]}"#;
    let script =
        ArchitectScript { first: refused, second: allowed, ..ArchitectScript::default() }.build_script();
    let played = super::play_engine("architect", &script).await?;
    played.assert_sequence(&[
        "invalid \"plan\": \"actions[0]: `systemctl restart db` starts what a plan may not; it may start ./*, sh, bash",
        "planned 2",
        "step 2 done",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    played.keep_golden_log("architect-unlisted").await
}

/// What stands in a file and in the difference, and is a secret, is in no request (D9).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_contain_no_secret_of_the_file() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    // Put together here, so that no scanner takes this file for a leak.
    let secret = format!("AKIA{}", "QWERTZ1234567890");
    let file = format!("KEY = \"{secret}\"\n\ndef f():\n    return 1\n");
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let server =
        ModelServer::start(ScriptedModel::parse(ArchitectScript::default().build_script().as_bytes())?)
            .await?;
    let sample = SampleRepository::new(&[("a.py", &file), ("notes.md", "Nothing.\n")])?;
    let tests = "python3 -c 'import a; assert a.f() == 2'";
    let args =
        ["--model", "openai:template", "--queue", "template", "--engine", "architect", "--tests", tests];
    let (template, spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "secrets".parse()?;
    let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let task = coordinator.submit_like(&spec, &queue, server.model_ref(ModelProvider::OpenAi, "x")).await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    let run = view.task.last_run.context("a run")?;
    coordinator.run_history(run).await?.verify(coordinator.client()).await?;
    let requests = server.requests();
    let holds = |part: &str| {
        requests.iter().filter(|asked| String::from_utf8_lossy(&asked.body).contains(part)).count()
    };
    // The coder was shown the file, the verifier the difference with the line beside it.
    let found = (requests.len(), holds(&secret), holds("[REDACTED: AWS key]"));
    ensure!(found == (3, 0, 2), "{found:?}");
    // Nor anything of the project but the file, where the coder is asked.
    ensure!(holds("# The project") == 2 && holds("notes.md") == 2, "the coder is told of other files");
    let cat = coordinator.run_docket(&["cat", &run.to_string(), "a.py"]).await?.into_stdout()?;
    ensure!(cat == file.replace("return 1", "return 2"), "{cat}");
    worker.drain().await?;
    coordinator.end_and_check().await
}

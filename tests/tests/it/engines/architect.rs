//! `architect`: a plan that is checked, files changed one by one by whoever sees nothing else, what is mended and what
//! goes back, and a verifier at the end.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{ids::QueueName, task::TaskState};
use docket_tests::{
    model_server::ModelServer,
    system::{Coordinator, LeaseTime, Place, Sample, Worker, WorkerOptions, room},
    talks::{GOOD, STALE},
};
use docket_worker::model::{Provider, ScriptedModel};
use serde_json::Value;

use super::{Played, play};

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
struct Said<'a> {
    first: &'a str,
    second: &'a str,
    again: &'a str,
    patch: &'a str,
    second_try: &'a str,
    third_try: &'a str,
    mend: &'a str,
    verdict: &'a str,
}

impl Default for Said<'_> {
    fn default() -> Self {
        Self {
            first: EDIT,
            second: EDIT,
            again: EDIT,
            patch: GOOD,
            second_try: GOOD,
            third_try: GOOD,
            mend: RIGHTED,
            verdict: ACCEPT,
        }
    }
}

impl Said<'_> {
    fn script(&self) -> String {
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

    async fn play(&self) -> Result<Played> {
        play("architect", &self.script()).await
    }
}

fn answers(played: &Played) -> usize {
    played.events.iter().filter(|event| event["kind"] == "ModelAnswered").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_is_carried_out_file_by_file_and_verified() -> Result<()> {
    docket_tests::needs!("python3");
    let plan = r#"{"actions": [
        {"kind": "edit", "file": "a.py", "description": "return 2 from f", "hints": "tests/test_a.py wants it"},
        {"kind": "edit", "file": "b.py", "description": "make g"},
        {"kind": "edit", "file": "a.py", "description": "add h"},
        {"kind": "command", "cmd": "python3 -c 'import a, b; assert a.h() + b.g() == 5'", "expect": "pass"},
        {"kind": "command", "cmd": "grep -q nothing b.py", "expect": "fail"},
        {"kind": "message", "text": "h is new"}]}"#;
    let played = Said { first: plan, ..Said::default() }.play().await?;
    played.has(&[
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
        played.outcome == "succeeded" && answers(&played) == 5,
        "{}: {:#?}",
        played.outcome,
        played.gists
    );
    for holds in ["+    return 2", "+++ b/b.py", "+def h():"] {
        ensure!(played.diff.contains(holds), "{holds}: {}", played.diff);
    }
    // One file, the words for it, what was done to it before; nothing of the task, nothing of other files.
    let (first, third) = (played.opening("coder", 0)?, played.opening("coder", 2)?);
    ensure!(first.contains("tests/test_a.py wants it") && first.contains("return 1\n"), "{first}");
    // The task's text is a blob of its own.
    ensure!(!first.contains("blob") && !first.contains("before:"), "{first}");
    ensure!(third.contains("What was done to `a.py` before: - return 2 from f (+1 −1)"), "{third}");
    ensure!(third.contains("return 2\n") && !third.contains("def g"), "{third}");
    let judged = played.opening("verifier", 0)?;
    for holds in ["-    return 1\n+    return 2", "new file b.py", "+def h():", "The check `tests` passed"] {
        ensure!(judged.contains(holds), "{holds}: {judged}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_cannot_be_taken_goes_back_once_more_and_then_to_a_person() -> Result<()> {
    docket_tests::needs!("python3");
    let outside = r#"{"actions": [{"kind": "edit", "file": "../a.py", "description": "x"}]}"#;
    let played = Said { first: outside, ..Said::default() }.play().await?;
    played.has(&[
        "invalid \"plan\": \"actions[0]: `../a.py` is no file's path",
        "planned 1",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded" && played.count("invalid") == 1, "{}", played.outcome);
    let played = Said { first: outside, second: "I would change a.py.", ..Said::default() }.play().await?;
    ensure!(played.count("invalid \"plan\"") == 3 && answers(&played) == 3, "{:#?}", played.gists);
    ensure!(
        played.outcome.starts_with("blocked: ") && played.outcome.contains("there is no JSON in it"),
        "{}",
        played.outcome
    );
    let played = Said { first: "BLOCKED: which of the two?", ..Said::default() }.play().await?;
    ensure!(played.outcome == r#"blocked: {"text":"which of the two?"}"#, "{}", played.outcome);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_that_fails_is_tried_twice_more_and_then_goes_back_to_the_architect() -> Result<()> {
    docket_tests::needs!("python3");
    let played = Said { patch: STALE, second_try: STALE, ..Said::default() }.play().await?;
    played.has(&[
        "\"error\"",
        "invalid \"patch\"",
        "\"error\"",
        "invalid \"patch\"",
        "step 1 done",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded" && played.count("coder:") == 3, "{:#?}", played.gists);
    let (second, third) = (played.opening("coder", 1)?, played.opening("coder", 2)?);
    ensure!(second.contains("could not be applied") && second.contains("return 1\n"), "{second}");
    ensure!(
        !second.contains("The patch was:") && third.contains("The patch was:\n*** Begin Patch"),
        "{third}"
    );
    played.kept("architect-third-try").await?;
    // Whatever was wrong with it, the last try has what was refused.
    let foreign = "*** Begin Patch\n*** Update File: b.py\n-x\n+y\n*** End Patch";
    for (second_try, name) in [("I would rather not.", "unreadable"), (foreign, "foreign")] {
        let played = Said { patch: STALE, second_try, ..Said::default() }.play().await?;
        let third = played.opening("coder", 2)?;
        ensure!(third.contains(&format!("The patch was:\n{second_try}")), "{third}");
        ensure!(played.outcome == "succeeded", "{}", played.outcome);
        played.kept(&format!("architect-third-try-after-{name}")).await?;
    }
    let played =
        Said { patch: STALE, second_try: STALE, third_try: STALE, again: MESSAGE, ..Said::default() };
    let played = played.play().await?;
    played.has(&[
        "step 1 failed",
        "dropped: \"action 1, the edit of a.py, failed",
        "architect: plan 2",
        "planned 1",
    ])?;
    ensure!(played.count("coder:") == 3 && !played.diff.contains("a.py"), "{:#?}", played.gists);
    played.kept("architect-escalates").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_that_names_another_file_is_refused_by_the_runtime_and_that_is_an_event() -> Result<()> {
    docket_tests::needs!("python3");
    let foreign = "*** Begin Patch\n*** Update File: tests/test_a.py\n-    assert f() == 2\n+    assert True\n*** End Patch";
    let beside = "*** Begin Patch\n*** Add File: a.py\n+x\n*** Add File: evil.py\n+y\n*** End Patch";
    let both = format!(
        "{}\n*** Update File: tests/test_a.py\n-    assert f() == 2\n+    assert True\n*** End Patch",
        GOOD.trim_end_matches("\n*** End Patch")
    );
    for (patch, other) in
        [(foreign, "tests/test_a.py"), (beside, "evil.py"), (both.as_str(), "tests/test_a.py")]
    {
        let played = Said { patch, ..Said::default() }.play().await?;
        let refused =
            played.gists.iter().find(|gist| gist.starts_with("invalid \"patch\"")).context("a refusal")?;
        ensure!(refused.contains(other) && refused.contains("`a.py`"), "{refused}");
        played.has(&["invalid \"patch\"", "step 1 done", "verdict finish"])?;
        ensure!(
            played.outcome == "succeeded" && !played.diff.contains("test_a") && !played.diff.contains("evil"),
            "{}",
            played.diff
        );
        played
            .kept(&format!(
                "architect-foreign-{}",
                other.rsplit('/').next().unwrap_or(other).replace('.', "-")
            ))
            .await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_for_what_was_written_the_coder_mends_once() -> Result<()> {
    docket_tests::needs!("python3");
    // A command.
    let plan = r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "return 2 from f"},
        {"kind": "command", "cmd": "python3 -c 'import a; assert a.f() == 2'"}]}"#;
    let played = Said { first: plan, patch: WRONG, ..Said::default() }.play().await?;
    played.has(&[
        "step 1 done",
        "step 2 failed",
        "coder: step 2: mend a.py",
        "summarized",
        "step 2 done",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded" && played.count("architect:") == 1, "{:#?}", played.gists);
    ensure!(played.opening("coder", 1)?.contains("AssertionError"));
    played.kept("architect-mends-a-command").await?;
    // What does not parse.
    let open = "*** Begin Patch\n*** Update File: a.py\n-    return 1\n+    return (2\n*** End Patch";
    let closed = "*** Begin Patch\n*** Update File: a.py\n-    return (2\n+    return 2\n*** End Patch";
    let played = Said { patch: open, mend: closed, ..Said::default() }.play().await?;
    played.has(&[
        "step 1 failed",
        "coder: step 1: mend a.py",
        "step 1 done",
        "check passed true",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded" && played.count("architect:") == 1, "{:#?}", played.gists);
    played.kept("architect-mends-what-does-not-parse").await?;
    // The final checks.
    let played = Said { patch: WRONG, ..Said::default() }.play().await?;
    played.has(&[
        "step 1 done",
        "check passed false",
        "coder: final checks: mend a.py",
        "summarized",
        "check passed true",
        "verdict finish",
    ])?;
    played.kept("architect-mends-checks-and-says-so").await?;
    ensure!(played.outcome == "succeeded" && played.count("architect:") == 1, "{:#?}", played.gists);
    // Once, and no more: the architect is asked again.
    let played = Said { patch: WRONG, mend: "UNCHANGED", again: MESSAGE, ..Said::default() }.play().await?;
    played.has(&[
        "check passed false",
        "coder: final checks: mend a.py",
        "dropped: \"the final checks failed",
        "architect: plan 2",
    ])?;
    played.kept("architect-mends-nothing").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verifier_that_rejects_is_heeded_once_and_then_a_person_is() -> Result<()> {
    docket_tests::needs!("python3");
    let reject = r#"{"verdict": "reject", "reason": "there is no h"}"#;
    let more = r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "add h"}]}"#;
    let played = Said { verdict: reject, again: more, ..Said::default() }.play().await?;
    played.has(&[
        "verdict replan",
        "dropped: \"the verifier does not accept the work: there is no h",
        "architect: plan 2",
        "coder: step 1: a.py",
        "check passed true",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded" && played.diff.contains("+def h():"), "{}", played.outcome);
    let again = played.opening("architect", 1)?;
    ensure!(again.contains("What was changed, file by file:\na.py:\n- return 2 from f (+1 −1)"), "{again}");
    let script = Said { verdict: reject, again: MESSAGE, ..Said::default() }.script();
    let played =
        play("architect", &script.replace(r#"{"verdict": "accept", "reason": "now it does"}"#, reject))
            .await?;
    ensure!(played.count("architect:") == 2 && played.count("verdict replan") == 2, "{:#?}", played.gists);
    ensure!(
        played.outcome.starts_with("blocked: ") && played.outcome.contains("there is no h"),
        "{}",
        played.outcome
    );
    played.kept("architect-rejected-twice").await?;
    // Verdicts that cannot be taken are a person's as well.
    let more =
        "text = '''It is fine.'''\n[[talks.turns]]\ntext = '''Fine.'''\n[[talks.turns]]\ntext = '''Yes.'''";
    let script = Said { verdict: "It is fine.", ..Said::default() }.script();
    let played = play("architect", &script.replace("text = '''It is fine.'''", more)).await?;
    ensure!(played.count("invalid \"verdict") == 3, "{:#?}", played.gists);
    ensure!(played.outcome.starts_with("blocked: "), "{}", played.outcome);
    played.kept("architect-no-verdict").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn final_checks_that_fail_go_back_to_the_architect_and_end_the_run_at_last() -> Result<()> {
    docket_tests::needs!("python3");
    let played = Said { first: MESSAGE, ..Said::default() }.play().await?;
    played.has(&[
        "step 1 done",
        "check passed false",
        "architect: plan 2",
        "step 1 done",
        "check passed true",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    ensure!(played.opening("architect", 1)?.contains("The check `tests` said:"));
    let played = Said { first: MESSAGE, again: MESSAGE, ..Said::default() }.play().await?;
    ensure!(played.count("architect:") == 3 && played.count("verifier:") == 0, "{:#?}", played.gists);
    ensure!(
        played.outcome.starts_with("gates: ") && played.outcome.contains("still fail"),
        "{}",
        played.outcome
    );
    played.kept("architect-checks-exhausted").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_architect_looks_and_writes_nothing() -> Result<()> {
    docket_tests::needs!("python3");
    let looks = r#"
[[talks]]
role = "architect"
[[talks.turns]]
calls = [ { name = "read_file", args = { path = "a.py" } }, { name = "run_command", args = { command = "touch evil" } } ]
[[talks.turns]]
text = '''PLAN'''
"#;
    let played =
        play("architect", &format!("{}{}", looks.replace("PLAN", EDIT), Said::default().script())).await?;
    played.has(&["architect: plan 1", "\"ok\"", "\"refused\"", "planned 1", "verdict finish"])?;
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
async fn a_policy_speaks_of_plans_and_of_what_the_runtime_shows() -> Result<()> {
    docket_tests::needs!("python3");
    let refused = r#"{"actions": [{"kind": "command", "cmd": "curl http://127.0.0.1:9"}]}"#;
    let allowed = r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "return 2 from f"},
        {"kind": "command", "cmd": "python3 -c \"open('kept.txt', 'w').write('hush' * 2)\""}]}"#;
    let script = Said { first: refused, second: allowed, ..Said::default() }.script();
    let played = super::play_under("architect", &script, RULES).await?;
    played.has(&[
        "invalid \"plan\": \"actions[0]: policy does not allow `curl http://127.0.0.1:9`",
        "planned 2",
        "step 2 done",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded" && played.diff.contains("hushhush"), "{}", played.outcome);
    let judged = played.opening("verifier", 0)?;
    ensure!(judged.contains("kept.txt: changed; policy") && judged.contains("+    return 2"), "{judged}");
    ensure!(!judged.contains("hushhush"), "{judged}");
    played.kept("architect-policy").await?;
    Ok(())
}

/// Where no policy speaks of commands a plan starts what is on docket's own list, and it is told what that is (D9).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_starts_only_what_is_on_the_list() -> Result<()> {
    docket_tests::needs!("python3");
    let refused = r#"{"actions": [{"kind": "command", "cmd": "systemctl restart db"}]}"#;
    let allowed = r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "return 2 from f"},
        {"kind": "command", "cmd": "python3 -c 'import a; assert a.f() == 2'"}]}"#;
    let script = Said { first: refused, second: allowed, ..Said::default() }.script();
    let played = super::play("architect", &script).await?;
    played.has(&[
        "invalid \"plan\": \"actions[0]: `systemctl restart db` starts what a plan may not; it may start ./*, sh, bash",
        "planned 2",
        "step 2 done",
        "verdict finish",
    ])?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    played.kept("architect-unlisted").await
}

/// What stands in a file and in the difference, and is a secret, is in no request (D9).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_holds_a_secret_of_the_file() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = room().await;
    // Put together here, so that no scanner takes this file for a leak.
    let secret = format!("AKIA{}", "QWERTZ1234567890");
    let file = format!("KEY = \"{secret}\"\n\ndef f():\n    return 1\n");
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(Said::default().script().as_bytes())?).await?;
    let sample = Sample::new(&[("a.py", &file), ("notes.md", "Nothing.\n")])?;
    let tests = "python3 -c 'import a; assert a.f() == 2'";
    let args =
        ["--model", "openai:template", "--queue", "template", "--engine", "architect", "--tests", tests];
    let (template, spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    let queue: QueueName = "secrets".parse()?;
    let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = Worker::start(&coordinator, &options).await?;
    let task = coordinator.submit_like(&spec, &queue, server.model(Provider::OpenAi, "x")).await?;
    let view = coordinator.ended(task).await.with_context(|| worker.tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    let run = view.task.last_run.context("a run")?;
    coordinator.history(run).await?.verify(coordinator.client()).await?;
    let requests = server.requests();
    let holds = |part: &str| {
        requests.iter().filter(|asked| String::from_utf8_lossy(&asked.body).contains(part)).count()
    };
    // The coder was shown the file, the verifier the difference with the line beside it.
    let found = (requests.len(), holds(&secret), holds("[REDACTED: AWS key]"));
    ensure!(found == (3, 0, 2), "{found:?}");
    // Nor anything of the project but the file, where the coder is asked.
    ensure!(holds("# The project") == 2 && holds("notes.md") == 2, "the coder is told of other files");
    let cat = coordinator.docket(&["cat", &run.to_string(), "a.py"]).await?.ok()?;
    ensure!(cat == file.replace("return 1", "return 2"), "{cat}");
    worker.drain().await?;
    coordinator.end_and_check().await
}

//! Engines with roles on real parts: each ends as its rows say, on its way and on each way that fails; whatever it
//! decided is derived again from its log.

mod architect;
mod budgets;
mod fixture;
mod forks;
mod person_messages;
mod plan;
mod review;
mod roles;
mod rules;
mod sop;
mod team;
mod tool_policies;

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{SampleRepository, TestProgram, acquire_scenario_slot, run_program};
use serde_json::Value;

/// A module whose function is wrong, and a test that says so.
const FILES: [(&str, &str); 2] = [
    ("a.py", "def f():\n    return 1\n"),
    ("tests/test_a.py", "from a import f\n\n\ndef test_f():\n    assert f() == 2\n"),
];

/// A run that has ended.
struct EngineRun {
    /// What was concluded and who spoke, in order: `planner: the plan`, `planned 2`, `step 1 failed` …
    gists: Vec<String>,
    /// How it ended: `succeeded`, or why it failed with what was said.
    outcome: String,
    /// All its events.
    events: Vec<Value>,
    /// Its patch.
    diff: String,
    /// The run, and the home that it is in.
    run: String,
    home: tempfile::TempDir,
}

impl EngineRun {
    /// Whether these came, in this order; others may stand between them.
    fn assert_sequence(&self, wanted: &[&str]) -> Result<()> {
        let mut gists = self.gists.iter();
        for want in wanted {
            ensure!(
                gists.any(|gist| gist.contains(want)),
                "no `{want}` in its place among {:#?}; {}",
                self.gists,
                self.outcome
            );
        }
        Ok(())
    }

    /// The first message of the `nth` time that a role was taken up.
    fn role_opening(&self, role: &str, nth: usize) -> Result<String> {
        let is_meant = |event: &&Value| event["kind"] == "RoleBegan" && event["payload"]["role"] == role;
        let event = self.events.iter().filter(is_meant).nth(nth);
        let event = event.with_context(|| format!("{role} {nth}: {:#?}", self.gists))?;
        let parts = event["payload"]["opening"].as_array().context("an opening")?;
        let text = |part: &Value| part["text"].as_str().map_or_else(|| part.to_string(), str::to_owned);
        Ok(parts.iter().map(|part| format!("{}\n", text(part))).collect())
    }

    fn count_gists(&self, what: &str) -> usize {
        self.gists.iter().filter(|gist| gist.contains(what)).count()
    }
}

/// Plays a script through an engine, and verifies the run.
async fn play_engine(engine: &str, script: &str) -> Result<EngineRun> {
    play_with_settings(engine, script, "", &["--model", "scripted:x"]).await
}

/// The same, of a task with a policy of its own.
async fn play_with_policy(engine: &str, script: &str, policy: &str) -> Result<EngineRun> {
    let rules = tempfile::NamedTempFile::new()?;
    std::fs::write(rules.path(), policy)?;
    let rules = rules.path().to_str().context("UTF-8")?;
    play_with_settings(engine, script, "", &["--model", "scripted:x", "--policy", rules]).await
}

/// The same with these settings and flags.
async fn play_with_settings(engine: &str, script: &str, settings: &str, flags: &[&str]) -> Result<EngineRun> {
    let usual = ["--tests", "python3 -c 'import a; assert a.f() == 2'", "--engine", engine];
    run_engine(&FILES, script, settings, &[&usual[..], flags].concat()).await
}

/// The same on other files, with other flags.
async fn play_on_files(files: &[(&str, &str)], script: &str, more: &[&str]) -> Result<EngineRun> {
    run_engine(files, script, "", &[&["--model", "scripted:x"], more].concat()).await
}

async fn run_engine(
    files: &[(&str, &str)],
    script: &str,
    settings: &str,
    flags: &[&str],
) -> Result<EngineRun> {
    let _room = acquire_scenario_slot().await;
    // What a run comes to must not depend on the linters of this machine.
    let own_settings = files.iter().any(|(path, _)| *path == "docket.toml");
    let without_linters = (!own_settings).then_some(("docket.toml", "[lint.ruff]\nenabled = false\n"));
    let sample = SampleRepository::new(&files.iter().copied().chain(without_linters).collect::<Vec<_>>())?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("docket.toml"), settings)?;
    let env = [("DOCKET_HOME", folder.path().as_os_str())];
    let script = sample.write_script(script)?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    // What fails fails by its engine's rules: a second try would wait, and fail by the same.
    let args = ["run", "Let f return 2", "--json", "--attempts", "1", "--repo", repo, "--script", script];
    let said = run_program(TestProgram::Docket, folder.path(), &env, &[&args[..], flags].concat()).await?;
    let row: Value = serde_json::from_str(said.stdout.lines().last().with_context(|| format!("{said:?}"))?)?;
    let id = row["run"].as_str().with_context(|| format!("a run: {said:?}"))?.to_owned();
    let log = run_program(TestProgram::Docket, folder.path(), &env, &["logs", &id, "--json"])
        .await?
        .into_stdout()?;
    let events: Vec<Value> = log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let diff = run_program(TestProgram::Docket, folder.path(), &env, &["diff", &id]).await?.stdout;
    let verified = run_program(TestProgram::Docket, folder.path(), &env, &["verify", &id]).await?;
    verified.into_stdout().context("its decisions are derived again")?;
    let gists = events.iter().flat_map(event_gists).collect();
    let end = events.iter().rev().find(|event| event["kind"] == "RunEnded" || event["kind"] == "RunBlocked");
    let end = &end.context("an end")?["payload"];
    let outcome = match (end["result"]["outcome"].as_str(), end["result"]["why"].as_str()) {
        (Some("succeeded"), _) => "succeeded".to_owned(),
        (Some(_), why) => format!("{}: {}", why.unwrap_or_default(), end["result"]["message"]),
        (None, _) => format!("blocked: {}", end["question"]),
    };
    Ok(EngineRun { gists, outcome, events, diff, run: id, home: folder })
}

impl EngineRun {
    /// The log is a golden one of this release as well.
    async fn keep_golden_log(&self, name: &str) -> Result<()> {
        crate::golden::keep_golden_log(self.home.path(), &self.run, name).await
    }
}

/// What an event says of the way that a run took, in a line each.
pub(crate) fn event_gists(event: &Value) -> Vec<String> {
    let payload = &event["payload"];
    match event["kind"].as_str().unwrap_or_default() {
        "RoleBegan" => {
            let (role, about) = (&payload["role"], &payload["about"]);
            vec![format!("{}: {}", role.as_str().unwrap_or_default(), about.as_str().unwrap_or_default())]
        }
        "Concluded" => payload["facts"].as_array().into_iter().flatten().map(format_fact).collect(),
        "ToolFinished" => vec![format!("{} {}", payload["call"], payload["status"])],
        "GateFinished" => vec![format!("check passed {}", payload["passed"])],
        _ => Vec::new(),
    }
}

fn format_fact(fact: &Value) -> String {
    let name = fact["fact"].as_str().unwrap_or_default();
    match name {
        "planned" => format!("planned {}", fact["steps"].as_array().map_or(0, Vec::len)),
        "step_ended" => {
            let how = if fact["success"] == true { "done" } else { "failed" };
            format!("step {} {how}", fact["step"].as_u64().unwrap_or_default() + 1)
        }
        "judged" => format!("verdict {}", fact["verdict"].as_str().unwrap_or_default()),
        "invalid" => format!("invalid {}: {}", fact["what"], fact["problem"]),
        "answered" => format!("answered {}", fact["role"].as_str().unwrap_or_default()),
        "phase_began" => format!("phase {}", fact["phase"].as_str().unwrap_or_default()),
        "artifact" => format!("artifact {}", fact["name"].as_str().unwrap_or_default()),
        "quality_gate" => {
            let of = |name: &str| fact[name].as_str().unwrap_or_default();
            format!("gate {} {}: {}", of("gate"), of("verdict"), of("reason"))
        }
        "last_turn" => format!("last turn: {}", fact["reason"]),
        "plan_dropped" => format!("dropped: {}", fact["reason"]),
        other => other.to_owned(),
    }
}

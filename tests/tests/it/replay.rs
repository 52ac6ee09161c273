//! Replay on real runs: the view, requests proven by their hash, decisions derived again, and recorded tool
//! calls run again.

mod tampering;
mod tools;

use anyhow::{Context as _, Result, ensure};
use docket_schema::ids::{DecisionHash, RunId};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, FinishedProcess, LeaseDuration, RunHistory, SampleRepository, StoreLocation,
        WorkerOptions, WorkerProcess, acquire_scenario_slot,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};
use serde_json::Value;

/// Six turns: one whose first attempt fails, one whose output is cut, one that ends in a check that fails.
const SCRIPT: &str = r#"
[[turns]]
text = "I make a page and look at it."
[[turns.calls]]
name = "create_file"
args = { path = "docs/page.md", content = "A page\n" }
[[turns.calls]]
name = "read_file"
args = { path = "docs/page.md" }
[[turns.calls]]
name = "list_files"

[[turns]]
fault = { kind = "rate_limited", retry_after_ms = 1 }
[[turns.calls]]
name = "run_command"
args = { command = "seq 1 20000; echo two >> docs/page.md; exit 7" }

[[turns]]
[[turns.calls]]
name = "edit_file"
args = { path = "notes.txt", edits = [{ search = "first", replace = "erste" }] }

[[turns]]
text = "Done."

[[turns]]
text = "Right, that was missing."
[[turns.calls]]
name = "run_command"
args = { command = "touch finished" }

[[turns]]
text = "Done, really."
"#;

/// A run that has ended, and the coordinator that has it.
struct ReplayFixture {
    coordinator: CoordinatorProcess,
    run: RunId,
    id: String,
    history: RunHistory,
    server: ModelServer,
}

async fn play_run(provider: ModelProvider) -> Result<ReplayFixture> {
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
    let sample = SampleRepository::new(&[("notes.txt", "first\nsecond\n")])?;
    let args = ["--model", "openai:replay", "--tests", "test -e finished", "--queue", "template"];
    let (template, spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let model = server.model_ref(provider, "replay");
    let task = coordinator.submit_like(&spec, &"replay".parse()?, model).await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    let run = view.task.last_run.context("a run")?;
    let history = coordinator.run_history(run).await?;
    ensure!(
        history.count_kind("ModelRequested") == 7 && history.count_kind("GateFinished") == 2,
        "{}",
        history.format_kinds()
    );
    worker.drain().await?;
    Ok(ReplayFixture { coordinator, run, id: run.to_string(), history, server })
}

impl ReplayFixture {
    async fn run_replay(&self, args: &[&str]) -> Result<FinishedProcess> {
        let mut all = vec!["replay", self.id.as_str()];
        all.extend(args);
        self.coordinator.run_docket(&all).await
    }

    async fn replay_json(&self, args: &[&str]) -> Result<Vec<Value>> {
        let mut all = args.to_vec();
        all.push("--json");
        parse_lines(&self.run_replay(&all).await?.into_stdout()?)
    }
}

fn parse_lines(text: &str) -> Result<Vec<Value>> {
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// Any range of turns reads as those turns do among all.
async fn check_turn_ranges(played: &ReplayFixture) -> Result<()> {
    let all = played.replay_json(&[]).await?;
    let numbers: Vec<u64> = all.iter().filter_map(|turn| turn["turn"].as_u64()).collect();
    ensure!(numbers == [0, 1, 2, 3, 4, 5, 6], "{numbers:?}");
    ensure!(played.replay_json(&["--from", "2", "--to", "3"]).await? == all[2..=3]);
    ensure!(played.replay_json(&["--from", "5"]).await? == all[5..]);
    ensure!(played.replay_json(&["--to", "1"]).await? == all[..=1]);
    ensure!(played.replay_json(&["--turn", "3"]).await? == all[3..=3]);
    // A turn read alone knows what stood before it.
    let changes = all[2]["changes"].to_string();
    ensure!(changes.contains(r#""what":"changed""#) && changes.contains(r" A page\n+two"), "{changes}");
    for outside in [["--turn", "7"].as_slice(), &["--from", "7"]] {
        let answer = played.run_replay(outside).await?;
        ensure!(answer.code() == Some(3) && answer.stderr.contains("turns 0 to 6"), "{answer:?}");
    }
    let crossed = played.run_replay(&["--from", "3", "--to", "2"]).await?;
    ensure!(crossed.code() == Some(2) && crossed.stderr.contains("--from 3 is after --to 2"), "{crossed:?}");
    // The tool did what was asked; what it ran did not end well, and that is what counts.
    let call = &all[2]["tools"][0];
    ensure!(call["status"] == "ok" && call["came_to"] == "exit 7" && call["failed"] == true, "{call}");
    ensure!(call["exit"] == 7 && all[1]["tools"][0]["failed"] == false, "{call}");
    let text = played.run_replay(&["--turn", "2"]).await?.into_stdout()?;
    ensure!(text.contains("exit 7 ") && !text.contains(" ok "), "{text}");
    let text = played.run_replay(&["--from", "2", "--to", "2"]).await?.into_stdout()?;
    ensure!(text.starts_with("replay (view) of run") && text.contains("rate_limited"), "{text}");
    Ok(())
}

/// The exact bytes that the model server got, each proven by the hash in the log.
async fn check_requests(played: &ReplayFixture) -> Result<()> {
    let sent = played.server.requests();
    ensure!(sent.len() == 7, "{} requests", sent.len());
    let places = [("1", "1"), ("2", "1"), ("2", "2"), ("3", "1"), ("4", "1"), ("5", "1"), ("6", "1")];
    for (request, (turn, attempt)) in sent.iter().zip(places) {
        let args = ["--turn", turn, "--request", "--attempt", attempt];
        let made = played.run_replay(&args).await?;
        ensure!(made.stdout.as_bytes() == request.body, "turn {turn}, attempt {attempt}");
        let hash = DecisionHash::hash_bytes(&request.body).to_string();
        ensure!(made.stderr.contains("replay (view)") && made.stderr.contains(&hash), "{}", made.stderr);
        let said = played.replay_json(&args).await?;
        ensure!(said[0]["proven"] == true && said[0]["recorded_hash"] == hash.as_str(), "{said:?}");
        ensure!(said[0]["body"]["text"].as_str().map(str::as_bytes) == Some(&request.body[..]));
    }
    let last = played.run_replay(&["--turn", "2", "--request"]).await?;
    ensure!(last.stdout.as_bytes() == sent[2].body, "the last attempt is meant");
    ensure!(last.stderr.contains("called 2 times") && last.stderr.contains("1 (failed), 2 (answered)"));
    for missing in [["--turn", "0", "--request"].as_slice(), &["--turn", "1", "--request", "--attempt", "9"]]
    {
        ensure!(played.run_replay(missing).await?.code() == Some(3), "{missing:?}");
    }
    ensure!(played.run_replay(&["--request"]).await?.code() == Some(2), "a request needs its turn");
    Ok(())
}

/// All that a call put out, where the model saw a part.
async fn check_outputs(played: &ReplayFixture) -> Result<()> {
    let shown = played.replay_json(&["--turn", "2"]).await?;
    let tool = &shown[0]["tools"][0];
    let id = tool["call"].as_str().context("a call's id")?;
    let whole = played.run_replay(&["--output", id]).await?.into_stdout()?;
    ensure!(tool["result"].as_str().is_some_and(|text| !text.contains("\n9999\n")), "{tool}");
    ensure!(whole.contains("\n9999\n") && tool["output_bytes"].as_u64() == Some(whole.len() as u64));
    let missing = played.run_replay(&["--output", "t99-0"]).await?;
    ensure!(missing.code() == Some(3) && missing.stderr.contains("t99-0"), "{missing:?}");
    Ok(())
}

/// Both commands derive the same, and say which replay that is.
async fn check_verification(played: &ReplayFixture) -> Result<()> {
    let one = played.replay_json(&["--verify"]).await?;
    let other = played.coordinator.run_docket(&["verify", &played.id, "--json"]).await?.into_stdout()?;
    ensure!(one == parse_lines(&other)?, "{one:?} {other}");
    ensure!(one[0]["replay"] == "verify" && one[0]["ok"] == true && one[0]["requests"] == 7, "{one:?}");
    let text = played.run_replay(&["--verify"]).await?.into_stdout()?;
    ensure!(text.starts_with("replay (verify)") && text.contains("no model is called"), "{text}");
    let help = played.coordinator.run_docket(&["replay", "--help"]).await?.into_stdout()?;
    ensure!(help.contains("docket fork RUN --turn N"), "{help}");
    Ok(())
}

async fn check_replay(provider: ModelProvider) -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let played = play_run(provider).await?;
    check_turn_ranges(&played).await?;
    check_requests(&played).await?;
    check_outputs(&played).await?;
    check_verification(&played).await?;
    tampering::check_each_altered_field_is_named(&played).await?;
    tampering::check_missing_or_extra_events_are_named(&played).await?;
    played.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn anthropic_run_is_replayed_and_verified() -> Result<()> {
    Box::pin(check_replay(ModelProvider::Anthropic)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_responses_run_is_replayed_and_verified() -> Result<()> {
    Box::pin(check_replay(ModelProvider::OpenAiResponses)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openai_run_is_replayed_and_verified() -> Result<()> {
    Box::pin(check_replay(ModelProvider::OpenAi)).await
}

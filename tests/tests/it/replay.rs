//! Replay on real runs: the view, requests proven by their hash, decisions derived again, and recorded tool
//! calls run again.

mod tamper;
mod tools;

use anyhow::{Context as _, Result, ensure};
use docket_schema::ids::{DecisionHash, RunId};
use docket_tests::{
    model_server::ModelServer,
    system::{Coordinator, Finished, History, LeaseTime, Place, Sample, Worker, WorkerOptions, room},
};
use docket_worker::model::{Provider, ScriptedModel};
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
struct Played {
    coordinator: Coordinator,
    run: RunId,
    id: String,
    history: History,
    server: ModelServer,
}

async fn play(provider: Provider) -> Result<Played> {
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
    let sample = Sample::new(&[("notes.txt", "first\nsecond\n")])?;
    let args = ["--model", "openai:replay", "--tests", "test -e finished", "--queue", "template"];
    let (template, spec) = sample.submit(&coordinator, &args).await?;
    coordinator.client().cancel(template, "a template").await?;
    let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
    let model = server.model(provider, "replay");
    let task = coordinator.submit_like(&spec, &"replay".parse()?, model).await?;
    let view = coordinator.ended(task).await.with_context(|| worker.tail())?;
    let run = view.task.last_run.context("a run")?;
    let history = coordinator.history(run).await?;
    ensure!(
        history.count("ModelRequested") == 7 && history.count("GateFinished") == 2,
        "{}",
        history.kinds()
    );
    worker.drain().await?;
    Ok(Played { coordinator, run, id: run.to_string(), history, server })
}

impl Played {
    async fn replay(&self, args: &[&str]) -> Result<Finished> {
        let mut all = vec!["replay", self.id.as_str()];
        all.extend(args);
        self.coordinator.docket(&all).await
    }

    async fn json(&self, args: &[&str]) -> Result<Vec<Value>> {
        let mut all = args.to_vec();
        all.push("--json");
        lines(&self.replay(&all).await?.ok()?)
    }
}

fn lines(text: &str) -> Result<Vec<Value>> {
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

/// Any range of turns reads as those turns do among all.
async fn ranges(played: &Played) -> Result<()> {
    let all = played.json(&[]).await?;
    let numbers: Vec<u64> = all.iter().filter_map(|turn| turn["turn"].as_u64()).collect();
    ensure!(numbers == [0, 1, 2, 3, 4, 5, 6], "{numbers:?}");
    ensure!(played.json(&["--from", "2", "--to", "3"]).await? == all[2..=3]);
    ensure!(played.json(&["--from", "5"]).await? == all[5..]);
    ensure!(played.json(&["--to", "1"]).await? == all[..=1]);
    ensure!(played.json(&["--turn", "3"]).await? == all[3..=3]);
    // A turn read alone knows what stood before it.
    let changes = all[2]["changes"].to_string();
    ensure!(changes.contains(r#""what":"changed""#) && changes.contains(r" A page\n+two"), "{changes}");
    for outside in [["--turn", "7"].as_slice(), &["--from", "7"]] {
        let answer = played.replay(outside).await?;
        ensure!(answer.code() == Some(3) && answer.stderr.contains("from 0 to 6"), "{answer:?}");
    }
    let crossed = played.replay(&["--from", "3", "--to", "2"]).await?;
    ensure!(
        crossed.code() == Some(2) && crossed.stderr.contains("--from 3 comes after --to 2"),
        "{crossed:?}"
    );
    // The tool did what was asked; what it ran did not end well, and that is what counts.
    let call = &all[2]["tools"][0];
    ensure!(call["status"] == "ok" && call["came_to"] == "exit 7" && call["failed"] == true, "{call}");
    ensure!(call["exit"] == 7 && all[1]["tools"][0]["failed"] == false, "{call}");
    let text = played.replay(&["--turn", "2"]).await?.ok()?;
    ensure!(text.contains("exit 7 ") && !text.contains(" ok "), "{text}");
    let text = played.replay(&["--from", "2", "--to", "2"]).await?.ok()?;
    ensure!(text.starts_with("replay (view) of run") && text.contains("rate_limited"), "{text}");
    Ok(())
}

/// The exact bytes that the model server got, each proven by the hash in the log.
async fn requests(played: &Played) -> Result<()> {
    let sent = played.server.requests();
    ensure!(sent.len() == 7, "{} requests", sent.len());
    let places = [("1", "1"), ("2", "1"), ("2", "2"), ("3", "1"), ("4", "1"), ("5", "1"), ("6", "1")];
    for (request, (turn, attempt)) in sent.iter().zip(places) {
        let args = ["--turn", turn, "--request", "--attempt", attempt];
        let made = played.replay(&args).await?;
        ensure!(made.stdout.as_bytes() == request.body, "turn {turn}, attempt {attempt}");
        let hash = DecisionHash::of(&request.body).to_string();
        ensure!(made.stderr.contains("replay (view)") && made.stderr.contains(&hash), "{}", made.stderr);
        let said = played.json(&args).await?;
        ensure!(said[0]["proven"] == true && said[0]["recorded_hash"] == hash.as_str(), "{said:?}");
        ensure!(said[0]["body"]["text"].as_str().map(str::as_bytes) == Some(&request.body[..]));
    }
    let last = played.replay(&["--turn", "2", "--request"]).await?;
    ensure!(last.stdout.as_bytes() == sent[2].body, "the last attempt is meant");
    ensure!(last.stderr.contains("asked 2 times") && last.stderr.contains("1 (failed), 2 (answered)"));
    for missing in [["--turn", "0", "--request"].as_slice(), &["--turn", "1", "--request", "--attempt", "9"]]
    {
        ensure!(played.replay(missing).await?.code() == Some(3), "{missing:?}");
    }
    ensure!(played.replay(&["--request"]).await?.code() == Some(2), "a request needs its turn");
    Ok(())
}

/// All that a call put out, where the model saw a part.
async fn outputs(played: &Played) -> Result<()> {
    let shown = played.json(&["--turn", "2"]).await?;
    let tool = &shown[0]["tools"][0];
    let id = tool["call"].as_str().context("a call's id")?;
    let whole = played.replay(&["--output", id]).await?.ok()?;
    ensure!(tool["result"].as_str().is_some_and(|text| !text.contains("\n9999\n")), "{tool}");
    ensure!(whole.contains("\n9999\n") && tool["output_bytes"].as_u64() == Some(whole.len() as u64));
    let missing = played.replay(&["--output", "t99-0"]).await?;
    ensure!(missing.code() == Some(3) && missing.stderr.contains("t99-0"), "{missing:?}");
    Ok(())
}

/// Both commands derive the same, and say which replay that is.
async fn verified(played: &Played) -> Result<()> {
    let one = played.json(&["--verify"]).await?;
    let other = played.coordinator.docket(&["verify", &played.id, "--json"]).await?.ok()?;
    ensure!(one == lines(&other)?, "{one:?} {other}");
    ensure!(one[0]["replay"] == "verify" && one[0]["ok"] == true && one[0]["requests"] == 7, "{one:?}");
    let text = played.replay(&["--verify"]).await?.ok()?;
    ensure!(text.starts_with("replay (verify)") && text.contains("no model is asked"), "{text}");
    let help = played.coordinator.docket(&["replay", "--help"]).await?.ok()?;
    ensure!(help.contains("docket fork RUN --turn N"), "{help}");
    Ok(())
}

async fn look_back(provider: Provider) -> Result<()> {
    let _room = room().await;
    let played = play(provider).await?;
    ranges(&played).await?;
    requests(&played).await?;
    outputs(&played).await?;
    verified(&played).await?;
    tamper::each_field_is_named(&played).await?;
    tamper::what_is_missing_or_too_much_is_named(&played).await?;
    played.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_anthropics_protocol_is_looked_back_at() -> Result<()> {
    Box::pin(look_back(Provider::Anthropic)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_openais_responses_is_looked_back_at() -> Result<()> {
    Box::pin(look_back(Provider::OpenAiResponses)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_openais_protocol_is_looked_back_at() -> Result<()> {
    Box::pin(look_back(Provider::OpenAi)).await
}

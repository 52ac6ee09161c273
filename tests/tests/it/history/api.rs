//! The same past through the API: what its routes answer is what the commands print, and a token sees of it what
//! its role allows.

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{CoordinatorProcess, LeaseDuration, StoreLocation};
use serde_json::{Value, json};

use super::fixture::{HistoryFixture, LAST};

struct HistoryApi<'a> {
    coordinator: &'a CoordinatorProcess,
    http: reqwest::Client,
    token: String,
    run: String,
}

impl HistoryApi<'_> {
    async fn get(&self, path: &str) -> Result<(u16, String)> {
        let url = format!("{}/v1/runs/{}/{path}", self.coordinator.address(), self.run);
        let answer = self.http.get(url).bearer_auth(&self.token).send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    async fn json(&self, path: &str) -> Result<Value> {
        let (status, text) = self.get(path).await?;
        ensure!(status == 200, "{path}: {status} {text}");
        Ok(serde_json::from_str(&text)?)
    }
}

/// On the scene's own home, once nobody else serves it.
pub(super) async fn check_api_matches_commands(scene: &HistoryFixture) -> Result<()> {
    let coordinator =
        CoordinatorProcess::start_in(scene.home.path(), StoreLocation::HomeFolder, LeaseDuration::Usual)
            .await?;
    drop(rustls::crypto::ring::default_provider().install_default());
    let http = reqwest::Client::builder().no_proxy().build()?;
    let found: Value = {
        let url = format!("{}/v1/resolve/{}", coordinator.address(), scene.run);
        http.get(url).bearer_auth(coordinator.token()).send().await?.json().await?
    };
    let run = found["runs"][0].as_str().with_context(|| format!("a run: {found}"))?.to_owned();
    let token = coordinator.token().to_owned();
    let all = HistoryApi { coordinator: &coordinator, http: http.clone(), token, run: run.clone() };
    check_turns(scene, &all).await?;
    check_trees(scene, &all).await?;
    let made = coordinator
        .run_docket(&["token", "create", "--name", "eve", "--role", "read", "--expires", "1h", "--json"])
        .await?
        .into_stdout()?;
    let secret: Value = serde_json::from_str(&made)?;
    let token = secret["secret"].as_str().context("a secret")?.to_owned();
    check_reader_sees_no_files(&HistoryApi { coordinator: &coordinator, http, token, run }).await?;
    check_bad_requests(&all).await?;
    coordinator.end_and_check().await
}

async fn check_turns(scene: &HistoryFixture, all: &HistoryApi<'_>) -> Result<()> {
    let timeline = all.json("timeline").await?;
    let rows = timeline["turns"].as_array().context("turns")?;
    ensure!(rows.len() as u64 == LAST + 1 && timeline["standing"] == "succeeded", "{timeline}");
    ensure!(rows.iter().all(|row| row["ended"] == true || row["turn"] == LAST), "{timeline}");
    ensure!(timeline["opens_at"] == LAST && timeline["engine"] == "react/1", "{timeline}");
    ensure!(
        rows[1]["tools"]
            == json!([{ "name": "read_file", "calls": 1 }, { "name": "create_file", "calls": 1 }]),
        "{}",
        rows[1]
    );
    ensure!(rows[2]["changed_files"] == true && rows[8]["changed_files"] == false, "{timeline}");
    // What the run cost so far, at each of its turns, is what its model calls cost until there.
    let costs = scene.docket_json(&["cost", &scene.run, "--by", "call"]).await?;
    let calls = costs["lines"].as_array().with_context(|| format!("calls: {costs}"))?;
    for row in rows {
        let until = calls.iter().filter(|call| call["call"]["turn"].as_u64() <= row["turn"].as_u64());
        let sum: u64 = until.filter_map(|call| call["call"]["cost_nusd"].as_u64()).sum();
        ensure!(row["cost_so_far_nusd"] == sum && (sum > 0 || row["turn"] == 0), "{sum}, not as {row}");
    }
    let printed = scene.run_docket(&["replay", &scene.run, "--json"]).await?.into_stdout()?;
    for (turn, line) in printed.lines().enumerate() {
        let told: Value = serde_json::from_str(line)?;
        let answer = all.json(&format!("turn?turn={turn}")).await?;
        ensure!(answer["turn"] == told, "turn {turn}:\n{answer:#}\n{told:#}");
    }
    let last = all.json("turn").await?;
    ensure!(last["turn"]["turn"] == LAST, "the newest without a number: {last}");
    let ledger = &all.json("turn?turn=3").await?["ledger"];
    let files: Vec<&str> =
        ledger["files"].as_array().into_iter().flatten().filter_map(|f| f["path"].as_str()).collect();
    ensure!(files.contains(&"notes.md") && files.contains(&"src/a.txt"), "{ledger}");
    let (status, output) = all.get("output?call=t1-0").await?;
    ensure!(status == 200 && output.contains("one") && output.contains("three"), "{status} {output}");
    let (status, lines) = all.get("export?form=jsonl").await?;
    ensure!(
        status == 200 && lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()),
        "{lines}"
    );
    let atif = all.json("export?form=atif").await?;
    ensure!(atif["schema_version"].as_str().is_some_and(|version| version.starts_with("ATIF")), "{atif}");
    // A file is sent as it is read: its length is told beforehand, and it is what the command writes.
    let url = format!("{}/v1/runs/{}/export?form=docket", all.coordinator.address(), all.run);
    let answer = all.http.get(url).bearer_auth(&all.token).send().await?;
    let told = answer.content_length();
    ensure!(answer.headers()["content-type"] == "application/zstd", "{:?}", answer.headers());
    let sent = answer.bytes().await?;
    ensure!(told == Some(sent.len() as u64), "{told:?} bytes announced, {} sent", sent.len());
    let aside = tempfile::tempdir()?;
    let file = aside.path().join("run.docket");
    scene.run_docket(&["export", &scene.run, "-o", file.to_str().context("UTF-8")?]).await?.into_stdout()?;
    ensure!(std::fs::read(&file)? == sent, "the same bytes");
    Ok(())
}

async fn check_trees(scene: &HistoryFixture, all: &HistoryApi<'_>) -> Result<()> {
    for (turn, path) in [("3", "tool.sh"), ("3", "src"), ("0", "."), ("3", "src/link"), ("1", "src/a.txt")] {
        let told = scene.docket_json(&["cat", &scene.run, "--turn", turn, path]).await?;
        let answer = all.json(&format!("files?turn={turn}&path={path}")).await?;
        ensure!(answer == told, "{path} after turn {turn}:\n{answer:#}\n{told:#}");
    }
    let whole = all.json("diff").await?;
    ensure!(whole["from"].is_null() && whole["to"] == LAST && whole["with"] == all.run, "{whole}");
    let part = all.json("diff?from=1&to=2").await?;
    let changes = part["changes"].as_array().context("changes")?;
    ensure!(changes.len() == 1 && changes[0]["path"] == "src/a.txt", "{part}");
    let diff = changes[0]["diff"].as_str().unwrap_or_default();
    ensure!(diff.contains("-two\n+TWO\n"), "{diff}");
    let beside = all.json(&format!("diff?from=2&with={}&to=1", all.run)).await?;
    ensure!(beside["changes"][0]["diff"].as_str().is_some_and(|d| d.contains("-TWO\n+two\n")), "{beside}");
    Ok(())
}

/// What a workspace held is exact: a token that reads sees what was said and done, and no file.
async fn check_reader_sees_no_files(eve: &HistoryApi<'_>) -> Result<()> {
    let answer = eve.json("turn?turn=2").await?;
    ensure!(
        answer["diffs_withheld"] == true && answer["turn"]["changes"][0]["path"] == "src/a.txt",
        "{answer}"
    );
    ensure!(answer["turn"]["changes"][0]["diff"].is_null(), "{answer}");
    ensure!(answer["turn"]["tools"][0]["name"] == "edit_file", "{answer}");
    for (path, expected) in [
        ("timeline", 200),
        ("output?call=t1-0", 200),
        ("export?form=atif", 200),
        ("files", 403),
        ("diff", 403),
        ("export?form=docket", 403),
    ] {
        let (status, text) = eve.get(path).await?;
        ensure!(status == expected, "{path}: {status} {text}");
    }
    Ok(())
}

async fn check_bad_requests(all: &HistoryApi<'_>) -> Result<()> {
    for (path, status, word) in [
        ("turn?turn=99", 404, "turn 99 does not exist"),
        ("turn?turn=x", 400, "turn"),
        ("files?path=../x", 400, "leaves the workspace"),
        ("files?path=/etc/passwd", 400, "absolute"),
        ("files?path=src/b.txt", 404, "`src/a.txt`"),
        ("output?call=t99-0", 404, "no call"),
        ("output", 400, "call"),
        ("diff?from=99", 404, "turn 99 does not exist"),
        ("export?form=pdf", 400, "pdf"),
        (&format!("diff?with={}", unknown_uuid()), 404, "does not exist"),
    ] {
        let (found, text) = all.get(path).await?;
        ensure!(found == status && text.contains(word), "{path}: {found} {text}");
    }
    Ok(())
}

fn unknown_uuid() -> String {
    "01900000-0000-7000-8000-000000000001".to_owned()
}

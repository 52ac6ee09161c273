//! What a person changed in a shell, as every way of looking back tells it.

use anyhow::{Context as _, Result, ensure};
use docket_schema::ids::RunId;
use docket_tests::system::CoordinatorProcess;

/// The words of which the model learned of it stand in every replay, and the files are nobody else's work.
pub(super) async fn check_manual_changes(coordinator: &CoordinatorProcess, run: RunId) -> Result<()> {
    const WORDS: &str = "A person changed the workspace while you were away.";
    let run = run.to_string();
    let json = async |args: &[&str]| -> Result<serde_json::Value> {
        Ok(serde_json::from_str(&coordinator.run_docket(args).await?.into_stdout()?)?)
    };
    let text = coordinator.run_docket(&["replay", &run, "--full"]).await?.into_stdout()?;
    ensure!(text.contains(WORDS) && text.contains("added new/empty manually by "), "{text}");
    ensure!(text.contains("added old.txt\n"), "what the run did is its own: {text}");
    let atif = json(&["export", &run, "--format", "atif"]).await?;
    let steps = atif["steps"].as_array().context("steps")?;
    let told =
        |step: &&serde_json::Value| step["message"].as_str().is_some_and(|said| said.starts_with(WORDS));
    ensure!(steps.iter().filter(told).count() == 1, "{atif}");
    let turn = json(&["replay", &run, "--turn", "1", "--json"]).await?;
    ensure!(turn["told"][0].as_str().is_some_and(|told| told.starts_with(WORDS)), "{turn}");
    let changes = turn["changes"].as_array().context("changes")?;
    let by_hand = |hand: bool| -> Vec<&str> {
        let of = changes.iter().filter(|change| change["by_hand"].is_string() == hand);
        of.filter_map(|change| change["path"].as_str()).filter(|path| !path.starts_with('n')).collect()
    };
    ensure!(by_hand(false) == ["old.txt", "state.txt"] && by_hand(true) == by_hand(false), "{turn}");

    let own = coordinator.run_docket(&["diff", &run, "--turn", "1"]).await?;
    ensure!(
        own.stderr.contains("manually at the end of turn 1, not shown: new, new/empty, old.txt"),
        "{own:?}"
    );
    ensure!(own.stdout.contains("+broken") && !own.stdout.contains("mended"), "{own:?}");
    let hand = coordinator.run_docket(&["diff", &run, "--turn", "1", "--by-hand"]).await?.into_stdout()?;
    ensure!(hand.contains("-broken\n+mended") && hand.contains("b/new/empty"), "{hand}");
    let row = json(&["blame", &run, "state.txt", "--turn", "1", "--json"]).await?;
    ensure!(row["by"][0].as_str().is_some_and(|by| by.starts_with("by hand: ")), "{row}");
    ensure!(row["by"].as_array().map(Vec::len) == Some(1) && row["said"].is_null(), "{row}");
    Ok(())
}

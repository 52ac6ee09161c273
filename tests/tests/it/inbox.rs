//! The inbox through the binary: a coordinator takes what an application commits by itself, and `docket inbox` shows
//! what is no task.

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, acquire_scenario_slot, wait_until,
};
use sqlx::Connection as _;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn committed_inbox_rows_become_tasks_and_invalid_rows_are_listed() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let repo = sample.path().to_str().context("UTF-8")?;
    let script = sample.write_script("[[turns]]\ntext = \"Done.\"\n")?;
    let script = script.to_str().context("UTF-8")?;
    let submit = [
        "submit",
        "template",
        "--repo",
        repo,
        "--model",
        "scripted:s",
        "--script",
        script,
        "--tests",
        "true",
    ];
    let template = coordinator.run_docket(&submit).await?.into_stdout()?.trim().to_owned();
    ensure!(coordinator.run_docket(&["inbox"]).await?.stderr.contains("the inbox is empty"));

    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(coordinator.home().join("docket.db"));
    let mut shop = sqlx::SqliteConnection::connect_with(&options).await?;
    let insert = "INSERT INTO inbox (spec, submitted_by) VALUES ($1, 'shop') RETURNING id";
    let enqueue = async |shop: &mut sqlx::SqliteConnection, spec: String| {
        sqlx::query_scalar::<_, String>(insert).bind(spec).fetch_one(shop).await
    };
    let good = enqueue(&mut shop, format!(r#"{{"like": "{template}", "title": "order 7"}}"#)).await?;
    let bad = enqueue(&mut shop, format!(r#"{{"like": "{template}", "tittle": "order 8"}}"#)).await?;
    let task =
        wait_until("the task", async || coordinator.client().get_task(good.parse().ok()?).await.ok()).await?;
    ensure!(task.task.spec.title == "order 7", "{:?}", task.task.spec);
    let listed = wait_until("the reason", async || {
        let listed = coordinator.run_docket(&["inbox"]).await.ok()?.into_stdout().ok()?;
        listed.contains("unknown field `tittle`").then_some(listed)
    })
    .await?;
    ensure!(listed.contains(&bad) && listed.contains("shop") && !listed.contains(&good), "{listed}");

    coordinator.run_docket(&["inbox", "retry", "--all"]).await?.into_stdout()?;
    coordinator.run_docket(&["inbox", "drop", &bad]).await?.into_stdout()?;
    let gone = coordinator.run_docket(&["inbox", "drop", &bad]).await?;
    ensure!(gone.code() == Some(3) && gone.stderr.contains("no such row"), "{gone:?}");
    let audit = coordinator.run_docket(&["logs", "system/audit"]).await?.into_stdout()?;
    ensure!(audit.contains(&format!("requested removal of inbox row {bad}")), "{audit}");
    coordinator.end_and_check().await
}

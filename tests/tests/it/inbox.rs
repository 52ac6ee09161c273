//! The inbox through the binary: a coordinator takes what an application commits by itself, and `docket inbox` shows
//! what is no task.

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{Coordinator, LeaseTime, Place, Sample, room, until};
use sqlx::Connection as _;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_application_commits_becomes_a_task_and_what_is_none_is_listed() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let sample = Sample::new(&[("a.txt", "a\n")])?;
    let repo = sample.path().to_str().context("UTF-8")?;
    let script = sample.script("[[turns]]\ntext = \"Done.\"\n")?;
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
    let template = coordinator.docket(&submit).await?.ok()?.trim().to_owned();
    ensure!(coordinator.docket(&["inbox"]).await?.stderr.contains("the inbox is empty"));

    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(coordinator.home().join("docket.db"));
    let mut shop = sqlx::SqliteConnection::connect_with(&options).await?;
    let insert = "INSERT INTO inbox (spec, submitted_by) VALUES ($1, 'shop') RETURNING id";
    let enqueue = async |shop: &mut sqlx::SqliteConnection, spec: String| {
        sqlx::query_scalar::<_, String>(insert).bind(spec).fetch_one(shop).await
    };
    let good = enqueue(&mut shop, format!(r#"{{"like": "{template}", "title": "order 7"}}"#)).await?;
    let bad = enqueue(&mut shop, format!(r#"{{"like": "{template}", "tittle": "order 8"}}"#)).await?;
    let task = until("the task", async || coordinator.client().task(good.parse().ok()?).await.ok()).await?;
    ensure!(task.task.spec.title == "order 7", "{:?}", task.task.spec);
    let listed = until("the reason", async || {
        let listed = coordinator.docket(&["inbox"]).await.ok()?.ok().ok()?;
        listed.contains("unknown field `tittle`").then_some(listed)
    })
    .await?;
    ensure!(listed.contains(&bad) && listed.contains("shop") && !listed.contains(&good), "{listed}");

    coordinator.docket(&["inbox", "retry", "--all"]).await?.ok()?;
    coordinator.docket(&["inbox", "drop", &bad]).await?.ok()?;
    let gone = coordinator.docket(&["inbox", "drop", &bad]).await?;
    ensure!(gone.code() == Some(3) && gone.stderr.contains("there is no such row"), "{gone:?}");
    let audit = coordinator.docket(&["logs", "system/audit"]).await?.ok()?;
    ensure!(audit.contains(&format!("asked to drop row {bad} of the inbox")), "{audit}");
    coordinator.end_and_check().await
}

//! Logs and databases of a later docket: what this build cannot read or derive is said as that, with exit code 7, and is
//! never called a fault.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    event::{Envelope, Head, Payload},
    export::InMemoryExport,
    ids::StreamId,
};
use docket_tests::{
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, FinishedProcess, LeaseDuration, StoreLocation, TestProgram,
        acquire_scenario_slot, fresh_database, run_program,
    },
};
use sqlx::Connection as _;

/// A golden log with one event rewritten, as a later build would have chained it.
fn rewrite_golden_log(alter: impl Fn(&mut Envelope)) -> Result<InMemoryExport> {
    let golden = include_bytes!("../../fixtures/0.1/whole.run.jsonl");
    let mut export = InMemoryExport::parse(golden)?;
    let mut heads: BTreeMap<StreamId, Head> = BTreeMap::new();
    for event in &mut export.events {
        alter(event);
        let head = heads.entry(event.stream.clone()).or_insert(Head::EMPTY);
        event.prev_hash = head.hash;
        event.hash = event.compute_hash();
        *head = Head { seq: event.seq, hash: event.hash };
    }
    Ok(export)
}

async fn run_docket(home: &Path, args: &[&str]) -> Result<FinishedProcess> {
    run_program(TestProgram::Docket, home, &[("DOCKET_HOME", home.as_os_str())], args).await
}

#[tokio::test]
async fn run_of_an_unknown_engine_is_shown_without_judging_decisions() -> Result<()> {
    let export = rewrite_golden_log(|event| {
        if event.kind == "RunStarted" {
            let payload = event.payload.as_str();
            event.payload =
                Payload::from_store(payload.replacen(r#"{"name":"react""#, r#"{"name":"later""#, 1));
        }
    })?;
    let home = tempfile::tempdir()?;
    let file = home.path().join("later.run.jsonl");
    std::fs::write(&file, export.to_text())?;
    let (run, file) = (export.header.run.to_string(), file.to_str().context("UTF-8")?);
    let imported = run_docket(home.path(), &["import", file]).await?;
    ensure!(imported.code() == Some(0), "{imported:?}");
    for args in [&["verify"][..], &["verify", &run], &["replay", &run, "--verify"]] {
        let verified = run_docket(home.path(), args).await?;
        ensure!(verified.code() == Some(7), "{args:?}: {verified:?}");
        ensure!(verified.stdout.contains("this build lacks engine later"), "{verified:?}");
        ensure!(verified.stdout.contains("the log is valid"), "{verified:?}");
    }
    // To look needs no engine.
    let shown = run_docket(home.path(), &["replay", &run]).await?;
    ensure!(shown.code() == Some(0) && shown.stdout.contains("turn 1"), "{shown:?}");
    Ok(())
}

#[tokio::test]
async fn event_of_a_later_version_is_reported_and_not_imported() -> Result<()> {
    let export = rewrite_golden_log(|event| {
        if event.kind == "ModelAnswered" {
            event.version = 99;
        }
    })?;
    let home = tempfile::tempdir()?;
    let file = home.path().join("later.run.jsonl");
    std::fs::write(&file, export.to_text())?;
    let refused = run_docket(home.path(), &["import", file.to_str().context("UTF-8")?]).await?;
    ensure!(refused.code() == Some(7), "{refused:?}");
    ensure!(refused.stderr.contains("`ModelAnswered` version 99"), "{refused:?}");
    let listed = run_docket(home.path(), &["ps", "--json"]).await?;
    ensure!(listed.stdout.trim().is_empty() || listed.stdout.trim() == "[]", "{listed:?}");
    Ok(())
}

/// As a later docket leaves its database: with a step of the schema that this build does not know.
const LATER: &str = "INSERT INTO schema_steps (version, name, hash) VALUES (999, 'later', 'x')";

/// Every command that would open the database says so.
async fn check_is_refused(home: &Path, env: &[(&str, &std::ffi::OsStr)], commands: &[&[&str]]) -> Result<()> {
    for args in commands {
        let refused = run_program(TestProgram::Docket, home, env, args).await?;
        ensure!(refused.code() == Some(7), "{args:?}: {refused:?}");
        ensure!(refused.stderr.contains("was applied by a newer docket"), "{args:?}: {refused:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_database_schema_is_refused_with_exit_code_7() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    CoordinatorProcess::start_in(home.path(), StoreLocation::HomeFolder, LeaseDuration::Usual)
        .await?
        .end_and_check()
        .await?;
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(home.path().join("docket.db"));
    let mut later = sqlx::SqliteConnection::connect_with(&options).await?;
    sqlx::raw_sql(LATER).execute(&mut later).await?;
    later.close().await?;
    let env = [("DOCKET_HOME", home.path().as_os_str())];
    let commands: [&[&str]; 5] = [
        &["serve"],
        &["ps"],
        &["verify"],
        &["db", "rebuild"],
        &["submit", "x", "--empty", "--model", "openai:x"],
    ];
    check_is_refused(home.path(), &env, &commands).await?;

    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let StoreLocation::Postgres(url) = fresh_database(&cluster).await? else {
        anyhow::bail!("no PostgreSQL")
    };
    let home = tempfile::tempdir()?;
    let place = StoreLocation::Postgres(url.clone());
    CoordinatorProcess::start_in(home.path(), place, LeaseDuration::Usual).await?.end_and_check().await?;
    let mut later = sqlx::PgConnection::connect(&url).await?;
    sqlx::raw_sql(LATER).execute(&mut later).await?;
    later.close().await?;
    let env = [("DOCKET_HOME", home.path().as_os_str()), ("DATABASE_URL", url.as_ref())];
    check_is_refused(home.path(), &env, &[&["serve"], &["verify"]]).await
}

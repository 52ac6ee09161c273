//! Logs and databases of a later docket: what this build cannot read or derive is said as that, with exit code 7, and is
//! never called a fault.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    event::{Envelope, Head, Payload},
    export::Export,
    ids::StreamId,
};
use docket_tests::{
    pg_cluster::Cluster,
    system::{Coordinator, Finished, LeaseTime, Place, Tool, fresh_database, room, run},
};
use sqlx::Connection as _;

/// A golden log with one event rewritten, as a later build would have chained it.
fn rewritten(alter: impl Fn(&mut Envelope)) -> Result<Export> {
    let golden = include_bytes!("../../fixtures/0.1/whole.run.jsonl");
    let mut export = Export::read(golden)?;
    let mut heads: BTreeMap<StreamId, Head> = BTreeMap::new();
    for event in &mut export.events {
        alter(event);
        let head = heads.entry(event.stream.clone()).or_insert(Head::EMPTY);
        event.prev_hash = head.hash;
        event.hash = event.computed_hash();
        *head = Head { seq: event.seq, hash: event.hash };
    }
    Ok(export)
}

async fn docket(home: &Path, args: &[&str]) -> Result<Finished> {
    run(Tool::Docket, home, &[("DOCKET_HOME", home.as_os_str())], args).await
}

#[tokio::test]
async fn a_run_of_an_engine_that_this_build_lacks_is_shown_and_its_decisions_are_not_judged() -> Result<()> {
    let export = rewritten(|event| {
        if event.kind == "RunStarted" {
            let payload = event.payload.as_str();
            event.payload =
                Payload::from_store(payload.replacen(r#"{"name":"react""#, r#"{"name":"later""#, 1));
        }
    })?;
    let home = tempfile::tempdir()?;
    let file = home.path().join("later.run.jsonl");
    std::fs::write(&file, export.write())?;
    let (run, file) = (export.header.run.to_string(), file.to_str().context("UTF-8")?);
    let imported = docket(home.path(), &["import", file]).await?;
    ensure!(imported.code() == Some(0), "{imported:?}");
    for args in [&["verify"][..], &["verify", &run], &["replay", &run, "--verify"]] {
        let verified = docket(home.path(), args).await?;
        ensure!(verified.code() == Some(7), "{args:?}: {verified:?}");
        ensure!(verified.stdout.contains("this build has no engine later"), "{verified:?}");
        ensure!(verified.stdout.contains("the log holds"), "{verified:?}");
    }
    // To look needs no engine.
    let shown = docket(home.path(), &["replay", &run]).await?;
    ensure!(shown.code() == Some(0) && shown.stdout.contains("turn 1"), "{shown:?}");
    Ok(())
}

#[tokio::test]
async fn an_event_of_a_later_version_is_told_and_nothing_is_imported() -> Result<()> {
    let export = rewritten(|event| {
        if event.kind == "ModelAnswered" {
            event.version = 99;
        }
    })?;
    let home = tempfile::tempdir()?;
    let file = home.path().join("later.run.jsonl");
    std::fs::write(&file, export.write())?;
    let refused = docket(home.path(), &["import", file.to_str().context("UTF-8")?]).await?;
    ensure!(refused.code() == Some(7), "{refused:?}");
    ensure!(refused.stderr.contains("`ModelAnswered` version 99"), "{refused:?}");
    let listed = docket(home.path(), &["ps", "--json"]).await?;
    ensure!(listed.stdout.trim().is_empty() || listed.stdout.trim() == "[]", "{listed:?}");
    Ok(())
}

/// As a later docket leaves its database: with a step of the schema that this build does not know.
const LATER: &str = "INSERT INTO schema_steps (version, name, hash) VALUES (999, 'later', 'x')";

/// Every command that would open the database says so.
async fn is_refused(home: &Path, env: &[(&str, &std::ffi::OsStr)], commands: &[&[&str]]) -> Result<()> {
    for args in commands {
        let refused = run(Tool::Docket, home, env, args).await?;
        ensure!(refused.code() == Some(7), "{args:?}: {refused:?}");
        ensure!(refused.stderr.contains("was applied by a newer docket"), "{args:?}: {refused:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_a_later_docket_is_refused_with_exit_code_7() -> Result<()> {
    let _room = room().await;
    let home = tempfile::tempdir()?;
    Coordinator::start_in(home.path(), Place::Home, LeaseTime::Usual).await?.end_and_check().await?;
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
    is_refused(home.path(), &env, &commands).await?;

    let Some(cluster) = Cluster::start() else { return Ok(()) };
    let Place::Postgres(url) = fresh_database(&cluster).await? else { anyhow::bail!("no PostgreSQL") };
    let home = tempfile::tempdir()?;
    let place = Place::Postgres(url.clone());
    Coordinator::start_in(home.path(), place, LeaseTime::Usual).await?.end_and_check().await?;
    let mut later = sqlx::PgConnection::connect(&url).await?;
    sqlx::raw_sql(LATER).execute(&mut later).await?;
    later.close().await?;
    let env = [("DOCKET_HOME", home.path().as_os_str()), ("DATABASE_URL", url.as_ref())];
    is_refused(home.path(), &env, &[&["serve"], &["verify"]]).await
}

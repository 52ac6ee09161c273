//! `docket db backup`: a whole copy of a database that is written to meanwhile.

use std::{
    ffi::OsStr,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use docket_coordinator::store::{Store, sqlite, verify_log};
use docket_schema::ids::{Epoch, Seq, StreamId};
use docket_tests::{
    conformance::{
        DatabaseKind, StoreFixture, TestDatabase,
        fixture::{new_blob, note_event, task_spec},
    },
    system::{
        CoordinatorProcess, FinishedProcess, LeaseDuration, RunningProcess, SampleRepository, StoreLocation,
        TestProgram, WAIT_MAX, acquire_scenario_slot, run_program,
    },
};
use serde_json::Value;
use sqlx::Connection as _;

/// Blobs that make the database larger than a step of a backup: they do not compress.
const BLOBS: u64 = 12;

/// Bytes that zstd makes nothing of.
fn random_bytes(seed: u64) -> Vec<u8> {
    let mut reader = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
    let mut bytes = vec![0; 512 * 1024];
    reader.fill(&mut bytes);
    bytes
}

/// Between any two steps of the copy another append is acknowledged: nobody waits for its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn appends_continue_during_backup() -> Result<()> {
    let world = StoreFixture::open(TestDatabase::new(&DatabaseKind::Sqlite, "backup").await).await;
    for n in 0..BLOBS {
        world.store.put_blobs(vec![new_blob(&random_bytes(n))], world.now()).await?;
    }
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let first = world.append(lease.run, Seq(0), Epoch(1), vec![note_event(0)]).await?;
    let (count, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let writer = tokio::spawn({
        let (world, count, stop) = (world.clone(), Arc::clone(&count), Arc::clone(&stop));
        async move {
            let mut at = first.head.seq;
            while !stop.load(Ordering::Acquire) {
                at = world
                    .append(lease.run, at, Epoch(1), vec![note_event(at.0)])
                    .await
                    .expect("appends")
                    .head
                    .seq;
                count.fetch_add(1, Ordering::AcqRel);
            }
            at
        }
    });
    let folder = tempfile::tempdir()?;
    let goal = folder.path().join("copy.db");
    let from = world.database.file().context("a file")?.to_owned();
    let (to, appended) = (goal.clone(), Arc::clone(&count));
    let steps = tokio::task::spawn_blocking(move || {
        let mut steps = 0;
        sqlite::back_up_database(&from, &to, sqlite::ExistingTarget::Keep, |_| {
            let (before, began) = (appended.load(Ordering::Acquire), Instant::now());
            while appended.load(Ordering::Acquire) == before {
                assert!(began.elapsed() < WAIT_MAX, "appends wait for the backup");
                std::thread::sleep(Duration::from_millis(1));
            }
            steps += 1;
        })
        .map(|_| steps)
    })
    .await??;
    stop.store(true, Ordering::Release);
    let head = writer.await?;
    ensure!(steps > 3, "{steps} steps");
    let copy: Arc<dyn Store> = Arc::new(sqlite::open(&goal).await?);
    let verified = verify_log(&*copy).await?;
    ensure!(verified.fault.is_none(), "{verified:?}");
    ensure!(
        copy.rebuild_projections(std::sync::Arc::default()).await?.is_empty(),
        "its tables are what its log says"
    );
    let copied = copy.stream_head(StreamId::Run(lease.run)).await?.context("the run")?;
    ensure!(copied.seq < head, "{copied:?}: the copy is of the instant at which it began, {head}");
    copy.close().await;
    world.check_consistency().await;
    let left: Vec<_> = std::fs::read_dir(folder.path())?.filter_map(|e| Some(e.ok()?.file_name())).collect();
    ensure!(left == ["copy.db"], "{left:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinator_continues_during_backup_and_external_blobs_are_kept() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("copy.db");
    let path = file.to_str().context("UTF-8")?;
    let store = format!("sqlite:{path}");
    coordinator.run_docket(&["db", "backup", path]).await?.into_stdout()?;
    coordinator.run_docket(&["verify", "--store", &store]).await?.into_stdout()?;
    ensure!(file.metadata()?.permissions().mode() & 0o777 == 0o600, "its owner's alone");
    std::fs::write(&file, "mine")?;
    let refused = coordinator.run_docket(&["db", "backup", path]).await?;
    ensure!(refused.code() == Some(4) && refused.stderr.contains("--replace"), "{refused:?}");
    ensure!(std::fs::read(&file)? == b"mine", "left alone");
    coordinator.run_docket(&["db", "backup", path, "--replace"]).await?.into_stdout()?;
    let said = coordinator.run_docket(&["verify", "--store", &store, "--json"]).await?.into_stdout()?;
    ensure!(said.contains("\"ok\":true"), "{said}");
    // Another store than the one that is served is what is verified.
    std::fs::write(&file, [7; 30_000])?;
    let noise = coordinator.run_docket(&["verify", "--store", &store]).await?;
    ensure!(!noise.success(), "{noise:?}");
    let absent = folder.path().join("absent.db");
    let none =
        coordinator.run_docket(&["verify", "--store", &format!("sqlite:{}", absent.display())]).await?;
    ensure!(!none.success() && !absent.exists(), "{none:?}");
    // The database itself is no backup of it.
    let own = coordinator.home().join("docket.db");
    ensure!(own.is_file());
    let itself =
        coordinator.run_docket(&["db", "backup", own.to_str().context("UTF-8")?, "--replace"]).await?;
    ensure!(itself.code() == Some(4) && itself.stderr.contains("itself"), "{itself:?}");
    let nowhere = coordinator.run_docket(&["db", "backup", "/proc/no/such.db"]).await?;
    ensure!(nowhere.code() == Some(1), "{nowhere:?}");
    coordinator.end_and_check().await
}

fn parse_json(said: &str) -> Result<Value> {
    serde_json::from_str(said.lines().next().context("a line")?).with_context(|| said.to_owned())
}

/// What a coordinator that died left beside its database is not read into the backup; and nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backup_replaces_a_crashed_database() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let folder = tempfile::tempdir()?;
    let home = folder.path().join("home");
    std::fs::DirBuilder::new().mode(0o700).create(&home)?;
    let env = [("DOCKET_HOME", home.as_os_str())];
    let docket = async |args: &[&str]| -> Result<FinishedProcess> {
        run_program(TestProgram::Docket, &home, &env, args).await
    };
    let sample = SampleRepository::new(&[("a.txt", "one\n")])?;
    let repo = sample.path().to_str().context("UTF-8")?;
    let serve = ["serve", "--json", "--listen", "127.0.0.1:0"];
    let (mut coordinator, _) = RunningProcess::start_docket("serve", &home, &env, &serve).await?;
    let submit = async |title: &str| {
        docket(&["submit", title, "--repo", repo, "--model", "openai:none"]).await?.into_stdout()
    };
    submit("first").await?;
    let copy = folder.path().join("copy.db");
    let path = copy.to_str().context("UTF-8")?;
    docket(&["db", "backup", path]).await?.into_stdout()?;
    submit("second").await?;
    submit("third").await?;
    let refused = docket(&["db", "restore", path]).await?;
    ensure!(refused.code() == Some(4) && refused.stderr.contains("stop it first"), "{refused:?}");
    // Through another home it is not the lock of this one that says so.
    let elsewhere = folder.path().join("elsewhere");
    let store = format!("sqlite:{}", home.join("docket.db").display());
    let from = [("DOCKET_HOME", elsewhere.as_os_str()), ("DATABASE_URL", OsStr::new(&store))];
    let refused = run_program(TestProgram::Docket, folder.path(), &from, &["db", "restore", path]).await?;
    ensure!(refused.code() == Some(4) && refused.stderr.contains("has"), "{refused:?}");
    ensure!(docket(&["ps", "--json"]).await?.into_stdout()?.lines().count() == 3, "nothing was changed");
    // Last of all, so that no checkpoint has brought it out of the log when the end comes.
    submit("at the end").await?;
    coordinator.kill().await?;
    ensure!(home.join("docket.db-wal").metadata()?.len() > 0, "or this shows nothing");

    // What is no backup is not put in place.
    let junk = folder.path().join("junk.db");
    std::fs::write(&junk, [7; 30_000])?;
    let other = folder.path().join("other.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&other).create_if_missing(true);
    let mut mine = sqlx::SqliteConnection::connect_with(&options).await?;
    sqlx::raw_sql("CREATE TABLE mine (a)").execute(&mut mine).await?;
    mine.close().await?;
    for bad in [&junk, &other] {
        let refused = docket(&["db", "restore", bad.to_str().context("UTF-8")?]).await?;
        ensure!(refused.code() == Some(6), "{refused:?}");
    }
    ensure!(docket(&["db", "restore", "/none.db"]).await?.code() == Some(3));
    ensure!(docket(&["ps", "--json"]).await?.into_stdout()?.lines().count() == 4, "nothing was changed");

    let said = parse_json(&docket(&["db", "restore", path, "--json"]).await?.into_stdout()?)?;
    let tasks = docket(&["ps", "--json"]).await?.into_stdout()?;
    ensure!(tasks.lines().count() == 1 && tasks.contains("first"), "{tasks}");
    docket(&["verify"]).await?.into_stdout()?;
    let kept = said["kept"].as_str().context("where it is kept")?;
    let whole = parse_json(
        &docket(&["verify", "--store", &format!("sqlite:{kept}"), "--json"]).await?.into_stdout()?,
    )?;
    ensure!(whole["tasks"] == 4, "what stood there is whole: {whole}");

    // Where the database is damaged, its error says what to do.
    let (mut coordinator, _) = RunningProcess::start_docket("serve", &home, &env, &serve).await?;
    submit("fourth").await?;
    coordinator.kill().await?;
    std::fs::write(home.join("docket.db"), [7; 30_000])?;
    let damaged = docket(&["ps"]).await?;
    ensure!(damaged.stderr.contains("docket db restore"), "{damaged:?}");
    docket(&["db", "restore", path]).await?.into_stdout()?;
    ensure!(docket(&["ps", "--json"]).await?.into_stdout()? == tasks, "as it was backed up");
    docket(&["verify"]).await?.into_stdout()?;
    ensure!(!std::fs::read_dir(&home)?.any(|entry| {
        entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with(".docket-restore"))
    }));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_backup_names_the_native_tools() -> Result<()> {
    let home = tempfile::tempdir()?;
    let env = [
        ("DOCKET_HOME", home.path().as_os_str()),
        ("DATABASE_URL", "postgres://nobody@127.0.0.1:1/none".as_ref()),
    ];
    let args = ["db", "restore", "copy.db"];
    let said = run_program(TestProgram::Docket, home.path(), &env, &args).await?;
    ensure!(said.code() == Some(4) && said.stderr.contains("pg_restore"), "{said:?}");
    let args = ["db", "backup", "copy.db"];
    let said = run_program(TestProgram::Docket, home.path(), &env, &args).await?;
    ensure!(said.code() == Some(4), "{said:?}");
    for word in ["pg_dump", "pgBackRest", "one snapshot"] {
        ensure!(said.stderr.contains(word), "{said:?}");
    }
    Ok(())
}

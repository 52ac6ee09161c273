//! Modes that a stranger or a model chose, up to the folder that a person gets.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::{ProblemCode, SubmitRequest},
    content::{BlobRef, WorkspacePath},
    ids::BlobHash,
    snapshot::{Entry, EntryKind, Manifest},
    task::TaskSpec,
};
use docket_tests::{
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, StoreLocation, TestProgram, acquire_scenario_slot, docket_binary,
        fresh_database, run_program,
    },
};
use docket_worker::{
    client::{ClientError, CoordinatorClient},
    secret::Secret,
};

use super::fixture::HostileRepository;

/// A manifest is bytes that a submitter made: one with a mode that no commit can have enters no log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifest_with_invalid_mode_is_rejected_at_submit() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    check_modes_are_rejected(
        CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?,
    )
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manifest_with_invalid_mode_is_rejected_at_submit_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let _room = acquire_scenario_slot().await;
    let place = fresh_database(&cluster).await?;
    check_modes_are_rejected(CoordinatorProcess::start(place, LeaseDuration::Usual).await?).await
}

async fn check_modes_are_rejected(coordinator: CoordinatorProcess) -> Result<()> {
    let made = coordinator
        .run_docket(&["token", "create", "--name", "eve", "--role", "submit", "--json"])
        .await?
        .into_stdout()?;
    let made: serde_json::Value = serde_json::from_str(made.trim())?;
    let token = made["secret"].as_str().with_context(|| made.to_string())?;
    let eve = CoordinatorClient::new(coordinator.address(), Secret::new(token).context("a token")?)?;
    let content = b"#!/bin/sh\nid\n";
    eve.put_blob(BlobRef::for_bytes(content), content.to_vec().into()).await?;
    let submit = async |kind: EntryKind, mode: u32| -> Result<Result<(), ClientError>> {
        let hash = if kind == EntryKind::Dir { BlobHash([0; 32]) } else { BlobHash::hash_bytes(content) };
        let size = if kind == EntryKind::Dir { 0 } else { content.len() as u64 };
        let path = WorkspacePath::new("tool").context("a path")?;
        let manifest = Manifest { entries: [(path, Entry { kind, mode, size, hash })].into() };
        let bytes = manifest.encode();
        let mut spec: TaskSpec = docket_tests::conformance::fixture::task_spec("a stranger's");
        spec.base.manifest = BlobRef::for_bytes(&bytes);
        spec.base.tree = manifest.tree_hash();
        eve.put_blob(spec.base.manifest, bytes.into()).await?;
        Ok(eve.submit(&SubmitRequest { tasks: vec![spec], ids: None }).await.map(|_| ()))
    };
    for (kind, mode) in [
        (EntryKind::File, 0o6755),
        (EntryKind::File, 0o4755),
        (EntryKind::File, 0o2755),
        (EntryKind::File, 0o777),
        (EntryKind::File, 0o666),
        (EntryKind::File, 0o100_755),
        (EntryKind::Dir, 0o1777),
        (EntryKind::Dir, 0o777),
        (EntryKind::Symlink, 0o4000),
    ] {
        match submit(kind, mode).await? {
            Err(ClientError::Problem(problem)) => {
                ensure!(problem.code == ProblemCode::InvalidRequest, "{mode:o}: {problem:?}");
                ensure!(problem.field.as_deref() == Some("tasks[0].base.manifest"), "{mode:o}: {problem:?}");
                ensure!(problem.detail.contains("a mode that no commit can have"), "{mode:o}: {problem:?}");
            }
            other => anyhow::bail!("{kind:?} {mode:o}: {other:?}"),
        }
    }
    let mut many: TaskSpec = docket_tests::conformance::fixture::task_spec("many lines");
    many.setup = vec!["true".to_owned(); 100_000];
    match eve.submit(&SubmitRequest { tasks: vec![many], ids: None }).await {
        Err(ClientError::Problem(problem)) => {
            ensure!(problem.field.as_deref() == Some("tasks[0].setup"), "{problem:?}");
        }
        other => anyhow::bail!("100,000 setup lines: {other:?}"),
    }
    for (kind, mode) in [(EntryKind::File, 0o755), (EntryKind::File, 0o644), (EntryKind::Dir, 0o755)] {
        submit(kind, mode).await?.with_context(|| format!("the control: {kind:?} {mode:o}"))?;
    }
    coordinator.end_and_check().await
}

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "echo x > open; chmod 666 open; echo y > tool; chmod 777 tool; mkdir -m 1777 shared; mkdir -m 777 deep; echo z > deep/own; chmod 600 deep/own" } }]
[[turns]]
text = "Done."
"#;

/// The recorded modes without what the umask takes away, as `tar` and `git` unpack.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkout_applies_the_umask_of_its_caller() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = HostileRepository::new()?;
    scene.make_repository("repo", &[("base.sh", "echo\n")]).await?;
    let id = scene.play_script("repo", SCRIPT, &[]).await?;
    for umask in [0o000, 0o022, 0o027, 0o077] {
        let out = scene.path_in(&format!("out-{umask:o}"));
        let line = format!("umask {umask:04o} && exec \"$@\"");
        let (program, to) =
            (docket_binary().to_string_lossy().into_owned(), out.to_string_lossy().into_owned());
        let args = ["-c", &line, "bash", &program, "checkout", &id, &to];
        run_program(
            TestProgram::Bash,
            scene.home_path(),
            &[("DOCKET_HOME", scene.home_path().as_os_str())],
            &args,
        )
        .await?
        .into_stdout()?;
        for (path, recorded) in [
            ("", 0o777),
            ("base.sh", 0o644),
            ("open", 0o666),
            ("tool", 0o777),
            ("shared", 0o777),
            ("deep", 0o777),
            ("deep/own", 0o600),
            (".git", 0o755),
            (".git/HEAD", 0o644),
        ] {
            let found = file_mode(&out.join(path))?;
            let wanted = recorded & !umask;
            ensure!(found == wanted, "`{path}` under umask {umask:03o} has {found:o}, not {wanted:o}");
        }
    }
    Ok(())
}

fn file_mode(path: &Path) -> Result<u32> {
    Ok(fs::symlink_metadata(path).with_context(|| path.display().to_string())?.permissions().mode() & 0o7777)
}

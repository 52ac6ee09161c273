//! Setup of an evaluation: pins repositories, stores scripts, and submits all trials as one batch.

use crate::history::blobs;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use docket_schema::{
    api::SubmitRequest,
    content::BlobRef,
    ids::{BatchId, QueueName},
    snapshot::WorkspaceBase,
    task::{Backoff, LeaseConditions, TaskSpec},
};
use docket_worker::{
    client::CoordinatorClient,
    workspace::{BaseSource, BlobSink as _},
};

use super::matrix::EvalTrial;
use crate::{
    context::CliContext,
    output::error::{CliResult, ExitKind, FailWith as _},
    samples::fixture,
    tasks::pinning::canonicalize_folder,
};

/// Crashes of run processes that are tolerated: a suite's tasks kill none, but memory may run out.
const CRASHES_MAX: u32 = 5;

/// Tasks per submit request: each may have a long text, and the size of a request is limited.
const SUBMIT_PAGE_TASKS: usize = 100;

/// The batch of one evaluation.
#[derive(Debug, Clone)]
pub(super) struct EvalBatch {
    pub(super) id: BatchId,
    pub(super) name: String,
    /// Its own queue, so its workers receive no other task.
    pub(super) queue: QueueName,
}

impl EvalBatch {
    /// Creates the batch of a new evaluation.
    pub(super) fn new(suite: &str) -> Self {
        let id = BatchId(docket_coordinator::clock::new_id());
        let digits = id.short();
        Self {
            id,
            name: format!("eval {suite} {digits}"),
            queue: format!("eval-{digits}").parse().expect("digits make a queue's name"),
        }
    }
}

/// Base repositories, each created and pinned once.
struct BaseCache<'a> {
    cx: &'a CliContext,
    client: &'a CoordinatorClient,
    pinned: HashMap<(Option<PathBuf>, Option<String>), WorkspaceBase>,
}

impl BaseCache<'_> {
    async fn get_or_pin(&mut self, one: &EvalTrial<'_>) -> CliResult<WorkspaceBase> {
        let key = (one.task.repo.clone(), one.task.commit.clone());
        if let Some(base) = self.pinned.get(&key) {
            return Ok(base.clone());
        }
        let base = match &one.task.repo {
            None => fixture::pin_fixture(self.cx, self.client, BaseSource::Empty, None).await?,
            // A missing commit or a dirty work tree is an error in the suite.
            Some(folder) => {
                self.pin_repository(folder, one.task.commit.clone()).await.map_err(|failure| {
                    let key = if one.task.commit.is_some() { "commit" } else { "repo" };
                    one.task.file.error_at(key, failure.error)
                })?
            }
        };
        self.pinned.insert(key, base.clone());
        Ok(base)
    }

    /// Pins a repository as it is. Any other folder is copied to a new repository elsewhere, so that nothing is
    /// written into the suite.
    async fn pin_repository(&self, folder: &Path, commit: Option<String>) -> CliResult<WorkspaceBase> {
        let folder = canonicalize_folder(folder)?;
        if folder.join(".git").exists() {
            return fixture::pin_fixture(self.cx, self.client, BaseSource::Local(folder), commit).await;
        }
        let scratch =
            tempfile::Builder::new().prefix("fixture-").tempdir_in(self.cx.home.ensure_folder("scratch")?)?;
        let copy = scratch.path().join("tree");
        fixture::copy_tree(&folder, &copy)?;
        fixture::commit_all(&copy).await?;
        fixture::pin_fixture(self.cx, self.client, BaseSource::Local(copy), None).await
    }
}

/// Submits all trials and returns their base commits in the same order.
pub(super) async fn submit_trials(
    cx: &CliContext,
    client: &CoordinatorClient,
    tries: &[EvalTrial<'_>],
    batch: &EvalBatch,
) -> CliResult<Vec<Option<String>>> {
    let mut bases = BaseCache { cx, client, pinned: HashMap::new() };
    let mut upload = blobs::BlobUpload::new(client);
    let (mut specs, mut commits) = (Vec::with_capacity(tries.len()), Vec::with_capacity(tries.len()));
    for one in tries {
        let base = bases.get_or_pin(one).await?;
        commits.push(base.git.as_ref().map(|git| git.commit.clone()));
        let script = match one.script {
            Some(script) => {
                let blob = BlobRef::for_bytes(script);
                upload.put(blob, script.to_vec()).await.fail_as(ExitKind::Failed)?;
                Some(blob)
            }
            None => None,
        };
        let spec = build_task_spec(one, base, script, batch);
        spec.check()
            .map_err(|error| one.task.file.error_at(error.field, format!("it must be {}", error.must)))?;
        specs.push(spec);
    }
    upload.flush().await.fail_with(ExitKind::Failed, || "cannot store the scripts".to_owned())?;
    let mut ids = tries.iter().map(|one| one.id);
    while !specs.is_empty() {
        let page: Vec<TaskSpec> = specs.drain(..specs.len().min(SUBMIT_PAGE_TASKS)).collect();
        let ids = ids.by_ref().take(page.len()).collect();
        client.submit(&SubmitRequest { tasks: page, ids: Some(ids) }).await?;
    }
    Ok(commits)
}

fn build_task_spec(
    one: &EvalTrial<'_>,
    base: WorkspaceBase,
    script: Option<BlobRef>,
    batch: &EvalBatch,
) -> TaskSpec {
    let task = one.task;
    TaskSpec {
        title: task.title.clone(),
        text: task.text.clone(),
        queue: batch.queue.clone(),
        priority: 0,
        run_at: None,
        dedup_key: None,
        // A second attempt would hide that the first failed.
        attempts_max: 1,
        crashes_max: CRASHES_MAX,
        backoff: Backoff::default(),
        base,
        engine: one.engine.to_string(),
        roles: one.roles.clone(),
        model: one.model.clone(),
        explore_model: one.explore_model.clone(),
        fallback_model: one.fallback_model.clone(),
        script,
        settings: task.settings.clone(),
        tests: task.tests.clone(),
        requires: task.requires.clone(),
        setup: task.setup.clone(),
        policy: task.policy.clone(),
        branch: None,
        delivery: None,
        batch: Some(batch.id),
        batch_name: Some(batch.name.clone()),
        conditions: LeaseConditions::default(),
    }
}

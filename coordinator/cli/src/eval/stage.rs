//! What an evaluation stands on: repositories pinned, scripts stored, all tries submitted as one batch.

use crate::history::blobs;
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use docket_schema::{
    content::BlobRef,
    ids::{BatchId, QueueName},
    snapshot::Base,
    task::{Backoff, Conditions, TaskSpec},
    wire::SubmitRequest,
};
use docket_worker::{
    client::Client,
    workspace::{BlobSink as _, Source},
};

use super::matrix::Try;
use crate::{
    context::Context,
    output::fail::{Exit, FailWith as _, Outcome},
    samples::fixture,
    tasks::pinning::absolute,
};

/// Deaths of a run's process that are forgiven: a suite's tasks kill none, but memory may run out.
const CRASHES_MAX: u32 = 5;

/// Tasks that are submitted at once: each may have a long text, and a request's size is bounded.
const PAGE_TASKS: usize = 100;

/// The batch of one evaluation.
#[derive(Debug, Clone)]
pub(super) struct Batch {
    pub(super) id: BatchId,
    /// What people call it.
    pub(super) name: String,
    /// A queue of its own: no other task comes to its workers.
    pub(super) queue: QueueName,
}

impl Batch {
    /// A new one, for this suite.
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

/// Where tasks start, each repository made and pinned once.
struct Bases<'a> {
    cx: &'a Context,
    client: &'a Client,
    made: HashMap<(Option<PathBuf>, Option<String>), Base>,
}

impl Bases<'_> {
    async fn of(&mut self, one: &Try<'_>) -> Outcome<Base> {
        let key = (one.task.repo.clone(), one.task.commit.clone());
        if let Some(base) = self.made.get(&key) {
            return Ok(base.clone());
        }
        let base = match &one.task.repo {
            None => fixture::pinned(self.cx, self.client, Source::Empty, None).await?,
            // A commit that is not there, a work tree with changes: the suite is wrong.
            Some(folder) => self.repository(folder, one.task.commit.clone()).await.map_err(|failure| {
                let key = if one.task.commit.is_some() { "commit" } else { "repo" };
                one.task.file.wrong(key, failure.error)
            })?,
        };
        self.made.insert(key, base.clone());
        Ok(base)
    }

    /// A repository as it is; of any other folder one is made, elsewhere, so that nothing is written into the suite.
    async fn repository(&self, folder: &Path, commit: Option<String>) -> Outcome<Base> {
        let folder = absolute(folder)?;
        if folder.join(".git").exists() {
            return fixture::pinned(self.cx, self.client, Source::Local(folder), commit).await;
        }
        let scratch =
            tempfile::Builder::new().prefix("fixture-").tempdir_in(self.cx.home.folder("scratch")?)?;
        let copy = scratch.path().join("tree");
        fixture::copy_tree(&folder, &copy)?;
        fixture::commit_all(&copy).await?;
        fixture::pinned(self.cx, self.client, Source::Local(copy), None).await
    }
}

/// Submits all of them; the commit that each starts from, in their order.
pub(super) async fn submit(
    cx: &Context,
    client: &Client,
    tries: &[Try<'_>],
    batch: &Batch,
) -> Outcome<Vec<Option<String>>> {
    let mut bases = Bases { cx, client, made: HashMap::new() };
    let mut upload = blobs::Upload::new(client);
    let (mut specs, mut commits) = (Vec::with_capacity(tries.len()), Vec::with_capacity(tries.len()));
    for one in tries {
        let base = bases.of(one).await?;
        commits.push(base.git.as_ref().map(|git| git.commit.clone()));
        let script = match one.script {
            Some(script) => {
                let blob = BlobRef::of(script);
                upload.put(blob, script.to_vec()).await.fail_as(Exit::Failed)?;
                Some(blob)
            }
            None => None,
        };
        let spec = spec(one, base, script, batch);
        spec.check()
            .map_err(|error| one.task.file.wrong(error.field, format!("it must be {}", error.must)))?;
        specs.push(spec);
    }
    upload.flush().await.fail_with(Exit::Failed, || "the scripts could not be stored".to_owned())?;
    let mut ids = tries.iter().map(|one| one.id);
    while !specs.is_empty() {
        let page: Vec<TaskSpec> = specs.drain(..specs.len().min(PAGE_TASKS)).collect();
        let ids = ids.by_ref().take(page.len()).collect();
        client.submit(&SubmitRequest { tasks: page, ids: Some(ids) }).await?;
    }
    Ok(commits)
}

fn spec(one: &Try<'_>, base: Base, script: Option<BlobRef>, batch: &Batch) -> TaskSpec {
    let task = one.task;
    TaskSpec {
        title: task.title.clone(),
        text: task.text.clone(),
        queue: batch.queue.clone(),
        priority: 0,
        run_at: None,
        dedup_key: None,
        // A second try would hide that the first failed.
        attempts_max: 1,
        crashes_max: CRASHES_MAX,
        backoff: Backoff::default(),
        base,
        engine: one.engine.to_string(),
        roles: one.roles.clone(),
        model: one.model.clone(),
        explore_model: one.explore.clone(),
        fallback_model: one.fallback.clone(),
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
        conditions: Conditions::default(),
    }
}

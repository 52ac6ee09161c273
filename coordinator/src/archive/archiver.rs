//! Archiver: archives old tasks page by page, restores lineage groups, and fetches archive files for reading.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use docket_schema::{
    api::{ARCHIVE_TASKS_MAX, ArchiveCursor, ArchiveResponse, ArchivedGroup, PAGE_EVENTS_MAX, RetainedGroup},
    event::Envelope,
    export::VerifiedArchive,
    ids::{BlobHash, QueueName, Seq, StreamId, TaskId, Timestamp},
    system::StreamsArchived,
    task::{DeliveryHistory, DeliveryMode, TaskRecord, TaskState},
};
use futures_util::future::join_all;
use nix::sys::signal::{Signal, raise};

use super::{
    archive_file::{self, ArchiveFileError, RestoredGroup},
    lineage_group::{self, CopiedGroup, CopyGroupError, LineageGroup},
};
use crate::{
    clock::Clock,
    error_chain::error_chain,
    object_storage::{ObjectStorage, ObjectStorageError},
    store::{
        ArchiveError, ArchiveRefusal, ArchiveStub, EndedTask, QueueSelection, RestoreDestination, Store,
        StoreError,
    },
    system::{FoldError, RestoreTimes, TailedFold},
};

/// Lineage groups copied and removed concurrently. Each waits for its file to be synced; their removals share
/// commits.
const CONCURRENT_GROUPS: usize = 8;

/// Retention of ended tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepFor {
    /// Tasks are kept forever.
    Forever,
    /// Tasks are kept for this many milliseconds after they end.
    Ms(u64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Retention of queues that are not listed in `queues`.
    pub others: KeepFor,
    /// Retention by queue.
    pub queues: BTreeMap<QueueName, KeepFor>,
}

impl RetentionPolicy {
    fn for_queue(&self, queue: &QueueName) -> KeepFor {
        self.queues.get(queue).copied().unwrap_or(self.others)
    }

    /// Whether no task is ever archived.
    pub fn keeps_everything(&self) -> bool {
        self.others == KeepFor::Forever && self.queues.values().all(|keep| *keep == KeepFor::Forever)
    }
}

/// Where a coordinator dies while it archives. Tests only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveFailpoint {
    /// After the copy was verified, before anything is removed.
    AfterCopy,
    /// After the streams were removed, before waiters are notified.
    AfterRemove,
}

impl FromStr for ArchiveFailpoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "copied" => Ok(Self::AfterCopy),
            "removed" => Ok(Self::AfterRemove),
            _ => Err(format!("`{text}` is none of copied, removed")),
        }
    }
}

/// Archiving configuration of a coordinator.
#[derive(Debug, Clone)]
pub struct ArchiveSettings {
    /// Destination of the archive; `None` disables archiving.
    pub url: Option<String>,
    /// Retention applied by the periodic archiving job.
    pub retention: RetentionPolicy,
    /// Folder for temporary files.
    pub scratch_folder: PathBuf,
    /// Program name and version recorded in archive files.
    pub made_by: String,
    /// How often the periodic job runs; `None` uses the default.
    pub interval: Option<Duration>,
    /// Tests only.
    pub failpoint: Option<ArchiveFailpoint>,
    /// Restore times of tasks in one store, shared by copies of these settings.
    pub restore_times: Arc<TailedFold<RestoreTimes>>,
}

impl Default for ArchiveSettings {
    fn default() -> Self {
        let retention = RetentionPolicy { others: KeepFor::Forever, queues: BTreeMap::new() };
        let made_by = concat!("docket ", env!("CARGO_PKG_VERSION")).to_owned();
        Self {
            url: None,
            retention,
            scratch_folder: std::env::temp_dir(),
            made_by,
            interval: None,
            failpoint: None,
            restore_times: Arc::default(),
        }
    }
}

/// One archiving pass.
#[derive(Debug, Clone)]
pub struct ArchivePassRequest {
    pub retention: RetentionPolicy,
    /// Queues whose tasks are examined; `retention` still applies to related tasks in other queues.
    pub queues: QueueSelection,
    /// Only tasks that ended before this are examined.
    pub before: Timestamp,
    /// Continue after this position.
    pub after: Option<ArchiveCursor>,
    /// Report what would be archived without changing anything.
    pub dry_run: bool,
    pub by: String,
    /// After this time no further group is started, and the reply says where to continue.
    pub time: Duration,
}

/// Archives ended tasks and restores them.
#[derive(Clone)]
pub struct TaskArchiver {
    pub store: Arc<dyn Store>,
    pub clock: Arc<Clock>,
    pub settings: ArchiveSettings,
}

enum ArchiveGroupError {
    MustStay(String),
    /// Another coordinator has already archived it; this is not an error.
    Gone,
    Storage(ObjectStorageError),
    Store(StoreError),
}

impl From<CopyGroupError> for ArchiveGroupError {
    fn from(error: CopyGroupError) -> Self {
        match error {
            CopyGroupError::MustStay(why) => Self::MustStay(why),
            CopyGroupError::Gone => Self::Gone,
            CopyGroupError::Store(error) => Self::Store(error),
            CopyGroupError::File { path, source } => Self::Storage(ObjectStorageError::Local {
                path,
                doing: "writing a lineage group to it",
                source,
            }),
        }
    }
}

impl TaskArchiver {
    /// Examines a page of ended tasks and archives those past their retention.
    ///
    /// # Errors
    /// Fails if the archive or the store cannot be used. Groups archived before the failure are recorded in
    /// the log.
    pub async fn archive_page(
        &self,
        place: Option<&ObjectStorage>,
        asked: &ArchivePassRequest,
    ) -> Result<ArchiveResponse, ArchiveAccessError> {
        let after = asked.after.map(|place| (place.ended_at, place.task));
        let page =
            self.store.list_ended_tasks(asked.before, asked.queues.clone(), after, ARCHIVE_TASKS_MAX).await?;
        let full = page.len() >= ARCHIVE_TASKS_MAX as usize;
        let place_of = |ended: &EndedTask| ArchiveCursor { ended_at: ended.ended_at, task: ended.task };
        let next = page.last().filter(|_| full).map(place_of);
        let mut response = ArchiveResponse { archived: Vec::new(), kept: Vec::new(), next };
        let (began, mut last) = (Instant::now(), None);
        let mut seen: BTreeSet<TaskId> = BTreeSet::new();
        let (mut gathered, mut done) = (Vec::new(), Vec::new());
        let restores = &self.settings.restore_times;
        restores.catch_up(&*self.store).await?;
        for (n, ended) in page.into_iter().enumerate() {
            if last.is_some() && began.elapsed() > asked.time {
                response.next = last;
                break;
            }
            last = Some(place_of(&ended));
            if !seen.insert(ended.task) {
                continue;
            }
            let now = self.clock.now();
            let may_go = |record: &TaskRecord| {
                let restored_at = restores.with_fold(|times| times.get(record.id));
                check_retention(record, restored_at, &asked.retention, now)
            };
            let found = match lineage_group::gather_group(&*self.store, ended.task, may_go).await {
                Ok(family) => require_delivered(&*self.store, &family).await.map(|()| family),
                Err(error) => Err(error),
            };
            let family = match found {
                Ok(family) => family,
                Err(error) => {
                    done.push((n, ended.task, Err(error.into())));
                    continue;
                }
            };
            seen.extend(family.tasks.iter().map(|(task, _)| *task));
            let Some(place) = place.filter(|_| !asked.dry_run) else {
                done.push((n, ended.task, Ok(count_group(&family))));
                continue;
            };
            gathered.push((n, ended.task, family));
            if gathered.len() >= CONCURRENT_GROUPS {
                done.extend(self.archive_groups(place, std::mem::take(&mut gathered), &asked.by).await);
            }
        }
        if let Some(place) = place {
            done.extend(self.archive_groups(place, gathered, &asked.by).await);
        }
        done.sort_by_key(|(n, ..)| *n);
        for (_, task, ended) in done {
            match ended {
                Ok(archived) => response.archived.push(archived),
                Err(ArchiveGroupError::MustStay(why)) => {
                    // If another coordinator archives the group meanwhile, any read of it can fail.
                    if self.store.stream_head(StreamId::Task(task)).await?.is_some() {
                        response.kept.push(RetainedGroup { task, why });
                    }
                }
                Err(ArchiveGroupError::Gone) => {}
                Err(ArchiveGroupError::Storage(error)) => return Err(error.into()),
                Err(ArchiveGroupError::Store(error)) => return Err(error.into()),
            }
        }
        Ok(response)
    }

    /// Archives several groups concurrently. Nothing else may read from the store meanwhile: a future that is
    /// not polled would keep its database connection, and the reader would wait for it.
    async fn archive_groups(
        &self,
        place: &ObjectStorage,
        families: Vec<(usize, TaskId, LineageGroup)>,
        by: &str,
    ) -> Vec<(usize, TaskId, Result<ArchivedGroup, ArchiveGroupError>)> {
        let each = families
            .into_iter()
            .map(async |(n, task, family)| (n, task, self.archive_group(place, &family, by).await));
        join_all(each).await
    }

    /// Copies a group, reads the copy back, and removes the streams.
    async fn archive_group(
        &self,
        place: &ObjectStorage,
        family: &LineageGroup,
        by: &str,
    ) -> Result<ArchivedGroup, ArchiveGroupError> {
        let scratch = |source| {
            let path = self.settings.scratch_folder.clone();
            ArchiveGroupError::Storage(ObjectStorageError::Local {
                path,
                doing: "creating a file in it",
                source,
            })
        };
        let made = tempfile::NamedTempFile::new_in(&self.settings.scratch_folder).map_err(scratch)?;
        let made_by = self.settings.made_by.clone();
        let CopiedGroup { header, events } =
            lineage_group::copy_group(&*self.store, family, made_by, made.path()).await?;
        let (hash, bytes) = hash_in_background(made.path()).await?;
        let name = archive_file_name(
            family,
            hash,
            self.store.get_task(family.task).await.map_err(ArchiveGroupError::Store)?,
        );
        let is_new =
            place.put_file_if_absent(&name, made.path()).await.map_err(ArchiveGroupError::Storage)?;
        let mut back = self.verify_copy(place, &name, hash).await;
        if !is_new && matches!(back, Err(ArchiveGroupError::MustStay(_))) {
            // The name contains the hash of the content, so an existing file that differs is damaged and is
            // overwritten.
            place.put_file(&name, made.path()).await.map_err(ArchiveGroupError::Storage)?;
            back = self.verify_copy(place, &name, hash).await;
        }
        let proven = back?;
        if proven.header != header || proven.events != events {
            return Err(ArchiveGroupError::MustStay(format!("its copy {name} differs from the original")));
        }
        let archived = StreamsArchived {
            task: family.task,
            by: by.to_owned(),
            place: place.url().to_owned(),
            file: name.clone(),
            hash,
            bytes,
            streams: header.streams,
        };
        // The event as a line, so that the archive can be searched without a store.
        let mut line = serde_json::to_vec(&archived).unwrap_or_default();
        line.push(b'\n');
        place
            .put_bytes_if_absent(&format!("{name}.index.json"), line.into())
            .await
            .map_err(ArchiveGroupError::Storage)?;
        self.die_at(ArchiveFailpoint::AfterCopy);
        match self.store.remove_archived(archived, self.clock.now()).await {
            Ok(()) => {}
            Err(ArchiveError::Refused(ArchiveRefusal::NotFound(_))) => return Err(ArchiveGroupError::Gone),
            Err(ArchiveError::Refused(refused)) => {
                return Err(ArchiveGroupError::MustStay(refused.to_string()));
            }
            Err(ArchiveError::Store(error)) => return Err(ArchiveGroupError::Store(error)),
        }
        self.die_at(ArchiveFailpoint::AfterRemove);
        Ok(ArchivedGroup { file: Some(name), bytes, ..count_group(family) })
    }

    /// Verifies a copy by reading it back from its destination.
    async fn verify_copy(
        &self,
        place: &ObjectStorage,
        name: &str,
        hash: BlobHash,
    ) -> Result<VerifiedArchive, ArchiveGroupError> {
        let back = tempfile::NamedTempFile::new_in(&self.settings.scratch_folder).map_err(|source| {
            let path = self.settings.scratch_folder.clone();
            ArchiveGroupError::Storage(ObjectStorageError::Local {
                path,
                doing: "creating a file in it",
                source,
            })
        })?;
        place.get_file(name, back.path()).await.map_err(ArchiveGroupError::Storage)?;
        let proven = archive_file::verify_file(back.path(), hash).await;
        proven.map_err(|error| {
            ArchiveGroupError::MustStay(format!("its copy {name} is damaged: {}", error_chain(&error)))
        })
    }

    fn die_at(&self, at: ArchiveFailpoint) {
        if self.settings.failpoint == Some(at) {
            // If raising the signal fails, the coordinator survives and the test that waits for its death
            // fails.
            let _ = raise(Signal::SIGKILL);
        }
    }
}

async fn hash_in_background(path: &Path) -> Result<(BlobHash, u64), ArchiveGroupError> {
    let of = path.to_owned();
    let hashed = tokio::task::spawn_blocking(move || archive_file::hash_file(&of)).await;
    match hashed {
        Ok(Ok(hashed)) => Ok(hashed),
        Ok(Err(error)) => Err(ArchiveGroupError::MustStay(error_chain(&error))),
        Err(error) => Err(ArchiveGroupError::MustStay(error.to_string())),
    }
}

/// Hexadecimal digits of the file's hash in its name, enough that no two files of a task collide.
const NAME_DIGITS: usize = 32;

/// Builds a name that depends on the file's content, so a file is never overwritten with different content.
fn archive_file_name(
    family: &LineageGroup,
    hash: BlobHash,
    first: Option<crate::store::TaskWithDeadline>,
) -> String {
    let ended_at = first.and_then(|(record, _)| record.ended_at).unwrap_or_default().to_string();
    let month = ended_at.get(..7).unwrap_or("0000-00").replace('-', "/");
    let digits = hash.to_string();
    format!("{month}/{}-{}.docket", family.task, digits.get(..NAME_DIGITS).unwrap_or(&digits))
}

fn count_group(family: &LineageGroup) -> ArchivedGroup {
    ArchivedGroup {
        task: family.task,
        tasks: family.tasks.len() as u64,
        runs: family.runs.len() as u64,
        events: family.event_count(),
        file: None,
        bytes: 0,
    }
}

/// Requires that every result with a requested delivery was delivered: the deliverer reads it from the log.
async fn require_delivered(store: &dyn Store, family: &LineageGroup) -> Result<(), CopyGroupError> {
    for (task, _) in &family.tasks {
        let Some((record, _)) = store.get_task(*task).await? else { continue };
        let wanted = record.spec.delivery_mode();
        let Some(run) = record.last_run.filter(|_| record.state == TaskState::Completed) else { continue };
        if wanted == DeliveryMode::Patch {
            continue;
        }
        let mut events: Vec<Envelope> = Vec::new();
        loop {
            let after = events.last().map_or(Seq(0), |event| event.seq);
            let page = store.read_events(StreamId::Task(*task), after, PAGE_EVENTS_MAX).await?;
            if page.is_empty() {
                break;
            }
            events.extend(page);
        }
        let found = DeliveryHistory::from_events(&events)
            .map_err(|error| CopyGroupError::MustStay(error.to_string()))?;
        if !found.is_settled(run, wanted) && !found.is_accepted(run) {
            let short = task.short();
            let what = wanted.as_str();
            return Err(CopyGroupError::MustStay(format!(
                "the {what} of task {short} is not delivered yet: run `docket up` or `docket apply {short}` \
                 in its repository, or `docket accept {short}` if it is no longer needed"
            )));
        }
    }
    Ok(())
}

/// Checks that the task ended, and was last restored, long enough ago for its queue's retention.
fn check_retention(
    record: &TaskRecord,
    restored: Option<Timestamp>,
    retention: &RetentionPolicy,
    now: Timestamp,
) -> Result<Timestamp, String> {
    let short = record.id.short();
    let Some(ended_at) = record.ended_at else {
        return Err(format!("task {short} shares history with it and has not ended"));
    };
    match retention.for_queue(&record.spec.queue) {
        KeepFor::Ms(ms) if restored.is_some_and(|at| at.plus_ms(ms) > now) => {
            Err(format!("task {short} was restored recently"))
        }
        KeepFor::Ms(ms) if ended_at.plus_ms(ms) <= now => Ok(ended_at),
        KeepFor::Ms(_) => Err(format!("task {short} shares history with it and ended recently")),
        KeepFor::Forever => Err(format!(
            "task {short} shares history with it and its queue keeps tasks \
             forever"
        )),
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ArchiveAccessError {
    /// The archive cannot be used.
    #[error(transparent)]
    Storage(#[from] ObjectStorageError),
    /// The file is invalid, or the store refuses it.
    #[error(transparent)]
    File(#[from] ArchiveFileError),
    /// The restore times of tasks cannot be read.
    #[error(transparent)]
    Restores(#[from] FoldError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Finds the storage that holds the file of an archived stream: the configured archive, or the location
/// recorded in the stub.
///
/// # Errors
/// [`ObjectStorageError`] if neither has the complete file.
pub async fn find_storage(stub: &ArchiveStub, to: Option<&str>) -> Result<ObjectStorage, ObjectStorageError> {
    let mut places: Vec<&str> = to.into_iter().chain([stub.location.as_str()]).collect();
    places.dedup();
    let mut failed = None;
    for url in &places {
        match open_if_present(stub, url).await {
            Ok(place) => return Ok(place),
            // A damaged file is more informative than a missing one, so its error is kept.
            Err(error) => failed = failed.filter(|_| error.is_absent()).or(Some(error)),
        }
    }
    let absent = || ObjectStorageError::NotFound { place: places.join(", nor in "), file: stub.file.clone() };
    Err(failed.filter(|error| !error.is_absent()).unwrap_or_else(absent))
}

async fn open_if_present(stub: &ArchiveStub, url: &str) -> Result<ObjectStorage, ObjectStorageError> {
    let place = ObjectStorage::open(url)?;
    let file = stub.file.clone();
    match place.file_size(&file).await? {
        Some(found) if found == stub.file_bytes => Ok(place),
        Some(found) => {
            let expected = stub.file_bytes;
            Err(ObjectStorageError::SizeMismatch { place: url.to_owned(), file, found, expected })
        }
        None => Err(ObjectStorageError::NotFound { place: url.to_owned(), file }),
    }
}

/// Copies the file of an archived stream to this machine and verifies it.
pub async fn fetch_file(
    stub: &ArchiveStub,
    to: Option<&str>,
    scratch: &Path,
) -> Result<tempfile::NamedTempFile, ArchiveAccessError> {
    let local = |source| ObjectStorageError::Local {
        path: scratch.to_owned(),
        doing: "creating a file in it",
        source,
    };
    let file = tempfile::NamedTempFile::new_in(scratch).map_err(local)?;
    find_storage(stub, to).await?.get_file(&stub.file, file.path()).await?;
    Ok(file)
}

/// Restores the lineage group of an archived stream.
///
/// # Errors
/// [`ArchiveAccessError`] if the file or the store cannot be used. Nothing was restored.
pub async fn restore_group(
    archiver: &TaskArchiver,
    stub: &ArchiveStub,
    by: String,
) -> Result<RestoredGroup, ArchiveAccessError> {
    let file = fetch_file(stub, archiver.settings.url.as_deref(), &archiver.settings.scratch_folder).await?;
    let now = archiver.clock.now();
    let store = &*archiver.store;
    Ok(archive_file::unpack_file(
        file.path(),
        stub.file_hash,
        store,
        by,
        RestoreDestination::OriginalLog,
        now,
    )
    .await?)
}

//! Archiving, page by page of old tasks; bringing a family back; reading a file for whoever looks at it.

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

/// Families copied and removed at once: each waits for its file to be synced, and what they remove shares commits.
const CONCURRENT_GROUPS: usize = 8;

/// How long tasks are kept after their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepFor {
    /// For ever.
    Forever,
    /// For so many milliseconds.
    Ms(u64),
}

/// How long tasks are kept, by queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetentionPolicy {
    /// Those of queues that are not named.
    pub others: KeepFor,
    /// Those of these queues.
    pub queues: BTreeMap<QueueName, KeepFor>,
}

impl RetentionPolicy {
    fn for_queue(&self, queue: &QueueName) -> KeepFor {
        self.queues.get(queue).copied().unwrap_or(self.others)
    }

    /// Whether anything is ever archived.
    pub fn keeps_everything(&self) -> bool {
        self.others == KeepFor::Forever && self.queues.values().all(|keep| *keep == KeepFor::Forever)
    }
}

/// Tests only: where a coordinator dies while it archives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveFailpoint {
    /// The file was proven, nothing is removed.
    AfterCopy,
    /// The streams are removed, nobody was told.
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

/// How a coordinator archives.
#[derive(Debug, Clone)]
pub struct ArchiveSettings {
    /// Where to; none = it does not.
    pub url: Option<String>,
    /// What it does by itself.
    pub retention: RetentionPolicy,
    /// A folder for files on their way.
    pub scratch_folder: PathBuf,
    /// What its files say made them.
    pub made_by: String,
    /// How often it looks by itself; none = as it is made.
    pub interval: Option<Duration>,
    /// Tests only.
    pub failpoint: Option<ArchiveFailpoint>,
    /// When tasks were restored. Of one store; copies of the settings share it.
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

/// What is archived in one go.
#[derive(Debug, Clone)]
pub struct ArchivePassRequest {
    /// How long tasks are kept.
    pub retention: RetentionPolicy,
    /// Of which queues; `Retention` holds for their kin.
    pub queues: QueueSelection,
    /// Those that ended before this are looked at.
    pub before: Timestamp,
    /// Go on behind this place.
    pub after: Option<ArchiveCursor>,
    /// Only look.
    pub dry_run: bool,
    /// Who.
    pub by: String,
    /// No further family is begun after this time; the answer says where to go on.
    pub time: Duration,
}

/// What a coordinator archives with.
#[derive(Clone)]
pub struct TaskArchiver {
    /// The log.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Arc<Clock>,
    /// How.
    pub settings: ArchiveSettings,
}

enum ArchiveGroupError {
    MustStay(String),
    /// Another coordinator has archived it: nobody needs to hear of it.
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
            CopyGroupError::File { path, source } => {
                Self::Storage(ObjectStorageError::Local { path, doing: "a family is written to it", source })
            }
        }
    }
}

impl TaskArchiver {
    /// Looks at a page of old tasks and archives what may go.
    ///
    /// # Errors
    /// The archive, or the store, cannot be used. What was archived before stands in the log.
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
                    // What another coordinator archives meanwhile breaks off, in whatever it was being read for.
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

    /// Archives some at once. Nothing else is read of the store meanwhile: one that nobody polled would keep what it
    /// has of the store's connections, and the reader wait for it.
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

    /// Copies, reads back, removes.
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
                doing: "making a file in it",
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
            // Its name says what the bytes have to be: what stood there was damaged.
            place.put_file(&name, made.path()).await.map_err(ArchiveGroupError::Storage)?;
            back = self.verify_copy(place, &name, hash).await;
        }
        let proven = back?;
        if proven.header != header || proven.events != events {
            return Err(ArchiveGroupError::MustStay(format!("its copy {name} is not what was copied")));
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
        // For whoever looks through the archive without a store: the event as a line.
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

    /// Proves a copy as it stands where it went, and not as it was made here.
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
                doing: "making a file in it",
                source,
            })
        })?;
        place.get_file(name, back.path()).await.map_err(ArchiveGroupError::Storage)?;
        let proven = archive_file::verify_file(back.path(), hash).await;
        proven.map_err(|error| {
            ArchiveGroupError::MustStay(format!("its copy {name} does not hold: {}", error_chain(&error)))
        })
    }

    fn die_at(&self, at: ArchiveFailpoint) {
        if self.settings.failpoint == Some(at) {
            // Should it fail, the coordinator lives on, and the test that waits for its death fails.
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

/// Hexadecimal digits of a file's hash in its name: no two files of one task ever share them.
const NAME_DIGITS: usize = 32;

/// The same for the same bytes, and for no others: what once stands under a name is never replaced by anything else.
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

/// A result that its task was to give, and that nobody told of, is still to be delivered: whoever does so reads it here.
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
                "the {what} that task {short} is to give is not delivered yet: `docket up` or `docket apply {short}` \
                 where its repository is, or `docket accept {short}` if nobody wants it any more"
            )));
        }
    }
    Ok(())
}

/// When the task ended, if that, and when it was last brought back, was long enough ago for its queue.
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
            Err(format!("task {short} was brought back lately"))
        }
        KeepFor::Ms(ms) if ended_at.plus_ms(ms) <= now => Ok(ended_at),
        KeepFor::Ms(_) => Err(format!("task {short} shares history with it and ended lately")),
        KeepFor::Forever => Err(format!("task {short} shares history with it and its queue keeps for ever")),
    }
}

/// What was asked of the archive cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveAccessError {
    /// The archive cannot be used.
    #[error(transparent)]
    Storage(#[from] ObjectStorageError),
    /// The file does not hold, or the store refuses it.
    #[error(transparent)]
    File(#[from] ArchiveFileError),
    /// When tasks were restored before cannot be read.
    #[error(transparent)]
    Restores(#[from] FoldError),
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Where the file of an archived stream is: in the archive as it is set here, or where it was put.
///
/// # Errors
/// [`PlaceError`]: it is in neither, whole.
pub async fn find_storage(stub: &ArchiveStub, to: Option<&str>) -> Result<ObjectStorage, ObjectStorageError> {
    let mut places: Vec<&str> = to.into_iter().chain([stub.location.as_str()]).collect();
    places.dedup();
    let mut failed = None;
    for url in &places {
        match open_if_present(stub, url).await {
            Ok(place) => return Ok(place),
            // What is there and is not what it was says more than that it is not there.
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

/// Copies the file of an archived stream to this machine, proven.
pub async fn fetch_file(
    stub: &ArchiveStub,
    to: Option<&str>,
    scratch: &Path,
) -> Result<tempfile::NamedTempFile, ArchiveAccessError> {
    let local =
        |source| ObjectStorageError::Local { path: scratch.to_owned(), doing: "making a file in it", source };
    let file = tempfile::NamedTempFile::new_in(scratch).map_err(local)?;
    find_storage(stub, to).await?.get_file(&stub.file, file.path()).await?;
    Ok(file)
}

/// Brings the family of an archived stream back.
///
/// # Errors
/// [`RestoreFailed`]: nothing is back.
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

//! Archiving, page by page of old tasks; bringing a family back; reading a file for whoever looks at it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use docket_schema::{
    event::Envelope,
    export::Family,
    ids::{BlobHash, QueueName, Seq, StreamId, TaskId, Timestamp},
    system::StreamsArchived,
    task::{Deliveries, Delivery, TaskRecord, TaskState},
    wire::{ARCHIVE_TASKS_MAX, ArchivePlace, ArchiveResponse, FamilyArchived, FamilyKept, PAGE_EVENTS_MAX},
};
use futures_util::future::join_all;
use nix::sys::signal::{Signal, raise};

use super::{
    family::{self, Copied, Gathered, NotCopied},
    file::{self, FileError, Unpacked},
};
use crate::{
    clock::Clock,
    error_chain::error_chain,
    place::{Place, PlaceError},
    store::{ArchiveError, ArchiveRefusal, Ended, Into, Queues, Store, StoreError, Stub},
    system::{FoldError, RestoreTimes, TailedFold},
};

/// Families copied and removed at once: each waits for its file to be synced, and what they remove shares commits.
const AT_ONCE: usize = 8;

/// How long tasks are kept after their end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeepFor {
    /// For ever.
    Ever,
    /// For so many milliseconds.
    Ms(u64),
}

/// How long tasks are kept, by queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Those of queues that are not named.
    pub others: KeepFor,
    /// Those of these queues.
    pub queues: BTreeMap<QueueName, KeepFor>,
}

impl Retention {
    fn of(&self, queue: &QueueName) -> KeepFor {
        self.queues.get(queue).copied().unwrap_or(self.others)
    }

    /// Whether anything is ever archived.
    pub fn is_for_ever(&self) -> bool {
        self.others == KeepFor::Ever && self.queues.values().all(|keep| *keep == KeepFor::Ever)
    }
}

/// Tests only: where a coordinator dies while it archives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArchiveDies {
    /// The file was proven, nothing is removed.
    Copied,
    /// The streams are removed, nobody was told.
    Removed,
}

impl FromStr for ArchiveDies {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "copied" => Ok(Self::Copied),
            "removed" => Ok(Self::Removed),
            _ => Err(format!("`{text}` is none of copied, removed")),
        }
    }
}

/// How a coordinator archives.
#[derive(Debug, Clone)]
pub struct ArchiveSettings {
    /// Where to; none = it does not.
    pub to: Option<String>,
    /// What it does by itself.
    pub retention: Retention,
    /// A folder for files on their way.
    pub scratch: PathBuf,
    /// What its files say made them.
    pub made_by: String,
    /// How often it looks by itself; none = as it is made.
    pub every: Option<Duration>,
    /// Tests only.
    pub dies: Option<ArchiveDies>,
    /// When tasks were restored. Of one store; copies of the settings share it.
    pub restores: Arc<TailedFold<RestoreTimes>>,
}

impl Default for ArchiveSettings {
    fn default() -> Self {
        let retention = Retention { others: KeepFor::Ever, queues: BTreeMap::new() };
        let made_by = concat!("docket ", env!("CARGO_PKG_VERSION")).to_owned();
        Self {
            to: None,
            retention,
            scratch: std::env::temp_dir(),
            made_by,
            every: None,
            dies: None,
            restores: Arc::default(),
        }
    }
}

/// What is archived in one go.
#[derive(Debug, Clone)]
pub struct Asked {
    /// How long tasks are kept.
    pub retention: Retention,
    /// Of which queues; `Retention` holds for their kin.
    pub queues: Queues,
    /// Those that ended before this are looked at.
    pub before: Timestamp,
    /// Go on behind this place.
    pub after: Option<ArchivePlace>,
    /// Only look.
    pub dry_run: bool,
    /// Who.
    pub by: String,
    /// No further family is begun after this time; the answer says where to go on.
    pub time: Duration,
}

/// What a coordinator archives with.
#[derive(Clone)]
pub struct Archiver {
    /// The log.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Arc<Clock>,
    /// How.
    pub settings: ArchiveSettings,
}

enum Failed {
    Kept(String),
    /// Another coordinator has archived it: nobody needs to hear of it.
    Gone,
    Place(PlaceError),
    Store(StoreError),
}

impl From<NotCopied> for Failed {
    fn from(error: NotCopied) -> Self {
        match error {
            NotCopied::Kept(why) => Self::Kept(why),
            NotCopied::Gone => Self::Gone,
            NotCopied::Store(error) => Self::Store(error),
            NotCopied::File { path, source } => {
                Self::Place(PlaceError::Local { path, doing: "a family is written to it", source })
            }
        }
    }
}

impl Archiver {
    /// Looks at a page of old tasks and archives what may go.
    ///
    /// # Errors
    /// The archive, or the store, cannot be used. What was archived before stands in the log.
    pub async fn page(&self, place: Option<&Place>, asked: &Asked) -> Result<ArchiveResponse, RestoreFailed> {
        let after = asked.after.map(|place| (place.ended_at, place.task));
        let page = self.store.ended(asked.before, asked.queues.clone(), after, ARCHIVE_TASKS_MAX).await?;
        let full = page.len() >= ARCHIVE_TASKS_MAX as usize;
        let place_of = |ended: &Ended| ArchivePlace { ended_at: ended.ended_at, task: ended.task };
        let next = page.last().filter(|_| full).map(place_of);
        let mut response = ArchiveResponse { archived: Vec::new(), kept: Vec::new(), next };
        let (began, mut last) = (Instant::now(), None);
        let mut seen: BTreeSet<TaskId> = BTreeSet::new();
        let (mut gathered, mut done) = (Vec::new(), Vec::new());
        let restores = &self.settings.restores;
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
                let restored_at = restores.with(|times| times.get(record.id));
                may_go(record, restored_at, &asked.retention, now)
            };
            let found = match family::gather(&*self.store, ended.task, may_go).await {
                Ok(family) => delivered(&*self.store, &family).await.map(|()| family),
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
                done.push((n, ended.task, Ok(counted(&family))));
                continue;
            };
            gathered.push((n, ended.task, family));
            if gathered.len() >= AT_ONCE {
                done.extend(self.families(place, std::mem::take(&mut gathered), &asked.by).await);
            }
        }
        if let Some(place) = place {
            done.extend(self.families(place, gathered, &asked.by).await);
        }
        done.sort_by_key(|(n, ..)| *n);
        for (_, task, ended) in done {
            match ended {
                Ok(archived) => response.archived.push(archived),
                Err(Failed::Kept(why)) => {
                    // What another coordinator archives meanwhile breaks off, in whatever it was being read for.
                    if self.store.head(StreamId::Task(task)).await?.is_some() {
                        response.kept.push(FamilyKept { task, why });
                    }
                }
                Err(Failed::Gone) => {}
                Err(Failed::Place(error)) => return Err(error.into()),
                Err(Failed::Store(error)) => return Err(error.into()),
            }
        }
        Ok(response)
    }

    /// Archives some at once. Nothing else is read of the store meanwhile: one that nobody polled would keep what it
    /// has of the store's connections, and the reader wait for it.
    async fn families(
        &self,
        place: &Place,
        families: Vec<(usize, TaskId, Gathered)>,
        by: &str,
    ) -> Vec<(usize, TaskId, Result<FamilyArchived, Failed>)> {
        let each = families
            .into_iter()
            .map(async |(n, task, family)| (n, task, self.family(place, &family, by).await));
        join_all(each).await
    }

    /// Copies, reads back, removes.
    async fn family(&self, place: &Place, family: &Gathered, by: &str) -> Result<FamilyArchived, Failed> {
        let scratch = |source| {
            let path = self.settings.scratch.clone();
            Failed::Place(PlaceError::Local { path, doing: "making a file in it", source })
        };
        let made = tempfile::NamedTempFile::new_in(&self.settings.scratch).map_err(scratch)?;
        let made_by = self.settings.made_by.clone();
        let Copied { header, events } = family::copy(&*self.store, family, made_by, made.path()).await?;
        let (hash, bytes) = hashed(made.path()).await?;
        let name = name_of(family, hash, self.store.task(family.task).await.map_err(Failed::Store)?);
        let is_new = place.put_new(&name, made.path()).await.map_err(Failed::Place)?;
        let mut back = self.read_back(place, &name, hash).await;
        if !is_new && matches!(back, Err(Failed::Kept(_))) {
            // Its name says what the bytes have to be: what stood there was damaged.
            place.put_file(&name, made.path()).await.map_err(Failed::Place)?;
            back = self.read_back(place, &name, hash).await;
        }
        let proven = back?;
        if proven.header != header || proven.events != events {
            return Err(Failed::Kept(format!("its copy {name} is not what was copied")));
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
        place.put_new_bytes(&format!("{name}.index.json"), line.into()).await.map_err(Failed::Place)?;
        self.dies(ArchiveDies::Copied);
        match self.store.remove(archived, self.clock.now()).await {
            Ok(()) => {}
            Err(ArchiveError::Refused(ArchiveRefusal::Gone(_))) => return Err(Failed::Gone),
            Err(ArchiveError::Refused(refused)) => return Err(Failed::Kept(refused.to_string())),
            Err(ArchiveError::Store(error)) => return Err(Failed::Store(error)),
        }
        self.dies(ArchiveDies::Removed);
        Ok(FamilyArchived { file: Some(name), bytes, ..counted(family) })
    }

    /// Proves a copy as it stands where it went, and not as it was made here.
    async fn read_back(&self, place: &Place, name: &str, hash: BlobHash) -> Result<Family, Failed> {
        let back = tempfile::NamedTempFile::new_in(&self.settings.scratch).map_err(|source| {
            let path = self.settings.scratch.clone();
            Failed::Place(PlaceError::Local { path, doing: "making a file in it", source })
        })?;
        place.get_file(name, back.path()).await.map_err(Failed::Place)?;
        let proven = file::verify_file(back.path(), hash).await;
        proven
            .map_err(|error| Failed::Kept(format!("its copy {name} does not hold: {}", error_chain(&error))))
    }

    fn dies(&self, at: ArchiveDies) {
        if self.settings.dies == Some(at) {
            // Should it fail, the coordinator lives on, and the test that waits for its death fails.
            let _ = raise(Signal::SIGKILL);
        }
    }
}

async fn hashed(path: &Path) -> Result<(BlobHash, u64), Failed> {
    let of = path.to_owned();
    let hashed = tokio::task::spawn_blocking(move || file::hash_of(&of)).await;
    match hashed {
        Ok(Ok(hashed)) => Ok(hashed),
        Ok(Err(error)) => Err(Failed::Kept(error_chain(&error))),
        Err(error) => Err(Failed::Kept(error.to_string())),
    }
}

/// Hexadecimal digits of a file's hash in its name: no two files of one task ever share them.
const NAME_DIGITS: usize = 32;

/// The same for the same bytes, and for no others: what once stands under a name is never replaced by anything else.
fn name_of(family: &Gathered, hash: BlobHash, first: Option<crate::store::TaskAndDeadline>) -> String {
    let ended_at = first.and_then(|(record, _)| record.ended_at).unwrap_or_default().to_string();
    let month = ended_at.get(..7).unwrap_or("0000-00").replace('-', "/");
    let digits = hash.to_string();
    format!("{month}/{}-{}.docket", family.task, digits.get(..NAME_DIGITS).unwrap_or(&digits))
}

fn counted(family: &Gathered) -> FamilyArchived {
    FamilyArchived {
        task: family.task,
        tasks: family.tasks.len() as u64,
        runs: family.runs.len() as u64,
        events: family.events(),
        file: None,
        bytes: 0,
    }
}

/// A result that its task was to give, and that nobody told of, is still to be delivered: whoever does so reads it here.
async fn delivered(store: &dyn Store, family: &Gathered) -> Result<(), NotCopied> {
    for (task, _) in &family.tasks {
        let Some((record, _)) = store.task(*task).await? else { continue };
        let wanted = record.spec.delivery();
        let Some(run) = record.last_run.filter(|_| record.state == TaskState::Completed) else { continue };
        if wanted == Delivery::Patch {
            continue;
        }
        let mut events: Vec<Envelope> = Vec::new();
        loop {
            let after = events.last().map_or(Seq(0), |event| event.seq);
            let page = store.read(StreamId::Task(*task), after, PAGE_EVENTS_MAX).await?;
            if page.is_empty() {
                break;
            }
            events.extend(page);
        }
        let found = Deliveries::of(&events).map_err(|error| NotCopied::Kept(error.to_string()))?;
        if !found.is_over(run, wanted) && !found.is_accepted(run) {
            let short = task.short();
            let what = wanted.as_str();
            return Err(NotCopied::Kept(format!(
                "the {what} that task {short} is to give is not delivered yet: `docket up` or `docket apply {short}` \
                 where its repository is, or `docket accept {short}` if nobody wants it any more"
            )));
        }
    }
    Ok(())
}

/// When the task ended, if that, and when it was last brought back, was long enough ago for its queue.
fn may_go(
    record: &TaskRecord,
    restored: Option<Timestamp>,
    retention: &Retention,
    now: Timestamp,
) -> Result<Timestamp, String> {
    let short = record.id.short();
    let Some(ended_at) = record.ended_at else {
        return Err(format!("task {short} shares history with it and has not ended"));
    };
    match retention.of(&record.spec.queue) {
        KeepFor::Ms(ms) if restored.is_some_and(|at| at.plus_ms(ms) > now) => {
            Err(format!("task {short} was brought back lately"))
        }
        KeepFor::Ms(ms) if ended_at.plus_ms(ms) <= now => Ok(ended_at),
        KeepFor::Ms(_) => Err(format!("task {short} shares history with it and ended lately")),
        KeepFor::Ever => Err(format!("task {short} shares history with it and its queue keeps for ever")),
    }
}

/// What was asked of the archive cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum RestoreFailed {
    /// The archive cannot be used.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The file does not hold, or the store refuses it.
    #[error(transparent)]
    File(#[from] FileError),
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
pub async fn find(stub: &Stub, to: Option<&str>) -> Result<Place, PlaceError> {
    let mut places: Vec<&str> = to.into_iter().chain([stub.place.as_str()]).collect();
    places.dedup();
    let mut failed = None;
    for url in &places {
        match look(stub, url).await {
            Ok(place) => return Ok(place),
            // What is there and is not what it was says more than that it is not there.
            Err(error) => failed = failed.filter(|_| error.is_absent()).or(Some(error)),
        }
    }
    let absent = || PlaceError::NotThere { place: places.join(", nor in "), file: stub.file.clone() };
    Err(failed.filter(|error| !error.is_absent()).unwrap_or_else(absent))
}

async fn look(stub: &Stub, url: &str) -> Result<Place, PlaceError> {
    let place = Place::open(url)?;
    let file = stub.file.clone();
    match place.size(&file).await? {
        Some(found) if found == stub.file_bytes => Ok(place),
        Some(found) => {
            let expected = stub.file_bytes;
            Err(PlaceError::OtherSize { place: url.to_owned(), file, found, expected })
        }
        None => Err(PlaceError::NotThere { place: url.to_owned(), file }),
    }
}

/// Copies the file of an archived stream to this machine, proven.
pub async fn fetch(
    stub: &Stub,
    to: Option<&str>,
    scratch: &Path,
) -> Result<tempfile::NamedTempFile, RestoreFailed> {
    let local = |source| PlaceError::Local { path: scratch.to_owned(), doing: "making a file in it", source };
    let file = tempfile::NamedTempFile::new_in(scratch).map_err(local)?;
    find(stub, to).await?.get_file(&stub.file, file.path()).await?;
    Ok(file)
}

/// Brings the family of an archived stream back.
///
/// # Errors
/// [`RestoreFailed`]: nothing is back.
pub async fn restore(archiver: &Archiver, stub: &Stub, by: String) -> Result<Unpacked, RestoreFailed> {
    let file = fetch(stub, archiver.settings.to.as_deref(), &archiver.settings.scratch).await?;
    let now = archiver.clock.now();
    let store = &*archiver.store;
    Ok(file::unpack(file.path(), stub.file_hash, store, by, Into::ItsLog, now).await?)
}

//! Archiving, page by page of old tasks; bringing a family back; reading a file for whoever looks at it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    str::FromStr,
    sync::Arc,
    time::{Duration, Instant},
};

use docket_schema::{
    ids::{QueueName, TaskId, Timestamp},
    system::StreamsArchived,
    task::TaskRecord,
    wire::{ARCHIVE_TASKS_MAX, ArchivePlace, ArchiveResponse, FamilyArchived, FamilyKept},
};
use nix::sys::signal::{Signal, raise};

use super::{
    family::{self, Copied, Gathered, NotCopied},
    file::{self, FileError, Unpacked},
    place::{Place, PlaceError},
};
use crate::{
    clock::Clock,
    http::error_chain,
    store::{ArchiveError, Ended, Into, Queues, Store, StoreError, Stub},
};

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
    /// How often it looks by itself; none = as it is made.
    pub every: Option<Duration>,
    /// Tests only.
    pub dies: Option<ArchiveDies>,
}

impl Default for ArchiveSettings {
    fn default() -> Self {
        let retention = Retention { others: KeepFor::Ever, queues: BTreeMap::new() };
        Self { to: None, retention, scratch: std::env::temp_dir(), every: None, dies: None }
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
    Place(PlaceError),
    Store(StoreError),
}

impl From<NotCopied> for Failed {
    fn from(error: NotCopied) -> Self {
        match error {
            NotCopied::Kept(why) => Self::Kept(why),
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
        for ended in page {
            if last.is_some() && began.elapsed() > asked.time {
                response.next = last;
                break;
            }
            last = Some(place_of(&ended));
            if !seen.insert(ended.task) {
                continue;
            }
            let now = self.clock.now();
            let may_go = |record: &TaskRecord| may_go(record, &asked.retention, now);
            let gathered = family::gather(&*self.store, ended.task, may_go).await;
            let done = match (gathered, place.filter(|_| !asked.dry_run)) {
                (Err(error), _) => Err(error.into()),
                (Ok(family), None) => Ok((counted(&family), family)),
                (Ok(family), Some(place)) => {
                    self.family(place, &family, &asked.by).await.map(|done| (done, family))
                }
            };
            match done {
                Ok((archived, family)) => {
                    seen.extend(family.tasks.iter().map(|(task, _)| *task));
                    response.archived.push(archived);
                }
                Err(Failed::Kept(why)) => response.kept.push(FamilyKept { task: ended.task, why }),
                Err(Failed::Place(error)) => return Err(error.into()),
                Err(Failed::Store(error)) => return Err(error.into()),
            }
        }
        Ok(response)
    }

    /// Copies, reads back, removes.
    async fn family(&self, place: &Place, family: &Gathered, by: &str) -> Result<FamilyArchived, Failed> {
        let scratch = |source| {
            let path = self.settings.scratch.clone();
            Failed::Place(PlaceError::Local { path, doing: "making a file in it", source })
        };
        let made = tempfile::NamedTempFile::new_in(&self.settings.scratch).map_err(scratch)?;
        let Copied { header, events } = family::copy(&*self.store, family, made.path()).await?;
        let (hash, bytes) = hashed(made.path()).await?;
        let name = name_of(family, self.store.task(family.task).await.map_err(Failed::Store)?);
        place.put_file(&name, made.path()).await.map_err(Failed::Place)?;
        // From where it went, not from here.
        let back = tempfile::NamedTempFile::new_in(&self.settings.scratch).map_err(scratch)?;
        place.get_file(&name, back.path()).await.map_err(Failed::Place)?;
        let proven = file::verify_file(back.path(), hash).await.map_err(|error| {
            Failed::Kept(format!("its copy {name} does not hold: {}", error_chain(&error)))
        })?;
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
        place.put_bytes(&format!("{name}.index.json"), line).await.map_err(Failed::Place)?;
        self.dies(ArchiveDies::Copied);
        match self.store.remove(archived, self.clock.now()).await {
            Ok(()) => {}
            Err(ArchiveError::Refused(refused)) => return Err(Failed::Kept(refused.to_string())),
            Err(ArchiveError::Store(error)) => return Err(Failed::Store(error)),
        }
        self.dies(ArchiveDies::Removed);
        Ok(FamilyArchived { file: Some(name), bytes, ..counted(family) })
    }

    fn dies(&self, at: ArchiveDies) {
        if self.settings.dies == Some(at) {
            // Should it fail, the coordinator lives on, and the test that waits for its death fails.
            let _ = raise(Signal::SIGKILL);
        }
    }
}

async fn hashed(path: &Path) -> Result<(docket_schema::ids::BlobHash, u64), Failed> {
    let of = path.to_owned();
    let hashed = tokio::task::spawn_blocking(move || file::hash_of(&of)).await;
    match hashed {
        Ok(Ok(hashed)) => Ok(hashed),
        Ok(Err(error)) => Err(Failed::Kept(error_chain(&error))),
        Err(error) => Err(Failed::Kept(error.to_string())),
    }
}

/// The same for the same streams at the same heads: a copy that is made again takes the place of the first.
fn name_of(family: &Gathered, first: Option<crate::store::TaskAndDeadline>) -> String {
    let mut heads = blake3::Hasher::new();
    for (_, head) in &family.tasks {
        heads.update(&head.hash.0);
    }
    for run in &family.runs {
        heads.update(&run.head.hash.0);
    }
    let ended_at = first.and_then(|(record, _)| record.ended_at).unwrap_or_default().to_string();
    let month = ended_at.get(..7).unwrap_or("0000-00").replace('-', "/");
    let digits = heads.finalize().to_hex();
    format!("{month}/{}-{}.docket", family.task, digits.get(..12).unwrap_or_default())
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

/// When the task ended, if it was long enough ago for its queue.
fn may_go(record: &TaskRecord, retention: &Retention, now: Timestamp) -> Result<Timestamp, String> {
    let short = record.id.short();
    let Some(ended_at) = record.ended_at else {
        return Err(format!("task {short} shares history with it and has not ended"));
    };
    match retention.of(&record.spec.queue) {
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
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Copies the file of an archived stream to this machine, proven.
///
/// # Errors
/// [`RestoreFailed`].
pub async fn fetch(stub: &Stub, scratch: &Path) -> Result<tempfile::NamedTempFile, RestoreFailed> {
    let local = |source| PlaceError::Local { path: scratch.to_owned(), doing: "making a file in it", source };
    let file = tempfile::NamedTempFile::new_in(scratch).map_err(local)?;
    Place::open(&stub.place)?.get_file(&stub.file, file.path()).await?;
    Ok(file)
}

/// Brings the family of an archived stream back.
///
/// # Errors
/// [`RestoreFailed`]: nothing is back.
pub async fn restore(archiver: &Archiver, stub: &Stub, by: String) -> Result<Unpacked, RestoreFailed> {
    let file = fetch(stub, &archiver.settings.scratch).await?;
    let now = archiver.clock.now();
    let store = &*archiver.store;
    Ok(file::unpack(file.path(), stub.file_hash, store, by, Into::ItsLog, now).await?)
}

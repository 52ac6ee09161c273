//! Which blobs a recorded event names, and which blobs a blob names.
//!
//! The one place that says so, for whoever must have all of them (export, import) and for whoever must
//! not drop one (garbage collection). Pure. An event that is added to a family does not compile until it
//! says here what it names. What a model wrote into its arguments names nothing, whatever it looks like.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    content::{BlobRef, Content},
    event::{DecodeError, Envelope, EventRef, TypedEvent as _},
    ids::{BlobHash, Seq, StreamId},
    message::Part,
    queue::QueueEvent,
    run::{Fact, RoleSpec, RunEvent},
    snapshot::{Base, Entry, EntryKind, Manifest, PathChange},
    system::SystemEvent,
    task::{TaskEvent, TaskSpec},
};

/// What a blob is to the event that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NamedAs {
    /// It must be stored.
    Part,
    /// A base's manifest: it must be stored, and names contents itself. Where the base has a pack, the
    /// pack holds those contents; where it has none, each is a blob.
    Manifest {
        /// The base has a pack.
        packed: bool,
    },
    /// A file's content in a snapshot: stored as a blob, unless the base's pack holds it already.
    Content,
}

/// A blob that an event names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    /// Which.
    pub blob: BlobRef,
    /// As what.
    pub named_as: NamedAs,
}

/// The blobs that `event` names, in the order of its payload; one may stand there twice.
///
/// # Errors
/// [`DecodeError`]: this build does not know the event, and so cannot say.
pub fn blobs_named(event: &Envelope) -> Result<Vec<Named>, DecodeError> {
    let mut named = Vec::new();
    of_event(&event.stream, &event.by_ref(), &mut named)?;
    Ok(named)
}

/// As [`blobs_named`], of an event that is not kept; adds to `named`.
///
/// # Errors
/// As [`blobs_named`].
pub fn of_event(stream: &StreamId, event: &EventRef<'_>, named: &mut Vec<Named>) -> Result<(), DecodeError> {
    let (kind, version, payload) = (event.kind, event.version, event.payload);
    match stream {
        StreamId::Run(_) => of_run(&RunEvent::decode(kind, version, payload)?, named),
        StreamId::Task(_) => of_task(&TaskEvent::decode(kind, version, payload)?, named),
        StreamId::System(_) => of_system(&SystemEvent::decode(kind, version, payload)?, named),
        // Its events are read all the same: one that cannot be is told.
        StreamId::Queue(_) => {
            QueueEvent::decode(kind, version, payload)?;
        }
    }
    Ok(())
}

/// The contents that a base's manifest names.
pub fn contents_of(manifest: &Manifest) -> impl Iterator<Item = BlobRef> + '_ {
    manifest.entries.values().filter_map(content_of)
}

/// A blob that events need, and which event first said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Its size in bytes.
    pub bytes: u64,
    /// Whose event names it.
    pub stream: StreamId,
    /// Which event.
    pub seq: Seq,
    /// It is a manifest; `true` where every base with it has a pack.
    pub manifest: Option<bool>,
    /// It may stand in a base's pack instead.
    or_packed: bool,
}

/// All blobs that events need, directly or through a manifest. Fed event by event, and manifest by manifest.
#[derive(Debug, Default)]
pub struct Needs {
    named: BTreeMap<BlobHash, Need>,
    /// Contents that the packs of bases hold.
    packed: BTreeSet<BlobHash>,
}

impl Needs {
    /// Takes what `event` names.
    ///
    /// # Errors
    /// [`DecodeError`]: this build does not know the event.
    pub fn event(&mut self, event: &Envelope) -> Result<(), DecodeError> {
        for named in blobs_named(event)? {
            self.want(named, &event.stream, event.seq);
        }
        Ok(())
    }

    /// Takes what a manifest names that was named as one.
    pub fn manifest(&mut self, hash: BlobHash, manifest: &Manifest) {
        let Some(need) = self.named.get(&hash) else { return };
        let (stream, seq, packed) = (need.stream.clone(), need.seq, need.manifest == Some(true));
        for blob in contents_of(manifest) {
            if packed {
                self.packed.insert(blob.hash);
            } else {
                self.want(Named { blob, named_as: NamedAs::Part }, &stream, seq);
            }
        }
    }

    /// What is known of a blob that some event names.
    pub fn get(&self, hash: &BlobHash) -> Option<&Need> {
        self.named.get(hash)
    }

    /// Every blob that is named, needed or not.
    pub fn all(&self) -> impl Iterator<Item = (BlobRef, &Need)> {
        self.named.iter().map(|(hash, need)| (BlobRef { hash: *hash, bytes: need.bytes }, need))
    }

    /// The blobs that must be stored, once every manifest was taken.
    pub fn required(&self) -> impl Iterator<Item = (BlobRef, &Need)> {
        self.all().filter(|(blob, need)| !(need.or_packed && self.packed.contains(&blob.hash)))
    }

    fn want(&mut self, named: Named, stream: &StreamId, seq: Seq) {
        let need = self.named.entry(named.blob.hash).or_insert_with(|| Need {
            bytes: named.blob.bytes,
            stream: stream.clone(),
            seq,
            manifest: None,
            or_packed: true,
        });
        match named.named_as {
            NamedAs::Part => need.or_packed = false,
            NamedAs::Manifest { packed } => {
                need.or_packed = false;
                need.manifest = Some(need.manifest.unwrap_or(true) && packed);
            }
            NamedAs::Content => {}
        }
    }
}

fn content_of(entry: &Entry) -> Option<BlobRef> {
    match entry.kind {
        EntryKind::File | EntryKind::Symlink => Some(BlobRef { hash: entry.hash, bytes: entry.size }),
        EntryKind::Dir => None,
    }
}

fn part(blob: BlobRef, named: &mut Vec<Named>) {
    named.push(Named { blob, named_as: NamedAs::Part });
}

fn of_content(content: &Content, named: &mut Vec<Named>) {
    if let Some(blob) = content.blob() {
        part(blob, named);
    }
}

fn of_base(base: &Base, named: &mut Vec<Named>) {
    let packed = base.git.is_some();
    named.push(Named { blob: base.manifest, named_as: NamedAs::Manifest { packed } });
    if let Some(git) = &base.git {
        let parts = git.pack.iter().chain([&git.pack_index, &git.index]).chain(&git.recent);
        let parts = parts.chain(git.submodules.iter().filter_map(|module| module.index.as_ref()));
        parts.for_each(|blob| part(*blob, named));
    }
}

fn of_spec(spec: &TaskSpec, named: &mut Vec<Named>) {
    of_base(&spec.base, named);
    if let Some(script) = spec.script {
        part(script, named);
    }
}

fn of_roles(roles: &[RoleSpec], named: &mut Vec<Named>) {
    roles.iter().flat_map(|role| [role.system, role.tools]).for_each(|blob| part(blob, named));
}

fn of_changes(changes: &[PathChange], named: &mut Vec<Named>) {
    let entries = changes.iter().filter_map(|change| change.entry.as_ref());
    named.extend(entries.filter_map(content_of).map(|blob| Named { blob, named_as: NamedAs::Content }));
}

fn of_parts(parts: &[Part], named: &mut Vec<Named>) {
    for part in parts {
        match part {
            Part::Text { text: content } | Part::ToolResult { content, .. } => of_content(content, named),
            Part::Thinking { .. } | Part::ToolUse(_) => {}
        }
    }
}

/// As [`blobs_named`], of a run's event that is decoded already.
pub fn of_run(event: &RunEvent, named: &mut Vec<Named>) {
    match event {
        RunEvent::RunStarted(e) => {
            let prompts = [e.prompts.system, e.prompts.tools, e.prompts.task];
            prompts.into_iter().chain(e.policy).for_each(|blob| part(blob, named));
            of_roles(&e.roles, named);
            of_base(&e.base, named);
        }
        RunEvent::Forked(e) => e.hint.iter().for_each(|hint| of_content(hint, named)),
        RunEvent::SetupFinished(e) => of_content(&e.content, named),
        RunEvent::ModelAnswered(e) => of_parts(&e.parts, named),
        RunEvent::ToolFinished(e) => {
            of_content(&e.content, named);
            e.full.iter().for_each(|blob| part(*blob, named));
        }
        RunEvent::SnapshotTaken(e) => {
            of_changes(&e.changes, named);
            of_changes(&e.git_changes, named);
        }
        RunEvent::GateFinished(e) => {
            of_content(&e.content, named);
            e.full.iter().for_each(|blob| part(*blob, named));
        }
        RunEvent::Told(e) => of_content(&e.text, named),
        RunEvent::PolicyChanged(e) => part(e.policy, named),
        RunEvent::RunBlocked(e) => of_content(&e.question, named),
        RunEvent::BlockerAnswered(e) => of_content(&e.text, named),
        RunEvent::ChildAnswered(e) => of_content(&e.content, named),
        RunEvent::Compacted(e) => {
            of_content(&e.summary, named);
            e.ledger.iter().for_each(|ledger| of_content(ledger, named));
        }
        RunEvent::RolesPinned(e) => of_roles(&e.roles, named),
        RunEvent::RoleBegan(e) => e.opening.iter().for_each(|text| of_content(text, named)),
        RunEvent::Concluded(e) => {
            e.facts.iter().filter_map(Fact::content).for_each(|content| of_content(content, named));
        }
        RunEvent::RunEnded(e) => e.summary.iter().for_each(|summary| of_content(summary, named)),
        RunEvent::RunRecovered(_)
        | RunEvent::PhaseChanged(_)
        | RunEvent::BaseChecked(_)
        | RunEvent::ModelRequested(_)
        | RunEvent::ModelFailed(_)
        | RunEvent::ToolRequested(_)
        | RunEvent::GateRequested(_)
        | RunEvent::CancelRequested(_)
        | RunEvent::PauseRequested(_)
        | RunEvent::Unpaused(_)
        | RunEvent::LimitReached(_)
        | RunEvent::RunPaused(_)
        | RunEvent::Delegated(_)
        | RunEvent::WorkspaceEdited(_) => {}
    }
}

/// As [`blobs_named`], of a task's event that is decoded already.
pub fn of_task(event: &TaskEvent, named: &mut Vec<Named>) {
    match event {
        TaskEvent::TaskSubmitted(e) => {
            of_spec(&e.spec, named);
            let start = e.delegated_by.as_ref().and_then(|by| by.start);
            start.iter().for_each(|blob| part(*blob, named));
        }
        TaskEvent::TaskMadeAvailable(_)
        | TaskEvent::TaskLeased(_)
        | TaskEvent::TaskReleased(_)
        | TaskEvent::TaskLeaseExpired(_)
        | TaskEvent::TaskRunCrashed(_)
        | TaskEvent::TaskRunFailed(_)
        | TaskEvent::TaskBlocked(_)
        | TaskEvent::TaskUnblocked(_)
        | TaskEvent::TaskCompleted(_)
        | TaskEvent::TaskCancelled(_)
        | TaskEvent::TaskDiscarded(_)
        | TaskEvent::TaskRetried(_)
        | TaskEvent::TaskResumed(_)
        | TaskEvent::TaskReprioritized(_)
        | TaskEvent::TaskPaused(_)
        | TaskEvent::TaskDependencyEnded(_)
        | TaskEvent::TaskDelegated(_)
        | TaskEvent::TaskDeliveryClaimed(_)
        | TaskEvent::TaskNeededNoDelivery(_)
        | TaskEvent::TaskDeliveryRequested(_)
        | TaskEvent::TaskDelivered(_)
        | TaskEvent::TaskDeliveryBlocked(_)
        | TaskEvent::TaskDeliveryHookRan(_)
        | TaskEvent::TaskAccepted(_)
        | TaskEvent::TaskRejected(_) => {}
    }
}

/// As [`blobs_named`], of an event of the system's that is decoded already.
pub fn of_system(event: &SystemEvent, named: &mut Vec<Named>) {
    match event {
        SystemEvent::MemorySaved(e) => part(e.value, named),
        SystemEvent::ScheduleSet(e) => of_spec(&e.schedule.spec, named),
        SystemEvent::RunImported(_)
        | SystemEvent::TokenCreated(_)
        | SystemEvent::TokenRevoked(_)
        | SystemEvent::AdminActed(_)
        | SystemEvent::CallsRefused(_)
        | SystemEvent::StreamsArchived(_)
        | SystemEvent::StreamsRestored(_)
        | SystemEvent::SchedulePaused(_)
        | SystemEvent::ScheduleRemoved(_)
        | SystemEvent::ScheduleFired(_)
        | SystemEvent::LimitSet(_)
        | SystemEvent::LimitRemoved(_)
        | SystemEvent::BudgetSet(_)
        | SystemEvent::BudgetSpent(_)
        | SystemEvent::NotificationsFollowed(_)
        | SystemEvent::NotificationRaised(_)
        | SystemEvent::NotificationDelivered(_)
        | SystemEvent::NotificationFailed(_)
        | SystemEvent::NotificationDeadLettered(_)
        | SystemEvent::NotificationRetried(_)
        | SystemEvent::NotificationDropped(_)
        | SystemEvent::MemoryForgotten(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::WorkPath;
    use crate::ids::TreeHash;
    use crate::{
        event::{NewEvent, Payload},
        ids::{BlobHash, Epoch, EventHash, Position, RunId, Seq, Timestamp, Turn},
        message::{CallId, StopReason, ToolUse, Usage},
        run::{ModelAnswered, SnapshotTaken, ToolFinished, ToolStatus},
        tool::ToolFacts,
    };

    fn envelope(event: &RunEvent) -> Envelope {
        let NewEvent { kind, version, turn, payload } = event.encode(Turn(1));
        Envelope {
            stream: StreamId::Run(RunId(uuid::Uuid::nil())),
            seq: Seq(1),
            position: Position(0),
            recorded_at: Timestamp(0),
            turn,
            epoch: Epoch(1),
            kind,
            version,
            payload,
            prev_hash: EventHash::ZERO,
            hash: EventHash::ZERO,
        }
    }

    fn named(event: &RunEvent) -> Vec<Named> {
        blobs_named(&envelope(event)).expect("known")
    }

    #[test]
    fn what_a_model_writes_into_its_arguments_names_nothing() {
        let fake = BlobRef::of(b"never stored");
        let args = serde_json::json!({ "blob": fake, "content": { "blob": fake } });
        let call = ToolUse { call: CallId("t1-0".into()), name: "x".into(), args, malformed: None };
        let real = BlobRef::of(b"long text");
        let answered = ModelAnswered {
            call: CallId("m1-1".into()),
            parts: vec![Part::ToolUse(call), Part::Text { text: Content::Blob(real) }],
            stop: StopReason::ToolUse,
            usage: Usage::default(),
            cost_nusd: 0,
            first_byte_ms: 0,
            total_ms: 0,
        };
        assert_eq!(named(&answered.into()), [Named { blob: real, named_as: NamedAs::Part }]);
    }

    #[test]
    fn outputs_are_parts_and_files_are_contents() {
        let (shown, full) = (BlobRef::of(b"shown"), BlobRef::of(b"full"));
        let finished = ToolFinished {
            call: CallId("t1-0".into()),
            status: ToolStatus::Ok,
            content: Content::Blob(shown),
            full: Some(full),
            facts: ToolFacts::default(),
            duration_ms: 0,
        };
        assert_eq!(named(&finished.into()).iter().map(|n| n.blob).collect::<Vec<_>>(), [shown, full]);

        let entry = |kind, content: &[u8]| Entry {
            kind,
            mode: 0o644,
            size: content.len() as u64,
            hash: BlobHash::of(content),
        };
        let change = |path: &str, entry| PathChange { path: WorkPath::new(path).expect("legal"), entry };
        let taken = SnapshotTaken {
            changes: vec![
                change("a", Some(entry(EntryKind::File, b"a"))),
                change("gone", None),
                change("dir", Some(entry(EntryKind::Dir, b""))),
            ],
            git_changes: vec![change(".git/HEAD", Some(entry(EntryKind::File, b"ref")))],
            tree: TreeHash::ZERO,
            left_out: vec![],
            more: false,
        };
        let expected = [BlobRef::of(b"a"), BlobRef::of(b"ref")];
        assert_eq!(named(&taken.into()), expected.map(|blob| Named { blob, named_as: NamedAs::Content }));
    }

    #[test]
    fn an_unknown_event_is_no_event_without_blobs() {
        let mut event = envelope(&RunEvent::PauseRequested(crate::run::PauseRequested { by: "x".into() }));
        event.kind = "FromTheFuture".into();
        event.payload = Payload::from_store("{}".into());
        assert!(blobs_named(&event).is_err());
    }
}

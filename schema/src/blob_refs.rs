//! Blob references: the blobs that a recorded event refers to, and the blobs that a manifest refers to.
//!
//! The single definition for everything that must have all of them (export, import) or must not delete one
//! (garbage collection). Pure. An event that is added to a family does not compile until its references are
//! defined here. A model's arguments never refer to a blob, whatever they contain.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    content::{BlobRef, Content},
    event::{DecodeError, Envelope, EventRef, TypedEvent as _},
    ids::{BlobHash, Seq, StreamId},
    message::MessagePart,
    queue::QueueEvent,
    run::{EngineFact, RoleSpec, RunEvent},
    snapshot::{Entry, EntryKind, Manifest, PathChange, WorkspaceBase},
    system::SystemEvent,
    task::{TaskEvent, TaskSpec},
};

/// How an event uses a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlobRole {
    /// The blob must be stored.
    Required,
    /// A base's manifest: it must be stored and refers to contents. If the base has a pack, the pack contains
    /// the contents; otherwise each is a blob.
    Manifest {
        /// Whether the base has a pack.
        packed: bool,
    },
    /// A file's content in a snapshot: stored as a blob unless the base's pack contains it.
    FileContent,
}

/// A reference from an event to a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlobReference {
    /// The blob.
    pub blob: BlobRef,
    /// How the event uses it.
    pub role: BlobRole,
}

/// Returns the blobs that `event` refers to, in the order of its payload; a blob can occur twice.
///
/// # Errors
///
/// [`DecodeError`] if this build does not know the event and therefore not its references.
pub fn event_blobs(event: &Envelope) -> Result<Vec<BlobReference>, DecodeError> {
    let mut named = Vec::new();
    collect_event_blobs(&event.stream, &event.as_event_ref(), &mut named)?;
    Ok(named)
}

/// Adds the blobs of a serialized payload to `named`, as [`event_blobs`] does.
///
/// # Errors
///
/// [`DecodeError`] if this build does not know the event.
pub fn collect_event_blobs(
    stream: &StreamId,
    event: &EventRef<'_>,
    named: &mut Vec<BlobReference>,
) -> Result<(), DecodeError> {
    let (kind, version, payload) = (event.kind, event.version, event.payload);
    match stream {
        StreamId::Run(_) => collect_run_event_blobs(&RunEvent::decode(kind, version, payload)?, named),
        StreamId::Task(_) => collect_task_event_blobs(&TaskEvent::decode(kind, version, payload)?, named),
        StreamId::System(_) => {
            collect_system_event_blobs(&SystemEvent::decode(kind, version, payload)?, named)
        }
        // Queue events refer to no blobs but are decoded anyway, so that an unreadable one is reported.
        StreamId::Queue(_) => {
            QueueEvent::decode(kind, version, payload)?;
        }
    }
    Ok(())
}

/// Returns the contents that a base's manifest refers to.
pub fn manifest_contents(manifest: &Manifest) -> impl Iterator<Item = BlobRef> + '_ {
    manifest.entries.values().filter_map(entry_blob)
}

/// A blob that events need, and the first event that refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferencedBlob {
    /// Its size in bytes.
    pub bytes: u64,
    /// The stream of the event.
    pub stream: StreamId,
    /// The event's sequence number.
    pub seq: Seq,
    /// Set for a manifest; `true` if every base with this manifest has a pack.
    pub manifest: Option<bool>,
    /// Whether a base's pack may contain it instead.
    may_be_packed: bool,
}

/// Collects all blobs that events need, directly or through a manifest. Feed it every event and every
/// manifest.
#[derive(Debug, Default)]
pub struct BlobRefs {
    by_hash: BTreeMap<BlobHash, ReferencedBlob>,
    /// Contents in the packs of bases.
    packed: BTreeSet<BlobHash>,
}

impl BlobRefs {
    /// Adds the references of `event`.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] if this build does not know the event.
    pub fn add_event(&mut self, event: &Envelope) -> Result<(), DecodeError> {
        for named in event_blobs(event)? {
            self.add_reference(named, &event.stream, event.seq);
        }
        Ok(())
    }

    /// Adds the references of a manifest that an event refers to.
    pub fn add_manifest(&mut self, hash: BlobHash, manifest: &Manifest) {
        let Some(need) = self.by_hash.get(&hash) else { return };
        let (stream, seq, packed) = (need.stream.clone(), need.seq, need.manifest == Some(true));
        for blob in manifest_contents(manifest) {
            if packed {
                self.packed.insert(blob.hash);
            } else {
                self.add_reference(BlobReference { blob, role: BlobRole::Required }, &stream, seq);
            }
        }
    }

    /// Returns the size and use of a blob that some event refers to.
    pub fn get(&self, hash: &BlobHash) -> Option<&ReferencedBlob> {
        self.by_hash.get(hash)
    }

    /// Returns every referenced blob, required or not.
    pub fn all(&self) -> impl Iterator<Item = (BlobRef, &ReferencedBlob)> {
        self.by_hash.iter().map(|(hash, need)| (BlobRef { hash: *hash, bytes: need.bytes }, need))
    }

    /// Returns the blobs that must be stored. Complete once every manifest was added.
    pub fn required(&self) -> impl Iterator<Item = (BlobRef, &ReferencedBlob)> {
        self.all().filter(|(blob, need)| !(need.may_be_packed && self.packed.contains(&blob.hash)))
    }

    fn add_reference(&mut self, named: BlobReference, stream: &StreamId, seq: Seq) {
        let need = self.by_hash.entry(named.blob.hash).or_insert_with(|| ReferencedBlob {
            bytes: named.blob.bytes,
            stream: stream.clone(),
            seq,
            manifest: None,
            may_be_packed: true,
        });
        match named.role {
            BlobRole::Required => need.may_be_packed = false,
            BlobRole::Manifest { packed } => {
                need.may_be_packed = false;
                need.manifest = Some(need.manifest.unwrap_or(true) && packed);
            }
            BlobRole::FileContent => {}
        }
    }
}

fn entry_blob(entry: &Entry) -> Option<BlobRef> {
    match entry.kind {
        EntryKind::File | EntryKind::Symlink => Some(BlobRef { hash: entry.hash, bytes: entry.size }),
        EntryKind::Dir => None,
    }
}

fn push_required(blob: BlobRef, named: &mut Vec<BlobReference>) {
    named.push(BlobReference { blob, role: BlobRole::Required });
}

fn collect_content_blobs(content: &Content, named: &mut Vec<BlobReference>) {
    if let Some(blob) = content.blob_ref() {
        push_required(blob, named);
    }
}

fn collect_base_blobs(base: &WorkspaceBase, named: &mut Vec<BlobReference>) {
    let packed = base.git.is_some();
    named.push(BlobReference { blob: base.manifest, role: BlobRole::Manifest { packed } });
    if let Some(git) = &base.git {
        let parts = git.pack.iter().chain([&git.pack_index, &git.index]).chain(&git.recent);
        let parts = parts.chain(git.submodules.iter().filter_map(|module| module.index.as_ref()));
        parts.for_each(|blob| push_required(*blob, named));
    }
}

fn collect_spec_blobs(spec: &TaskSpec, named: &mut Vec<BlobReference>) {
    collect_base_blobs(&spec.base, named);
    if let Some(script) = spec.script {
        push_required(script, named);
    }
}

fn collect_role_blobs(roles: &[RoleSpec], named: &mut Vec<BlobReference>) {
    roles.iter().flat_map(|role| [role.system, role.tools]).for_each(|blob| push_required(blob, named));
}

fn collect_change_blobs(changes: &[PathChange], named: &mut Vec<BlobReference>) {
    let entries = changes.iter().filter_map(|change| change.entry.as_ref());
    named.extend(
        entries.filter_map(entry_blob).map(|blob| BlobReference { blob, role: BlobRole::FileContent }),
    );
}

fn collect_part_blobs(parts: &[MessagePart], named: &mut Vec<BlobReference>) {
    for part in parts {
        match part {
            MessagePart::Text { text: content } | MessagePart::ToolResult { content, .. } => {
                collect_content_blobs(content, named)
            }
            MessagePart::Thinking { .. } | MessagePart::ToolUse(_) => {}
        }
    }
}

/// Adds the blobs of a decoded run event, as [`event_blobs`] does.
pub fn collect_run_event_blobs(event: &RunEvent, named: &mut Vec<BlobReference>) {
    match event {
        RunEvent::RunStarted(e) => {
            let prompts = [e.prompts.system, e.prompts.tools, e.prompts.task];
            prompts.into_iter().chain(e.policy).for_each(|blob| push_required(blob, named));
            collect_role_blobs(&e.roles, named);
            collect_base_blobs(&e.base, named);
        }
        RunEvent::Forked(e) => e.hint.iter().for_each(|hint| collect_content_blobs(hint, named)),
        RunEvent::SetupFinished(e) => collect_content_blobs(&e.content, named),
        RunEvent::ModelAnswered(e) => collect_part_blobs(&e.parts, named),
        RunEvent::ToolFinished(e) => {
            collect_content_blobs(&e.content, named);
            e.full.iter().for_each(|blob| push_required(*blob, named));
        }
        RunEvent::SnapshotTaken(e) => {
            collect_change_blobs(&e.changes, named);
            collect_change_blobs(&e.git_changes, named);
        }
        RunEvent::GateFinished(e) => {
            collect_content_blobs(&e.content, named);
            e.full.iter().for_each(|blob| push_required(*blob, named));
        }
        RunEvent::Told(e) => collect_content_blobs(&e.text, named),
        RunEvent::PolicyChanged(e) => push_required(e.policy, named),
        RunEvent::RunBlocked(e) => collect_content_blobs(&e.question, named),
        RunEvent::BlockerAnswered(e) => collect_content_blobs(&e.text, named),
        RunEvent::ChildAnswered(e) => collect_content_blobs(&e.content, named),
        RunEvent::Compacted(e) => {
            collect_content_blobs(&e.summary, named);
            e.ledger.iter().for_each(|ledger| collect_content_blobs(ledger, named));
        }
        RunEvent::RolesPinned(e) => collect_role_blobs(&e.roles, named),
        RunEvent::RoleBegan(e) => e.opening.iter().for_each(|text| collect_content_blobs(text, named)),
        RunEvent::Concluded(e) => {
            e.facts
                .iter()
                .filter_map(EngineFact::content)
                .for_each(|content| collect_content_blobs(content, named));
        }
        RunEvent::RunEnded(e) => e.summary.iter().for_each(|summary| collect_content_blobs(summary, named)),
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

/// Adds the blobs of a decoded task event, as [`event_blobs`] does.
pub fn collect_task_event_blobs(event: &TaskEvent, named: &mut Vec<BlobReference>) {
    match event {
        TaskEvent::TaskSubmitted(e) => {
            collect_spec_blobs(&e.spec, named);
            let start = e.delegated_by.as_ref().and_then(|by| by.start);
            start.iter().for_each(|blob| push_required(*blob, named));
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

/// Adds the blobs of a decoded system event, as [`event_blobs`] does.
pub fn collect_system_event_blobs(event: &SystemEvent, named: &mut Vec<BlobReference>) {
    match event {
        SystemEvent::MemorySaved(e) => push_required(e.value, named),
        SystemEvent::ScheduleSet(e) => collect_spec_blobs(&e.schedule.spec, named),
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
    use crate::content::WorkspacePath;
    use crate::ids::TreeHash;
    use crate::{
        event::{NewEvent, Payload},
        ids::{BlobHash, Epoch, EventHash, Position, RunId, Seq, Timestamp, Turn},
        message::{CallId, StopReason, TokenUsage, ToolUse},
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

    fn references(event: &RunEvent) -> Vec<BlobReference> {
        event_blobs(&envelope(event)).expect("known")
    }

    #[test]
    fn tool_arguments_reference_no_blobs() {
        let fake = BlobRef::for_bytes(b"never stored");
        let args = serde_json::json!({ "blob": fake, "content": { "blob": fake } });
        let call = ToolUse { call: CallId("t1-0".into()), name: "x".into(), args, malformed: None };
        let real = BlobRef::for_bytes(b"long text");
        let answered = ModelAnswered {
            call: CallId("m1-1".into()),
            parts: vec![MessagePart::ToolUse(call), MessagePart::Text { text: Content::Blob(real) }],
            stop: StopReason::ToolUse,
            usage: TokenUsage::default(),
            cost_nusd: 0,
            first_byte_ms: 0,
            total_ms: 0,
        };
        assert_eq!(references(&answered.into()), [BlobReference { blob: real, role: BlobRole::Required }]);
    }

    #[test]
    fn outputs_are_required_and_files_are_contents() {
        let (shown, full) = (BlobRef::for_bytes(b"shown"), BlobRef::for_bytes(b"full"));
        let finished = ToolFinished {
            call: CallId("t1-0".into()),
            status: ToolStatus::Ok,
            content: Content::Blob(shown),
            full: Some(full),
            facts: ToolFacts::default(),
            duration_ms: 0,
        };
        assert_eq!(references(&finished.into()).iter().map(|n| n.blob).collect::<Vec<_>>(), [shown, full]);

        let entry = |kind, content: &[u8]| Entry {
            kind,
            mode: 0o644,
            size: content.len() as u64,
            hash: BlobHash::hash_bytes(content),
        };
        let change = |path: &str, entry| PathChange { path: WorkspacePath::new(path).expect("legal"), entry };
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
        let expected = [BlobRef::for_bytes(b"a"), BlobRef::for_bytes(b"ref")];
        assert_eq!(
            references(&taken.into()),
            expected.map(|blob| BlobReference { blob, role: BlobRole::FileContent })
        );
    }

    #[test]
    fn unknown_event_is_an_error() {
        let mut event = envelope(&RunEvent::PauseRequested(crate::run::PauseRequested { by: "x".into() }));
        event.kind = "FromTheFuture".into();
        event.payload = Payload::from_store("{}".into());
        assert!(event_blobs(&event).is_err());
    }
}

//! Contents of an export file, and the detection of any damage to it.

use proptest::prelude::*;

use super::*;
use crate::{
    content::{BlobRef, Content, WorkspacePath},
    event::{Envelope, Head, TypedEvent},
    ids::{
        BlobHash, Epoch, EventHash, IncarnationId, Position, RunId, StreamId, TaskId, Timestamp, TreeHash,
        Turn,
    },
    message::ModelRef,
    run::{
        EngineRef, ForkReason, Forked, ModelTerms, RunEnded, RunEvent, RunModels, RunOutcome, RunPrompts,
        RunSettings, RunStarted, SandboxLayers, Told,
    },
    snapshot::{Entry, EntryKind, GitBase, Manifest, WorkspaceBase},
    task::{TaskCompleted, TaskEvent, TaskLeased, TaskResumed, TaskSpec, TaskSubmitted},
};

const TASK: TaskId = TaskId(uuid::Uuid::from_u128(1));
const FIRST: RunId = RunId(uuid::Uuid::from_u128(2));
const SECOND: RunId = RunId(uuid::Uuid::from_u128(3));

/// A log under construction.
#[derive(Default)]
struct Log {
    events: Vec<Envelope>,
    blobs: Vec<Vec<u8>>,
}

impl Log {
    fn head(&self, stream: &StreamId) -> Head {
        let last = self.events.iter().rev().find(|event| event.stream == *stream);
        last.map_or(Head::EMPTY, |event| Head { seq: event.seq, hash: event.hash })
    }

    fn add(&mut self, stream: StreamId, turn: u32, event: &impl TypedEvent) {
        let mut head = self.head(&stream);
        let new = event.encode(Turn(turn));
        if let Ok(RunEvent::Forked(forked)) = RunEvent::decode(&new.kind, new.version, new.payload.as_str()) {
            head.hash = forked.hash;
        }
        let mut event = Envelope {
            stream,
            seq: head.seq.next(),
            position: Position(self.events.len() as u64 + 7),
            recorded_at: Timestamp(1_700_000_000_000_000),
            turn: new.turn,
            epoch: Epoch(1),
            kind: new.kind,
            version: new.version,
            payload: new.payload,
            prev_hash: head.hash,
            hash: EventHash::ZERO,
        };
        event.hash = event.compute_hash();
        self.events.push(event);
    }

    fn blob(&mut self, bytes: &[u8]) -> BlobRef {
        if !self.blobs.iter().any(|blob| blob == bytes) {
            self.blobs.push(bytes.to_vec());
        }
        BlobRef::for_bytes(bytes)
    }
}

fn model() -> ModelRef {
    ModelRef { provider: "scripted".into(), name: "x".into(), base_url: None }
}

/// A task whose first run was resumed, so that the second one continues it.
fn log() -> Log {
    let mut log = Log::default();
    let in_pack = Entry { kind: EntryKind::File, mode: 0o644, size: 3, hash: BlobHash::hash_bytes(b"old") };
    let manifest = Manifest { entries: [(WorkspacePath::new("a").expect("legal"), in_pack)].into() };
    let base = WorkspaceBase {
        manifest: log.blob(&manifest.encode()),
        tree: manifest.tree_hash(),
        git: Some(GitBase {
            commit: "c0".into(),
            branch: None,
            pack: vec![log.blob(b"PACK\x00\xff")],
            pack_index: log.blob(b"\xfftOc"),
            index: log.blob(b"DIRC\x1b"),
            source: "/src".into(),
            recent: None,
            submodules: Vec::new(),
        }),
    };
    let spec = serde_json::json!({ "title": "t", "text": "x", "base": base, "model": model() });
    let spec: TaskSpec = serde_json::from_value(spec).expect("a specification");
    let task = StreamId::Task(TASK);
    let worker = IncarnationId(uuid::Uuid::from_u128(9));
    log.add(
        task.clone(),
        0,
        &TaskEvent::from(TaskSubmitted { spec, by: "ann".into(), forked_from: None, delegated_by: None }),
    );
    let leased = |run, epoch| TaskEvent::from(TaskLeased { epoch, run, worker, worker_name: "w".into() });
    log.add(task.clone(), 0, &leased(FIRST, Epoch(1)));
    let resumed = TaskResumed { by: "ann".into(), run: SECOND, parent: FIRST };
    log.add(task.clone(), 0, &TaskEvent::from(resumed));
    log.add(task.clone(), 0, &leased(SECOND, Epoch(2)));
    log.add(task, 0, &TaskEvent::from(TaskCompleted { run: SECOND, unverified: None }));

    let prompt = log.blob("you are an agent\n\"quoted\"".as_bytes());
    let first = StreamId::Run(FIRST);
    let started = RunStarted {
        task: TASK,
        run: FIRST,
        attempt: 1,
        engine: EngineRef { name: "react".into(), version: 1 },
        models: RunModels::single_model(model(), ModelTerms::default()),
        settings: RunSettings::default(),
        prompts: RunPrompts { system: prompt, tools: prompt, task: prompt },
        base,
        gates: vec![],
        tests: None,
        external: vec![],
        servers_left_out: vec![],
        linters: vec![],
        roles: vec![],
        requires: vec![],
        policy: None,
        policies: Vec::new(),
        sandbox: SandboxLayers::default(),
        worker,
    };
    log.add(first.clone(), 0, &RunEvent::from(started));
    let words = "long ".repeat(20);
    let told = Told { text: Content::Blob(log.blob(words.as_bytes())), by: "ann".into() };
    log.add(first.clone(), 0, &RunEvent::from(told));
    let taken = crate::run::SnapshotTaken {
        changes: vec![crate::snapshot::PathChange {
            path: WorkspacePath::new("b").expect("legal"),
            entry: Some(in_pack),
        }],
        git_changes: vec![],
        tree: TreeHash::ZERO,
        left_out: vec![],
        more: false,
    };
    log.add(first.clone(), 0, &RunEvent::from(taken));

    let on = log.head(&first);
    let forked = Forked {
        run: SECOND,
        task: TASK,
        parent: FIRST,
        seq: on.seq,
        hash: on.hash,
        turn: Turn(0),
        why: ForkReason::Resume,
        engine: None,
        models: None,
        hint: None,
    };
    let second = StreamId::Run(SECOND);
    log.add(second.clone(), 0, &RunEvent::from(forked));
    let ended = RunEnded {
        result: RunOutcome::Succeeded,
        summary: Some("done".into()),
        tree: None,
        unverified: None,
        decision: None,
    };
    log.add(second, 0, &RunEvent::from(ended));
    log
}

fn write(log: &Log) -> String {
    let (mut writer, mut file) = ExportWriter::begin_export(SECOND, TASK, "docket test");
    log.events.iter().for_each(|event| file.push_str(&writer.encode_event(event)));
    log.blobs.iter().for_each(|bytes| file.push_str(&writer.encode_blob(bytes)));
    file.push_str(&writer.finish());
    file
}

#[track_caller]
fn read_error(log: &Log, why: &str) {
    let error = InMemoryExport::parse(write(log).as_bytes()).expect_err(why).to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn export_round_trips_byte_for_byte_without_positions() {
    let log = log();
    let export = InMemoryExport::parse(write(&log).as_bytes()).expect("whole");
    assert_eq!(export.blobs.len(), log.blobs.len());
    let unplaced = |event: &Envelope| Envelope { position: Position(0), ..event.clone() };
    assert_eq!(export.events, log.events.iter().map(unplaced).collect::<Vec<_>>());
    assert_eq!(InMemoryExport::parse(export.to_text().as_bytes()).expect("whole"), export);
    assert_eq!(export.run_events().last().map(|event| event.kind.as_str()), Some("RunEnded"));
    assert!(write(&log).as_bytes().starts_with(EXPORT_PREFIX));
    assert!(write(&log).contains(r#""text":"you are an agent"#), "text is to be readable in a review");
}

#[test]
fn truncated_file_is_rejected() {
    let file = write(&log());
    for cut in (0..file.len()).step_by(7).chain([file.len() - 1]) {
        let read = InMemoryExport::parse(&file.as_bytes()[..cut]);
        // A missing final line break is accepted.
        assert_eq!(read.is_ok(), cut == file.len() - 1, "cut at {cut}");
    }
}

#[test]
fn missing_or_unreferenced_blobs_are_rejected() {
    let mut lacking = log();
    let gone = lacking.blobs.pop().expect("the words that were told");
    read_error(&lacking, &format!("blob {} is missing, which event 2 of run/", BlobHash::hash_bytes(&gone)));

    let mut more = log();
    more.blobs.push(b"stowaway".to_vec());
    read_error(&more, "no event of the file refers to blob");

    let mut twice = log();
    let first = twice.blobs[0].clone();
    twice.blobs.push(first);
    read_error(&twice, "or the file contains it twice");
}

#[test]
fn invalid_lineage_is_rejected_with_its_event() {
    let mut altered = log();
    altered.events[2].recorded_at = Timestamp(1);
    read_error(&altered, "line 4: task/00000000-0000-0000-0000-000000000001: event 3 was altered");

    let mut gap = log();
    gap.events.remove(6);
    read_error(&gap, "found seq 3 instead of 2");

    // The parent continues after the event at which the child was forked.
    let mut longer = log();
    let pause = crate::run::PauseRequested { by: "x".into() };
    let child = longer.events.split_off(8);
    longer.add(StreamId::Run(FIRST), 0, &RunEvent::from(pause));
    longer.events.extend(child);
    read_error(&longer, "its parent is not the run before it");

    let mut orphan = log();
    orphan.events.drain(5..8);
    read_error(&orphan, "its parent is not the run before it");

    let mut untold = log();
    untold.events.truncate(8);
    read_error(&untold, "the stream of run");

    let mut taskless = log();
    taskless.events.drain(..5);
    read_error(&taskless, "the task of run");

    let mut foreign = log();
    let stream = StreamId::System(crate::ids::SystemTopic::Tokens);
    foreign.add(stream, 0, &RunEvent::from(crate::run::PauseRequested { by: "x".into() }));
    read_error(&foreign, "only tasks and runs");
}

#[test]
fn other_file_formats_are_recognized() {
    let read = |text: &str| InMemoryExport::parse(text.as_bytes()).expect_err("refused").to_string();
    assert!(read("").contains("not a docket export"));
    assert!(read("# a backlog\n- a task\n").contains("not a docket export"));
    let newer = write(&log()).replacen("\"version\":1", "\"version\":2", 1);
    assert!(read(&newer).contains("format version 2"), "{}", read(&newer));
    let whole = write(&log());
    assert!(read(&format!("{whole}{{}}\n")).contains("after the last record"));
    assert!(read(&format!("{whole}{whole}")).contains("after the last record"));
}

proptest! {
    /// A change of any byte is detected.
    #[test]
    fn flipped_byte_is_always_detected(at in any::<prop::sample::Index>(), by in 1u8..) {
        let mut file = write(&log()).into_bytes();
        let at = at.index(file.len() - 1);
        file[at] ^= by;
        prop_assert!(InMemoryExport::parse(&file).is_err(), "byte {} by {}", at, by);
    }

    /// Arbitrary input never panics.
    #[test]
    fn random_bytes_are_rejected(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut file = EXPORT_PREFIX.to_vec();
        file.extend(noise);
        prop_assert!(InMemoryExport::parse(&file).is_err());
    }
}

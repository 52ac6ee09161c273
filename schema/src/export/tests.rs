//! What a file must hold, and that no damage to it passes.

use proptest::prelude::*;

use super::*;
use crate::{
    content::{BlobRef, Content, WorkPath},
    event::{Envelope, Head, TypedEvent},
    ids::{
        BlobHash, Epoch, EventHash, IncarnationId, Position, RunId, StreamId, TaskId, Timestamp, TreeHash,
        Turn,
    },
    message::ModelRef,
    run::{
        EngineRef, ForkWhy, Forked, ModelTerms, Models, Prompts, RunEnded, RunEvent, RunOutcome, RunSettings,
        RunStarted, SandboxLayers, Told,
    },
    snapshot::{Base, Entry, EntryKind, GitBase, Manifest},
    task::{TaskCompleted, TaskEvent, TaskLeased, TaskResumed, TaskSpec, TaskSubmitted},
};

const TASK: TaskId = TaskId(uuid::Uuid::from_u128(1));
const FIRST: RunId = RunId(uuid::Uuid::from_u128(2));
const SECOND: RunId = RunId(uuid::Uuid::from_u128(3));

/// A log in the making.
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
        event.hash = event.computed_hash();
        self.events.push(event);
    }

    fn blob(&mut self, bytes: &[u8]) -> BlobRef {
        if !self.blobs.iter().any(|blob| blob == bytes) {
            self.blobs.push(bytes.to_vec());
        }
        BlobRef::of(bytes)
    }
}

fn model() -> ModelRef {
    ModelRef { provider: "scripted".into(), name: "x".into(), base_url: None }
}

/// A task whose first run was resumed, so that the second stands on it.
fn log() -> Log {
    let mut log = Log::default();
    let in_pack = Entry { kind: EntryKind::File, mode: 0o644, size: 3, hash: BlobHash::of(b"old") };
    let manifest = Manifest { entries: [(WorkPath::new("a").expect("legal"), in_pack)].into() };
    let base = Base {
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
        models: Models::only(model(), ModelTerms::default()),
        settings: RunSettings::default(),
        prompts: Prompts { system: prompt, tools: prompt, task: prompt },
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
            path: WorkPath::new("b").expect("legal"),
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
        why: ForkWhy::Resume,
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
    let (mut writer, mut file) = Writer::begin(SECOND, TASK, "docket test");
    log.events.iter().for_each(|event| file.push_str(&writer.event(event)));
    log.blobs.iter().for_each(|bytes| file.push_str(&writer.blob(bytes)));
    file.push_str(&writer.end());
    file
}

#[track_caller]
fn refused(log: &Log, why: &str) {
    let error = Export::read(write(log).as_bytes()).expect_err(why).to_string();
    assert!(error.contains(why), "{error}");
}

#[test]
fn what_is_written_reads_back_to_the_byte_and_positions_stay_behind() {
    let log = log();
    let export = Export::read(write(&log).as_bytes()).expect("whole");
    assert_eq!(export.blobs.len(), log.blobs.len());
    let unplaced = |event: &Envelope| Envelope { position: Position(0), ..event.clone() };
    assert_eq!(export.events, log.events.iter().map(unplaced).collect::<Vec<_>>());
    assert_eq!(Export::read(export.write().as_bytes()).expect("whole"), export);
    assert_eq!(export.history().last().map(|event| event.kind.as_str()), Some("RunEnded"));
    assert!(write(&log).as_bytes().starts_with(PLAIN_START));
    assert!(write(&log).contains(r#""text":"you are an agent"#), "text is to be readable in a review");
}

#[test]
fn a_file_cut_at_any_place_is_refused() {
    let file = write(&log());
    for cut in (0..file.len()).step_by(7).chain([file.len() - 1]) {
        let read = Export::read(&file.as_bytes()[..cut]);
        // The last line without its line break is whole.
        assert_eq!(read.is_ok(), cut == file.len() - 1, "cut at {cut}");
    }
}

#[test]
fn everything_that_events_name_must_be_there_and_nothing_else() {
    let mut lacking = log();
    let gone = lacking.blobs.pop().expect("the words that were told");
    refused(&lacking, &format!("lacks blob {}, which event 2 of run/", BlobHash::of(&gone)));

    let mut more = log();
    more.blobs.push(b"stowaway".to_vec());
    refused(&more, "is named by no event");

    let mut twice = log();
    let first = twice.blobs[0].clone();
    twice.blobs.push(first);
    refused(&twice, "or stands in it twice");
}

#[test]
fn events_that_are_no_lineage_are_named() {
    let mut altered = log();
    altered.events[2].recorded_at = Timestamp(1);
    refused(&altered, "line 4: task/00000000-0000-0000-0000-000000000001: event 3 was altered");

    let mut gap = log();
    gap.events.remove(6);
    refused(&gap, "seq 3 stands where 2 belongs");

    // The parent's part goes further than what the child stands on.
    let mut longer = log();
    let pause = crate::run::PauseRequested { by: "x".into() };
    let child = longer.events.split_off(8);
    longer.add(StreamId::Run(FIRST), 0, &RunEvent::from(pause));
    longer.events.extend(child);
    refused(&longer, "what it stands on is not what stands before it");

    let mut orphan = log();
    orphan.events.drain(5..8);
    refused(&orphan, "what it stands on is not what stands before it");

    let mut untold = log();
    untold.events.truncate(8);
    refused(&untold, "the stream of run");

    let mut taskless = log();
    taskless.events.drain(..5);
    refused(&taskless, "the task of run");

    let mut foreign = log();
    let stream = StreamId::System(crate::ids::SystemTopic::Tokens);
    foreign.add(stream, 0, &RunEvent::from(crate::run::PauseRequested { by: "x".into() }));
    refused(&foreign, "only tasks and runs");
}

#[test]
fn other_files_are_told_apart() {
    let read = |text: &str| Export::read(text.as_bytes()).expect_err("refused").to_string();
    assert!(read("").contains("no run that docket exported"));
    assert!(read("# a backlog\n- a task\n").contains("no run that docket exported"));
    let newer = write(&log()).replacen("\"version\":1", "\"version\":2", 1);
    assert!(read(&newer).contains("version 2 of the format"), "{}", read(&newer));
    let whole = write(&log());
    assert!(read(&format!("{whole}{{}}\n")).contains("after the last record"));
    assert!(read(&format!("{whole}{whole}")).contains("after the last record"));
}

proptest! {
    /// Any byte changed anywhere is noticed.
    #[test]
    fn a_flipped_byte_never_passes(at in any::<prop::sample::Index>(), by in 1u8..) {
        let mut file = write(&log()).into_bytes();
        let at = at.index(file.len() - 1);
        file[at] ^= by;
        prop_assert!(Export::read(&file).is_err(), "byte {} by {}", at, by);
    }

    /// Whatever comes, nothing panics.
    #[test]
    fn noise_is_an_error(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut file = PLAIN_START.to_vec();
        file.extend(noise);
        prop_assert!(Export::read(&file).is_err());
    }
}

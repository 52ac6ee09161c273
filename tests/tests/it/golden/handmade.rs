//! Made by hand, through the types: events that no feature of this release writes yet. The decisions and
//! requests between them are the engine's own, so that these logs verify like all others.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use docket_schema::{
    api::ProblemCode,
    content::{BlobRef, Content},
    event::{Envelope, Head, NewEvent, TypedEvent},
    export::{ExportHeader, InMemoryExport, VERSION},
    ids::{
        BatchId, BlobHash, Epoch, EventHash, IncarnationId, Position, RunId, Seq, StreamId, SystemTopic,
        TaskId, Timestamp, TreeHash, Turn,
    },
    message::{CallId, MessagePart, ModelRef, StopReason, TokenUsage, ToolUse},
    queue::{QueueEvent, QueueSet, QueueSettings},
    run::*,
    snapshot::{Manifest, WorkspaceBase},
    system::{
        AdminAct, AdminActed, BlockKind, Budget, BudgetSet, BudgetSpent, CallsRefused, FiringResult,
        LimitRemoved, LimitSet, MemoryCall, MemoryForgotten, MemorySaved, MemoryScope, MissedFiringPolicy,
        NotificationBatch, NotificationContent, NotificationDeadLettered, NotificationDelivered,
        NotificationDropped, NotificationFailed, NotificationRaised, NotificationRetried, NotificationSource,
        NotificationTask, NotificationsFollowed, OverlapPolicy, ProviderLimits, RateLimit, RunImported,
        ScheduleFired, ScheduleName, SchedulePaused, ScheduleRemoved, ScheduleSet, SkipReason,
        StreamArchived, StreamImported, StreamsArchived, StreamsRestored, SystemEvent, TaskEndCounts,
        TaskRunRef, TaskSchedule, TokenCreated, TokenName, TokenRevoked, TokenRole,
    },
    task::*,
    tool::{TestCounts, ToolFacts},
};
use docket_worker::{
    engine::{self, Action, Decision},
    model::request_hash,
    run::{BlobCache, render_call},
    tools,
    workspace::{BlobSink as _, MemoryBlobs},
};

/// What the run is to keep to, in no form yet.
const POLICY: &[u8] = b"{\"allow\":[]}";

pub(super) const AT: Timestamp = Timestamp(1_763_000_000_000_000);

pub(super) fn fixed_uuid(n: u128) -> uuid::Uuid {
    uuid::Uuid::from_u128(0x019a_0000_0000_7000_8000_0000_0000_0000 + n)
}

fn scripted_model() -> ModelRef {
    ModelRef { provider: "scripted".to_owned(), name: "by-hand".to_owned(), base_url: None }
}

/// One stream, event by event.
pub(super) struct StreamBuilder {
    id: StreamId,
    head: Head,
    pub(super) epoch: Epoch,
    pub(super) events: Vec<Envelope>,
}

impl StreamBuilder {
    pub(super) const fn new(id: StreamId) -> Self {
        Self { id, head: Head::EMPTY, epoch: Epoch(0), events: Vec::new() }
    }

    pub(super) fn push(&mut self, turn: Turn, event: &impl TypedEvent) -> Envelope {
        let NewEvent { kind, version, turn, payload } = event.encode(turn);
        let mut envelope = Envelope {
            stream: self.id.clone(),
            seq: self.head.seq.next(),
            position: Position(0),
            recorded_at: AT.plus_ms(self.head.seq.0 * 1000),
            turn,
            epoch: self.epoch,
            kind,
            version,
            payload,
            prev_hash: self.head.hash,
            hash: EventHash::ZERO,
        };
        envelope.hash = envelope.compute_hash();
        self.head = Head { seq: envelope.seq, hash: envelope.hash };
        self.events.push(envelope.clone());
        envelope
    }
}

/// A run that is made event by event, and asks its engine.
pub(super) struct HandmadeRun {
    stream: StreamBuilder,
    state: RunState,
    material: BlobCache<MemoryBlobs>,
}

impl HandmadeRun {
    fn push(&mut self, event: impl Into<RunEvent>) -> Result<()> {
        let turn = self.state.turn;
        self.push_at(turn, event)
    }

    fn push_at(&mut self, turn: Turn, event: impl Into<RunEvent>) -> Result<()> {
        let envelope = self.stream.push(turn, &event.into());
        Ok(self.state.apply_envelope(&envelope)?)
    }

    pub(super) fn next_decision(&mut self) -> Result<Decision> {
        let pins = self.state.pins.clone().context("started")?;
        let decision = engine::find_engine(&pins.engine).context("an engine")?.decide(&self.state);
        if decision.phase != self.state.phase {
            self.push(PhaseChanged { phase: decision.phase })?;
        }
        Ok(decision)
    }

    /// The model is asked and answers: a text, and a call of a tool where one is named.
    pub(super) async fn push_turn(&mut self, text: &str, tool: Option<&str>) -> Result<()> {
        let decision = self.next_decision()?;
        let Action::CallModel(call) = &decision.act else { anyhow::bail!("no question: {decision:?}") };
        let body = render_call(&self.material, call).await?.body;
        let asked = ModelRequested {
            call: call.call.clone(),
            purpose: call.purpose,
            model: call.model.clone(),
            attempt: call.attempt,
            decision: decision.hash(),
            request: request_hash(&body),
            request_bytes: body.len() as u64,
            nudge: call.nudge.clone(),
            worst_case_nusd: 0,
            output_tokens_max: None,
            role: None,
        };
        let (turn, name) = (call.turn, asked.call.clone());
        self.push_at(turn, asked)?;
        let mut parts = vec![MessagePart::Text { text: text.into() }];
        parts.extend(tool.map(|tool| {
            let args = serde_json::json!({});
            MessagePart::ToolUse(ToolUse {
                call: CallId::for_tool(turn, 0),
                name: tool.to_owned(),
                args,
                malformed: None,
            })
        }));
        let usage = TokenUsage { input_tokens: 900, output_tokens: 40, ..TokenUsage::default() };
        let stop = if tool.is_some() { StopReason::ToolUse } else { StopReason::EndTurn };
        self.push(ModelAnswered {
            call: name,
            parts,
            stop,
            usage,
            cost_nusd: 0,
            first_byte_ms: 5,
            total_ms: 9,
        })?;
        if tool.is_some() {
            self.push_tool_results()?;
        }
        Ok(())
    }

    fn push_tool_results(&mut self) -> Result<()> {
        let decision = self.next_decision()?;
        let hash = decision.hash();
        let Action::RunTools(batch) = decision.act else { anyhow::bail!("no tools") };
        for planned in batch {
            let call = planned.call.clone();
            self.push(ToolRequested {
                call: planned.call,
                tool: planned.tool,
                class: planned.class,
                policy: planned.policy,
                labels: planned.labels,
                decision: hash,
            })?;
            let content = Content::from("no files\n");
            let (status, facts) = (ToolStatus::Ok, ToolFacts::default());
            self.push(ToolFinished { call, status, content, full: None, facts, duration_ms: 1 })?;
        }
        Ok(())
    }
}

fn run_started(task: TaskId, run: RunId, blobs: [BlobRef; 3], base: WorkspaceBase) -> RunStarted {
    let [system, tools, asked] = blobs;
    RunStarted {
        task,
        run,
        attempt: 1,
        engine: EngineRef { name: "react".to_owned(), version: 1 },
        models: RunModels::single_model(scripted_model(), ModelTerms::default()),
        settings: RunSettings::default(),
        prompts: RunPrompts { system, tools, task: asked },
        base,
        gates: Vec::new(),
        tests: None,
        external: vec![],
        servers_left_out: vec![],
        linters: vec![],
        roles: vec![],
        requires: Vec::new(),
        policy: None,
        policies: Vec::new(),
        sandbox: SandboxLayers { backend: "namespaces".to_owned(), ..SandboxLayers::default() },
        worker: IncarnationId(fixed_uuid(3)),
    }
}

/// A run that has begun, with what it pins.
pub(super) struct StartedRun {
    pub(super) hand: HandmadeRun,
    task: TaskId,
    run: RunId,
    base: WorkspaceBase,
    policy: BlobRef,
    blobs: BTreeMap<BlobHash, Vec<u8>>,
}

impl StartedRun {
    pub(super) async fn new(task: u128, run: u128) -> Result<Self> {
        let (task, run) = (TaskId(fixed_uuid(task)), RunId(fixed_uuid(run)));
        let mut blobs = BTreeMap::new();
        let mut keep = |bytes: &[u8]| {
            let blob = BlobRef::for_bytes(bytes);
            blobs.insert(blob.hash, bytes.to_vec());
            blob
        };
        let manifest = Manifest::default();
        let base =
            WorkspaceBase { manifest: keep(&manifest.encode()), tree: manifest.tree_hash(), git: None };
        let prompts = [
            keep(b"You mend code."),
            keep(&serde_json::to_vec(&tools::core_tool_specs())?),
            keep(b"Look around and say what is there."),
        ];
        let policy = BlobRef::for_bytes(POLICY);
        let mut memory = MemoryBlobs::default();
        for bytes in blobs.values() {
            memory.put(BlobRef::for_bytes(bytes), bytes.clone()).await?;
        }
        let mut stream = StreamBuilder::new(StreamId::Run(run));
        stream.epoch = Epoch(1);
        let mut hand = HandmadeRun { stream, state: RunState::default(), material: BlobCache::new(memory) };
        hand.push(run_started(task, run, prompts, base.clone()))?;
        Ok(Self { hand, task, run, base, policy, blobs })
    }

    /// The end that the engine decides on, and all of it as a file.
    pub(super) fn finish(
        mut self,
        of_task: impl FnOnce(TaskId, RunId, WorkspaceBase) -> Vec<Envelope>,
    ) -> Result<InMemoryExport> {
        let decision = self.hand.next_decision()?;
        let hash = decision.hash();
        let Action::End { result, summary } = decision.act else { anyhow::bail!("no end") };
        self.hand.push(RunEnded {
            result,
            summary,
            tree: Some(self.base.tree),
            unverified: None,
            decision: Some(hash),
        })?;
        let mut events = of_task(self.task, self.run, self.base);
        events.extend(self.hand.stream.events);
        let made_by = format!("docket {} (by hand)", env!("CARGO_PKG_VERSION"));
        let header = ExportHeader { version: VERSION, run: self.run, task: self.task, made_by };
        Ok(InMemoryExport { header, events, blobs: self.blobs })
    }
}

/// A run that is paused, waits for a child and for a person, is compacted, edited by hand, and reaches a limit.
pub(super) async fn paused_and_blocked_run() -> Result<InMemoryExport> {
    let mut begun = StartedRun::new(1, 2).await?;
    begun.blobs.insert(begun.policy.hash, POLICY.to_vec());
    let (policy, tree) = (begun.policy, begun.base.tree);
    let hand = &mut begun.hand;
    hand.push(PolicyChanged { policy, rules: None, of_task: false, by: String::new() })?;
    hand.push_turn("I look around.", Some("list_files")).await?;
    hand.push(PauseRequested { by: "a person".to_owned() })?;
    let decision = hand.next_decision()?.hash();
    hand.push(RunPaused { decision })?;
    hand.push(Unpaused { by: "a person".to_owned() })?;
    hand.stream.epoch = Epoch(2);
    let (call, child) = (CallId::for_tool(Turn(1), 7), TaskId(fixed_uuid(9)));
    hand.push(Delegated { call: call.clone(), child })?;
    hand.push(ChildAnswered {
        call,
        child,
        content: "The child found nothing.".into(),
        is_error: false,
        run: None,
        more: false,
    })?;
    let summary = "The task: look around and say what is there.".into();
    hand.push(Compacted { messages: 1, summary, ..Compacted::default() })?;
    hand.push(WorkspaceEdited { by: "a person".to_owned() })?;
    let (changes, git_changes, left_out) = (Vec::new(), Vec::new(), Vec::new());
    hand.push(SnapshotTaken { changes, git_changes, tree, left_out, more: false })?;
    hand.push_turn("BLOCKED: Which folder is meant?", None).await?;
    let decision = hand.next_decision()?;
    let hash = decision.hash();
    let Action::Block { question, why, .. } = decision.act else { anyhow::bail!("not blocked") };
    hand.push(RunBlocked { question, why, outages: 0, about: None, decision: hash })?;
    hand.push(BlockerAnswered { text: "The only one there is.".into(), by: "a person".to_owned() })?;
    hand.stream.epoch = Epoch(3);
    hand.push_turn("It is empty.", Some("list_files")).await?;
    hand.push(LimitReached { which: LimitKind::Money, message: None })?;
    begun.finish(task_events)
}

/// A run whose checks were run before it began, and failed by a test that fails then already.
pub(super) async fn base_checked_run() -> Result<InMemoryExport> {
    let mut begun = StartedRun::new(21, 22).await?;
    let gate = GateSpec { name: "tests".to_owned(), command: "make test".to_owned(), mend: None };
    let tests = Some(TestCounts { passed: 3, failed: 1, ..TestCounts::default() });
    let failing = vec!["test_old".to_owned()];
    let facts = ToolFacts { exit: Some(1), tests, failing, ..ToolFacts::default() };
    begun.hand.push(BaseChecked { gate, passed: false, facts, duration_ms: 7, shared: false })?;
    begun.hand.push_turn("I look around.", Some("list_files")).await?;
    begun.hand.push(CancelRequested { by: "a person".to_owned(), reason: "no longer wanted".to_owned() })?;
    begun.finish(cancelled_events)
}

/// A run that a person's wish ends between two turns.
pub(super) async fn cancelled_run() -> Result<InMemoryExport> {
    let mut begun = StartedRun::new(11, 12).await?;
    begun.hand.push_turn("I look around.", Some("list_files")).await?;
    begun.hand.push(CancelRequested { by: "a person".to_owned(), reason: "no longer wanted".to_owned() })?;
    begun.finish(cancelled_events)
}

fn cancelled_events(task: TaskId, run: RunId, base: WorkspaceBase) -> Vec<Envelope> {
    let mut stream = submitted_task(task, base);
    stream.epoch = Epoch(1);
    let (worker, worker_name) = (IncarnationId(fixed_uuid(3)), "by hand".to_owned());
    stream.push(Turn(0), &TaskEvent::from(TaskLeased { epoch: Epoch(1), run, worker, worker_name }));
    let (by, reason) = ("a person".to_owned(), "no longer wanted".to_owned());
    stream.push(Turn(0), &TaskEvent::from(TaskCancelled { by, reason }));
    stream.events
}

pub(super) fn submitted_task(task: TaskId, base: WorkspaceBase) -> StreamBuilder {
    let mut stream = StreamBuilder::new(StreamId::Task(task));
    let by = "a person".to_owned();
    stream.push(
        Turn(0),
        &TaskEvent::from(TaskSubmitted { spec: task_spec(base), by, forked_from: None, delegated_by: None }),
    );
    stream
}

fn task_spec(base: WorkspaceBase) -> TaskSpec {
    TaskSpec {
        title: "Look around".to_owned(),
        text: "Look around and say what is there.".to_owned(),
        queue: Default::default(),
        priority: 0,
        run_at: None,
        dedup_key: None,
        attempts_max: 1,
        crashes_max: 5,
        backoff: Backoff::default(),
        base,
        engine: "react".to_owned(),
        model: scripted_model(),
        explore_model: None,
        fallback_model: None,
        roles: Vec::new(),
        script: None,
        settings: SettingsPatch::default(),
        tests: None,
        requires: Vec::new(),
        setup: Vec::new(),
        policy: None,
        branch: None,
        delivery: None,
        batch: None,
        batch_name: None,
        conditions: docket_schema::task::LeaseConditions::default(),
    }
}

fn task_events(task: TaskId, run: RunId, base: WorkspaceBase) -> Vec<Envelope> {
    let mut stream = submitted_task(task, base);
    let mut push = |epoch: u64, event: TaskEvent| {
        stream.epoch = Epoch(epoch);
        stream.push(Turn(0), &event);
    };
    let lease = |epoch: u64| TaskLeased {
        epoch: Epoch(epoch),
        run,
        worker: IncarnationId(fixed_uuid(3)),
        worker_name: "by hand".to_owned(),
    };
    push(0, TaskReprioritized { priority: 5 }.into());
    push(0, TaskPaused { by: "a person".to_owned() }.into());
    push(0, TaskUnblocked {}.into());
    push(1, lease(1).into());
    push(
        1,
        TaskBlocked { run, why: TaskBlockedReason::Paused, message: None, wake_at: None, unverified: None }
            .into(),
    );
    push(1, TaskUnblocked {}.into());
    push(2, lease(2).into());
    push(
        2,
        TaskBlocked { run, why: TaskBlockedReason::Person, message: None, wake_at: None, unverified: None }
            .into(),
    );
    push(2, TaskUnblocked {}.into());
    push(3, lease(3).into());
    let message = "the budget of money is used up".to_owned();
    push(3, TaskDiscarded { run, why: DiscardReason::Failures, message }.into());
    stream.events
}

/// The stream of a queue.
pub(super) fn queue_events() -> Vec<Envelope> {
    let mut stream = StreamBuilder::new(StreamId::Queue(Default::default()));
    let settings = QueueSettings { paused: true, running_max: Some(4) };
    stream.push(Turn(0), &QueueEvent::from(QueueSet { by: "a person".to_owned(), settings }));
    stream.events
}

/// The stream of a task that waits for two others.
pub(super) fn waiting_task_events() -> Vec<Envelope> {
    let (one, two) = (TaskId(fixed_uuid(21)), TaskId(fixed_uuid(22)));
    let mut stream = StreamBuilder::new(StreamId::Task(TaskId(fixed_uuid(23))));
    let concurrency = Some(ConcurrencyLimit { key: "branch/main".to_owned(), max: 2 });
    let selector = "gpu=a100".parse().expect("labels");
    let conditions = LeaseConditions {
        after: vec![one, two],
        if_failed: DependencyFailurePolicy::Run,
        concurrency,
        selector,
    };
    let base = WorkspaceBase { manifest: BlobRef::for_bytes(b""), tree: TreeHash::ZERO, git: None };
    let spec = TaskSpec { conditions, ..task_spec(base) };
    let by = "a person".to_owned();
    stream.push(Turn(0), &TaskEvent::from(TaskSubmitted { spec, by, forked_from: None, delegated_by: None }));
    for (on, state) in [(one, TaskState::Completed), (two, TaskState::Discarded)] {
        stream.push(Turn(0), &TaskEvent::from(TaskDependencyEnded { on, state }));
    }
    stream.events
}

/// The stream of a task whose run gave work away, and rests for it.
pub(super) fn delegating_task_events() -> Vec<Envelope> {
    let (task, run, child) = (TaskId(fixed_uuid(24)), RunId(fixed_uuid(25)), TaskId(fixed_uuid(26)));
    let base = WorkspaceBase { manifest: BlobRef::for_bytes(b""), tree: TreeHash::ZERO, git: None };
    let mut stream = submitted_task(task, base);
    let mut push = |epoch, event: TaskEvent| {
        stream.epoch = Epoch(epoch);
        stream.push(Turn(0), &event);
    };
    let lease = |epoch| TaskLeased {
        epoch: Epoch(epoch),
        run,
        worker: IncarnationId(fixed_uuid(3)),
        worker_name: "by hand".to_owned(),
    };
    push(1, lease(1).into());
    push(0, TaskDelegated { run, call: CallId::for_tool(Turn(1), 0), child }.into());
    push(
        1,
        TaskBlocked { run, why: TaskBlockedReason::Child, message: None, wake_at: None, unverified: None }
            .into(),
    );
    push(0, TaskDependencyEnded { on: child, state: TaskState::Completed }.into());
    push(0, TaskUnblocked {}.into());
    push(2, lease(2).into());
    push(2, TaskCompleted { run, unverified: None }.into());
    stream.events
}

/// The stream of schedules.
pub(super) fn schedule_events() -> Vec<Envelope> {
    let mut stream = StreamBuilder::new(StreamId::System(SystemTopic::Schedules));
    let (name, by): (ScheduleName, _) = ("nightly".parse().expect("a name"), "a person".to_owned());
    let base = WorkspaceBase { manifest: BlobRef::for_bytes(b""), tree: TreeHash::ZERO, git: None };
    let schedule = TaskSchedule {
        cron: "0 3 * * 1-5".to_owned(),
        tz: "Europe/Berlin".to_owned(),
        spec: Box::new(task_spec(base)),
        missed: MissedFiringPolicy::Skip,
        overlap: OverlapPolicy::Allow,
    };
    let mut push = |event: SystemEvent| drop(stream.push(Turn(0), &event));
    push(ScheduleSet { name: name.clone(), schedule, by: by.clone() }.into());
    push(SchedulePaused { name: name.clone(), paused: true, by: by.clone() }.into());
    push(SchedulePaused { name: name.clone(), paused: false, by: by.clone() }.into());
    for gave in [
        FiringResult::Task(TaskId(fixed_uuid(31))),
        FiringResult::Refused("no such blob".to_owned()),
        FiringResult::Skipped(SkipReason::Missed),
        FiringResult::Skipped(SkipReason::Overlap),
    ] {
        let by = matches!(gave, FiringResult::Refused(_)).then(|| by.clone());
        push(ScheduleFired { name: name.clone(), at: AT, gave, by }.into());
    }
    push(ScheduleRemoved { name, by }.into());
    stream.events
}

/// The stream of limits on model providers.
pub(super) fn limit_events() -> Vec<Envelope> {
    let mut stream = StreamBuilder::new(StreamId::System(SystemTopic::Limits));
    let (provider, by) = ("openai".to_owned(), "a person".to_owned());
    let rate = |count| Some(RateLimit { count, per_ms: 60_000 });
    let limits = ProviderLimits { requests: rate(50), tokens: rate(40_000), concurrent: Some(8) };
    let set = LimitSet { provider: provider.clone(), limits, by: by.clone() };
    stream.push(Turn(0), &SystemEvent::from(set));
    stream.push(Turn(0), &SystemEvent::from(LimitRemoved { provider, by }));
    stream.events
}

/// The stream of what is remembered beyond runs.
pub(super) fn memory_events() -> Vec<Envelope> {
    let mut stream = StreamBuilder::new(StreamId::System(SystemTopic::Memory));
    let (key, by) = ("how/test".to_owned(), "a person".to_owned());
    let call = |n: u128| MemoryCall { run: RunId(fixed_uuid(n)), call: CallId("t3-0".to_owned()) };
    let saved = |scope: MemoryScope, n| MemorySaved {
        scope,
        key: key.clone(),
        value: BlobRef::for_bytes(b"make test\nin sub"),
        begins: "make test…".to_owned(),
        by: call(n),
    };
    let repository = MemoryScope::Repository("/home/ann/shop".to_owned());
    let queue = MemoryScope::Queue("default".parse().expect("a queue"));
    stream.push(Turn(0), &SystemEvent::from(saved(repository.clone(), 2)));
    stream.push(Turn(0), &SystemEvent::from(saved(queue.clone(), 2)));
    let forgotten = |scope, call| MemoryForgotten { scope, key: key.clone(), call, by: by.clone() };
    stream.push(Turn(0), &SystemEvent::from(forgotten(repository, Some(call(3)))));
    stream.push(Turn(0), &SystemEvent::from(forgotten(queue, None)));
    stream.events
}

/// The stream of what batches may use.
pub(super) fn budget_events() -> Vec<Envelope> {
    let mut stream = StreamBuilder::new(StreamId::System(SystemTopic::Budgets));
    let (batch, by) = (BatchId(fixed_uuid(41)), "a person".to_owned());
    let budget = Budget { tokens: Some(1_000_000), cost_nusd: Some(5_000_000_000) };
    stream.push(Turn(0), &SystemEvent::from(BudgetSet { batch, budget, by: by.clone(), of_file: false }));
    let message = "$4.980 of $5.000 is spent, and the next call may cost $0.042".to_owned();
    stream.push(Turn(0), &SystemEvent::from(BudgetSpent { batch, budget, message }));
    stream.push(
        Turn(0),
        &SystemEvent::from(BudgetSet { batch, budget: Budget::default(), by, of_file: false }),
    );
    stream.events
}

/// The stream of what people and programs elsewhere are told.
pub(super) fn notification_events() -> Vec<Envelope> {
    let mut stream = StreamBuilder::new(StreamId::System(SystemTopic::Notifications));
    let (task, run, batch) = (TaskId(fixed_uuid(1)), RunId(fixed_uuid(2)), BatchId(fixed_uuid(41)));
    let (target, by) = ("ops".to_owned(), "a person".to_owned());
    let of = NotificationTask {
        task,
        run: Some(run),
        title: "Mend it".to_owned(),
        queue: "default".parse().expect("a queue"),
        batch: Some(batch),
        batch_name: Some("nightly".to_owned()),
    };
    let of_batch =
        NotificationBatch { batch, name: Some("nightly".to_owned()), queue: Some(of.queue.clone()) };
    let budget = Budget { tokens: Some(1_000_000), cost_nusd: None };
    let question = Some("which port shall it listen on?".to_owned());
    let notices = [
        NotificationContent::TaskBlocked {
            of: of.clone(),
            block: BlockKind::Person,
            question: question.clone(),
        },
        NotificationContent::TaskBlocked { of: of.clone(), block: BlockKind::Delivery, question },
        NotificationContent::TaskFailed {
            of,
            reason: DiscardReason::Poison,
            message: "its process died".to_owned(),
        },
        NotificationContent::BatchFinished {
            of: of_batch.clone(),
            tasks: TaskEndCounts { all: 3, completed: 1, cancelled: 0, discarded: 1, behind_failed: 1 },
        },
        NotificationContent::BudgetSpent {
            of: of_batch,
            budget,
            message: "1000000 tokens are used".to_owned(),
        },
        NotificationContent::Test { by: by.clone() },
    ];
    let mut push = |event: SystemEvent| drop(stream.push(Turn(0), &event));
    push(NotificationsFollowed { position: Position(7) }.into());
    let mut ids = Vec::new();
    for (nth, notice) in (1..).zip(notices) {
        let source = NotificationSource { stream: StreamId::Task(task), seq: Seq(nth), at: AT };
        let id = source.notification_id(&notice);
        let is_test = matches!(notice, NotificationContent::Test { .. });
        let (source, position) = if is_test { (None, None) } else { (Some(source), Some(Position(7 + nth))) };
        push(NotificationRaised { id, source, position, notice, targets: vec![target.clone()] }.into());
        ids.push(id);
    }
    let why = "it answers 503 Service Unavailable".to_owned();
    let retry_at = Timestamp(AT.0 + 5_000_000);
    push(NotificationDelivered { id: ids[0], target: target.clone(), attempt: 1 }.into());
    let failed =
        NotificationFailed { id: ids[1], target: target.clone(), attempt: 1, why: why.clone(), retry_at };
    push(failed.into());
    push(NotificationDeadLettered { id: ids[1], target: target.clone(), attempt: 2, why }.into());
    push(NotificationRetried { id: ids[1], target: target.clone(), by: by.clone() }.into());
    push(NotificationDropped { id: ids[2], target, by }.into());
    stream.events
}

/// The stream of tokens.
pub(super) fn token_events() -> Vec<Envelope> {
    let mut stream = StreamBuilder::new(StreamId::System(SystemTopic::Tokens));
    let name: TokenName = "ci".parse().expect("a name");
    let (by, hash) = ("a person".to_owned(), BlobHash::hash_bytes(b"not a token"));
    let expires_at = Some(Timestamp(AT.0 + 1_000_000));
    let made = TokenCreated { name: name.clone(), role: TokenRole::Submit, hash, expires_at, by: by.clone() };
    stream.push(Turn(0), &SystemEvent::from(made));
    stream.push(Turn(0), &SystemEvent::from(TokenRevoked { name, by }));
    stream.events
}

/// The stream of administrative acts.
pub(super) fn audit_events() -> Vec<Envelope> {
    let mut stream = StreamBuilder::new(StreamId::System(SystemTopic::Audit));
    let name: TokenName = "ci".parse().expect("a name");
    let acts = [
        AdminAct::CreateToken { name: name.clone(), role: TokenRole::Submit },
        AdminAct::RevokeToken { name },
        AdminAct::Import { run: RunId(fixed_uuid(2)), task: TaskId(fixed_uuid(1)) },
        AdminAct::CollectGarbage { delete: true },
        AdminAct::Migrate { version: "0.1.0".to_owned() },
        AdminAct::Rebuild { differences: 0 },
    ];
    for act in acts {
        let from = Some("127.0.0.1".to_owned());
        stream.push(Turn(0), &SystemEvent::from(AdminActed { by: "a person".to_owned(), from, act }));
    }
    let (from, code) = ("10.0.0.1".to_owned(), ProblemCode::Unauthorized);
    stream.push(Turn(0), &SystemEvent::from(CallsRefused { from, code, count: 3, since: AT }));
    stream.events
}

/// The stream of imports.
pub(super) fn import_events() -> Vec<Envelope> {
    let mut stream = StreamBuilder::new(StreamId::System(SystemTopic::Imports));
    let (task, run) = (TaskId(fixed_uuid(1)), RunId(fixed_uuid(2)));
    let head = Head { seq: Seq(30), hash: EventHash([7; 32]) };
    let run_of = Some(TaskRunRef { task, attempt: 1 });
    let streams = vec![StreamImported { stream: StreamId::Run(run), from: Seq(1), head, run_of }];
    let (by, made_by) = ("a person".to_owned(), "docket 0.1.0".to_owned());
    stream.push(Turn(0), &SystemEvent::from(RunImported { run, task, by, made_by, streams }));
    stream.events
}

/// The stream of what was archived.
pub(super) fn archive_events() -> Vec<Envelope> {
    let mut stream = StreamBuilder::new(StreamId::System(SystemTopic::Archive));
    let (task, run) = (TaskId(fixed_uuid(1)), RunId(fixed_uuid(2)));
    let head = Head { seq: Seq(30), hash: EventHash([7; 32]) };
    let run_of = Some(TaskRunRef { task, attempt: 1 });
    let archived = StreamsArchived {
        task,
        by: "retention".to_owned(),
        place: "file:///archive".to_owned(),
        file: "2026/11/a.docket".to_owned(),
        hash: BlobHash::hash_bytes(b"not a file"),
        bytes: 1000,
        streams: vec![
            StreamArchived { stream: StreamId::Task(task), head, run_of: None, task: None },
            StreamArchived { stream: StreamId::Run(run), head, run_of, task: None },
        ],
    };
    let streams = vec![StreamId::Task(task), StreamId::Run(run)];
    let restored = StreamsRestored { task, by: "a person".to_owned(), streams };
    stream.push(Turn(0), &SystemEvent::from(archived));
    stream.push(Turn(0), &SystemEvent::from(restored));
    stream.events
}

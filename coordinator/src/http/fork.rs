//! Routes that go on from a turn's end: resume (a new run of the same task) and fork (new tasks).
//!
//! Both only read the run that is stood upon. A run keeps the engine and the models it had last, also
//! where it goes on from a turn before they were changed: a task is one question, asked of one model.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    content::{BlobRef, Content},
    event::{Envelope, NewEvent, TypedEvent as _},
    history::{FoldedRun, NoSuchTurn},
    ids::{BlobHash, RunId, Seq, StreamId, TaskId, Turn},
    run::{CorruptLog, ForkWhy, Forked, PolicyChanged, RunEvent, SnapshotTaken, WorkspaceEdited},
    task::{ForkedFrom, TITLE_CHARS_MAX, TaskRecord, TaskSpec, check_model},
    wire::{
        BLOB_HASHES_MAX, EDIT_SNAPSHOTS_MAX, Edit, FORK_SIBLINGS_MAX, ForkRequest, ForkResponse, ParentRef,
        ProblemCode, RejectRequest, ResumeRequest, ResumeResponse, RunView, Sibling, TELL_BYTES_MAX,
    },
};

use super::{
    api::Api,
    call::{Call, json},
    commands,
    errors::Refusal,
    runs::{lineage, view},
    task_policy,
};
use crate::{
    clock,
    error_chain::error_chain,
    store::{AppendError, CommandBlobs, NewBlob, NewFork, NewTask},
};

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn resume(api: Arc<Api>, call: Call) -> Answered {
    let of: RunId = call.id()?;
    let request: ResumeRequest = call.json()?;
    go_on(&api, of, request, call.caller.name(), Why::Resumed).await
}

/// Not taken, and gone on with: one step, so that no rejection stands without its run.
pub(super) async fn reject(api: Arc<Api>, call: Call) -> Answered {
    let of: RunId = call.id()?;
    let RejectRequest { comment, beside } = call.json()?;
    check_words("comment", Some(&comment))?;
    check_words("beside", beside.as_deref())?;
    let comment = api.redactor.text(comment.trim()).into_owned();
    let hint = beside.map_or_else(|| comment.clone(), |beside| format!("{comment}\n\n{beside}"));
    let request = ResumeRequest { hint: Some(hint), ..ResumeRequest::default() };
    go_on(&api, of, request, call.caller.name(), Why::Rejected(comment)).await
}

/// Why a run is gone on with.
enum Why {
    /// Somebody wants it so.
    Resumed,
    /// Its result was not taken, for this reason.
    Rejected(String),
}

async fn go_on(api: &Api, of: RunId, request: ResumeRequest, by: String, why: Why) -> Answered {
    let ResumeRequest { turn, edit, hint } = request;
    check_words("hint", hint.as_deref())?;
    let view = view(api, of).await?;
    let point = Point::find(api, &view, turn, edit.as_ref()).await?;
    let run = RunId(clock::new_id());
    let mut forked = point.forked(view.task, run, ForkWhy::Resume);
    let (hint, aside) = hinted(api, hint.as_deref());
    forked.hint = hint;
    let (mut edits, mut names) = edits(edit.as_ref(), &by, point.turn);
    let (policy, named) = point.carried(task_policy::changed(api, view.task).await?.as_ref());
    edits.extend(policy);
    names.extend(named);
    let decide = match why {
        Why::Resumed => commands::resume(by, forked, edits),
        Why::Rejected(comment) => commands::reject(by, of, comment, forked, edits),
    };
    let blobs = CommandBlobs { blobs: aside.into_iter().collect(), names };
    let (record, _) = api.store.command(view.task, decide, blobs, api.clock.now()).await?;
    api.announce(&record);
    // The run whose place is taken may be in a worker's hands, and followed.
    api.wakes.leases();
    api.wakes.appended(of);
    json(&ResumeResponse { task: view.task, run, parent: point.parent(), turn: point.turn.0 })
}

pub(super) async fn fork(api: Arc<Api>, call: Call) -> Answered {
    let of: RunId = call.id()?;
    let request: ForkRequest = call.json()?;
    check(&request)?;
    let view = view(&api, of).await?;
    if let Some(before) = answer(&api, &request.siblings).await? {
        for sibling in &request.siblings {
            check_same_fork(&api, of, &request, *sibling).await?;
        }
        return json(&before);
    }
    let changed = task_policy::changed(&api, view.task).await?;
    let Some((mut task, _)) = api.store.task(view.task).await? else {
        return Err(Refusal::new(ProblemCode::NotFound, format!("there is no task {}", view.task)));
    };
    let point = Point::find(&api, &view, request.turn, request.edit.as_ref()).await?;
    let (policy, named) = point.carried(changed.as_ref());
    task.spec.policy = task_policy::in_force(changed, task.spec.policy);
    let by = call.caller.name();
    let hint = hint(&api, request.hint.as_deref()).await?;
    let specs: Vec<TaskSpec> = request
        .siblings
        .iter()
        .enumerate()
        .map(|(nth, sibling)| spec(&task, &request, sibling.task, nth, point.turn))
        .collect();
    if let Some(error) = specs.iter().find_map(|spec| spec.check().err()) {
        return Err(Refusal::new(ProblemCode::InvalidRequest, error.to_string()).field(error.field));
    }
    let tasks = request.siblings.iter().zip(specs).map(|(sibling, spec)| {
        let mut forked = point.forked(sibling.task, sibling.run, ForkWhy::Fork);
        forked.engine = request.engine.clone().or(forked.engine);
        forked.models = request.models.clone().or(forked.models);
        forked.hint = hint.clone();
        let (edits, mut names) = edits(request.edit.as_ref(), &by, point.turn);
        names.extend(hint.as_ref().and_then(Content::blob).map(|blob| blob.hash));
        let mut events = vec![RunEvent::from(forked).encode(point.turn)];
        events.extend(edits);
        events.extend(policy.iter().cloned());
        names.extend(&named);
        let from = ForkedFrom { run: point.owner, seq: point.end.seq, turn: point.turn };
        let fork = NewFork { from, run: sibling.run, events, names };
        NewTask { id: sibling.task, spec, fork: Some(Box::new(fork)) }
    });
    api.store.submit(tasks.collect(), by.clone(), api.clock.now()).await.map_err(not_made)?;
    api.wakes.work();
    let made = answer(&api, &request.siblings).await?;
    json(&made.ok_or_else(|| Refusal::new(ProblemCode::Internal, "the fork's tasks are not there"))?)
}

fn not_made(error: AppendError) -> Refusal {
    if matches!(error, AppendError::WrongSeq { .. }) {
        let detail =
            "one of these runs already exists with other content; choose another id for the fork's run";
        return Refusal::new(ProblemCode::IdTaken, detail).field("siblings");
    }
    error.into()
}

fn check(request: &ForkRequest) -> Result<(), Refusal> {
    let wrong =
        |field: &str, detail: String| Err(Refusal::new(ProblemCode::InvalidRequest, detail).field(field));
    let count = request.siblings.len();
    if count == 0 || count > FORK_SIBLINGS_MAX {
        return wrong("siblings", format!("a fork makes 1 to {FORK_SIBLINGS_MAX} tasks"));
    }
    let mut ids: Vec<_> = request.siblings.iter().flat_map(|one| [one.task.0, one.run.0]).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() != count * 2 {
        return wrong("siblings", "give each task and each run an id of its own".to_owned());
    }
    check_words("hint", request.hint.as_deref())?;
    let models = request.models.iter().flat_map(|models| models.all());
    if let Some(error) = models.filter_map(|(model, _)| check_model(model).err()).next() {
        return wrong("models.main.base_url", error.to_string());
    }
    Ok(())
}

/// What a fork made, from the log: the first answer and every repeated one are the same.
async fn answer(api: &Api, siblings: &[Sibling]) -> Result<Option<ForkResponse>, Refusal> {
    let mut from: Option<ForkedFrom> = None;
    for sibling in siblings {
        let Some((task, _)) = api.store.task(sibling.task).await? else { return Ok(None) };
        let run = api.store.run(sibling.run).await?.filter(|run| run.task == sibling.task);
        let (Some(own), Some(_)) = (task.forked_from, run) else {
            let detail = format!(
                "task id {} already exists with other content: `{}`; choose another id for the fork",
                sibling.task, task.spec.title
            );
            return Err(Refusal::new(ProblemCode::IdTaken, detail).field("siblings"));
        };
        from = from.or(Some(own));
    }
    Ok(from.map(|from| ForkResponse {
        siblings: siblings.to_vec(),
        parent: ParentRef { run: from.run, seq: from.seq },
        turn: from.turn.0,
    }))
}

/// Refuses a fork whose ids are those of another fork. Everything that a request decides is compared with what the
/// recorded fork has of it, or the new fork would be answered as the first one and lost.
async fn check_same_fork(
    api: &Api,
    of: RunId,
    request: &ForkRequest,
    sibling: Sibling,
) -> Result<(), Refusal> {
    let (forked, snapshots) = read_fork(api, sibling).await?;
    let taken = |field: &str| {
        let detail = format!(
            "task {} with run {} already exists as another fork: of turn {} of run {}; they differ in `{field}`; \
             choose other ids for the new fork",
            sibling.task, sibling.run, forked.turn, forked.parent
        );
        Err(Refusal::new(ProblemCode::IdTaken, detail).field("siblings"))
    };
    if !is_in_history(api, of, forked.parent).await? {
        return taken("run");
    }
    if request.turn.is_some_and(|turn| Turn(turn) != forked.turn) {
        return taken("turn");
    }
    let parent = view(api, of).await?;
    // What a request that names no engine, models or script takes over does not change: it is in the parent's history.
    let point = Point::find(api, &parent, Some(forked.turn.0), None).await?;
    let carried = point.forked(sibling.task, sibling.run, ForkWhy::Fork);
    let (Some((parent, _)), Some((task, _))) =
        (api.store.task(parent.task).await?, api.store.task(sibling.task).await?)
    else {
        return Err(Refusal::new(ProblemCode::NotFound, "the fork's tasks are not there"));
    };
    let (hint, _) = hinted(api, request.hint.as_deref());
    let wanted = request.edit.as_ref().map(|edit| edit.snapshots.as_slice()).unwrap_or_default();
    let differs = [
        ("engine", request.engine.clone().or(carried.engine) != forked.engine),
        ("models", request.models.clone().or(carried.models) != forked.models),
        ("script", request.script.or(parent.spec.script) != task.spec.script),
        ("hint", hint != forked.hint),
        ("edit", wanted != snapshots.as_slice()),
    ];
    match differs.into_iter().find(|(_, differs)| *differs) {
        Some((field, _)) => taken(field),
        None => Ok(()),
    }
}

/// What a fork's run begins with: its origin, and the snapshots of the edit made there.
async fn read_fork(api: &Api, sibling: Sibling) -> Result<(Forked, Vec<SnapshotTaken>), Refusal> {
    // `Forked`, `WorkspaceEdited` and the snapshots, all of one append.
    let limit = u32::try_from(EDIT_SNAPSHOTS_MAX).unwrap_or(u32::MAX).saturating_add(2);
    let stream = api.store.read(StreamId::Run(sibling.run), Seq(0), limit).await?;
    let begins_at = stream.first().map(|first| first.recorded_at);
    let mut events = stream
        .iter()
        .take_while(|event| Some(event.recorded_at) == begins_at)
        .map(|event| RunEvent::decode(&event.kind, event.version, event.payload.as_str()));
    let Some(Ok(RunEvent::Forked(forked))) = events.next() else {
        tracing::error!(run = %sibling.run, "a fork's run does not begin with its origin");
        return Err(Refusal::new(ProblemCode::Corrupt, "the run's log cannot be read; run `docket verify`"));
    };
    let mut snapshots = Vec::new();
    if let Some(Ok(RunEvent::WorkspaceEdited(_))) = events.next() {
        while let Some(Ok(RunEvent::SnapshotTaken(taken))) = events.next() {
            snapshots.push(taken);
        }
    }
    Ok((forked, snapshots))
}

/// Whether `other` is `run` itself, or one whose history it continues.
async fn is_in_history(api: &Api, run: RunId, other: RunId) -> Result<bool, Refusal> {
    let mut next = Some(run);
    while let Some(run) = next {
        if run == other {
            return Ok(true);
        }
        next = view(api, run).await?.parent.map(|parent| parent.run);
    }
    Ok(false)
}

/// The parent's task, as the fork's. It is tried once: a second try would begin without the history.
fn spec(parent: &TaskRecord, request: &ForkRequest, id: TaskId, nth: usize, turn: Turn) -> TaskSpec {
    let mut spec = parent.spec.clone();
    let which = match request.siblings.len() {
        1 => format!(" (fork at turn {turn})"),
        count => format!(" (fork {} of {count} at turn {turn})", nth + 1),
    };
    let room = TITLE_CHARS_MAX.saturating_sub(which.chars().count());
    spec.title = spec.title.chars().take(room).collect::<String>() + &which;
    spec.run_at = None;
    spec.dedup_key = None;
    spec.batch = None;
    spec.attempts_max = 1;
    // Two results cannot be one branch.
    spec.branch = spec.branch.map(|branch| format!("{branch}-fork-{}", id.short()));
    if let Some(engine) = &request.engine {
        if spec.engine != engine.name {
            // What was asked of the roles of another engine says nothing of this one's.
            spec.roles.clear();
        }
        spec.engine.clone_from(&engine.name);
    }
    if let Some(models) = &request.models {
        spec.model = models.main.clone();
        spec.explore_model = models.explore.as_ref().map(|other| other.model.clone());
        spec.fallback_model = models.fallback.as_ref().map(|other| other.model.clone());
        // As it does in the run that goes on: it plays every role.
        spec.roles.iter_mut().for_each(|role| role.model = None);
    }
    spec.script = request.script.or(spec.script);
    spec
}

async fn hint(api: &Api, text: Option<&str>) -> Result<Option<Content>, Refusal> {
    let (content, aside) = hinted(api, text);
    if let Some(blob) = aside {
        api.store.put_blobs(vec![blob], api.clock.now()).await?;
    }
    Ok(content)
}

/// Words as they stand in the log, and their blob where they are long.
fn hinted(api: &Api, text: Option<&str>) -> (Option<Content>, Option<NewBlob>) {
    let Some(text) = text else { return (None, None) };
    let (content, aside) = Content::place(api.redactor.text(text).as_bytes().to_vec());
    (Some(content), aside.map(|bytes| NewBlob { blob: BlobRef::of(&bytes), bytes: bytes.into() }))
}

fn check_words(field: &str, text: Option<&str>) -> Result<(), Refusal> {
    if text.is_none_or(|text| !text.trim().is_empty() && text.len() <= TELL_BYTES_MAX) {
        return Ok(());
    }
    let detail = format!("`{field}` must be 1 to {TELL_BYTES_MAX} bytes");
    Err(Refusal::new(ProblemCode::InvalidRequest, detail).field(field))
}

/// What a person changed, as events that follow `Forked`, and the blobs they name.
fn edits(edit: Option<&Edit>, by: &str, turn: Turn) -> (Vec<NewEvent>, Vec<BlobHash>) {
    let Some(edit) = edit else { return (Vec::new(), Vec::new()) };
    let mut events = vec![RunEvent::from(WorkspaceEdited { by: by.to_owned() }).encode(turn)];
    events.extend(edit.snapshots.iter().map(|taken| RunEvent::from(taken.clone()).encode(turn)));
    (events, edit.names.clone())
}

/// Where a run is gone on from.
struct Point {
    end: Envelope,
    /// The run whose stream holds it: the one asked for, or an ancestor.
    owner: RunId,
    turn: Turn,
    /// What the run asked for has changed of its pins since.
    later: Vec<Forked>,
    /// Changes of policy up to there.
    before: Vec<Envelope>,
}

impl Point {
    async fn find(
        api: &Api,
        view: &RunView,
        turn: Option<u32>,
        edit: Option<&Edit>,
    ) -> Result<Self, Refusal> {
        let history = FoldedRun::read(lineage(api, view, Seq(u64::MAX)).await?).map_err(unreadable)?;
        let asked = turn.map(Turn);
        if let Some(asked) = asked {
            history.turn(asked).map_err(no_fork_point)?;
        }
        let (end, turn) = history.end_of(asked).map_err(no_fork_point)?;
        let StreamId::Run(owner) = end.stream else {
            return Err(Refusal::new(ProblemCode::Internal, "a run's history holds another stream's event"));
        };
        if let Some(edit) = edit {
            check_edit(edit, asked, &history)?;
        }
        let after = history.events().iter().rev().take_while(|event| event.hash != end.hash);
        let later = after.filter(|event| event.kind == "Forked");
        let later = later.filter_map(|event| serde_json::from_str(event.payload.as_str()).ok()).collect();
        let before = history.events().iter().take_while(|event| event.hash != end.hash);
        let before = before.filter(|event| event.kind == "PolicyChanged").cloned().collect();
        Ok(Self { end: end.clone(), owner, turn, later, before })
    }

    fn carried(&self, changed: Option<&PolicyChanged>) -> (Vec<NewEvent>, Vec<BlobHash>) {
        task_policy::carried(changed, &self.before, self.turn)
    }

    const fn parent(&self) -> ParentRef {
        ParentRef { run: self.owner, seq: self.end.seq }
    }

    fn forked(&self, task: TaskId, run: RunId, why: ForkWhy) -> Forked {
        Forked {
            run,
            task,
            parent: self.owner,
            seq: self.end.seq,
            hash: self.end.hash,
            turn: self.turn,
            why,
            engine: self.later.iter().find_map(|later| later.engine.clone()),
            models: self.later.iter().find_map(|later| later.models.clone()),
            hint: None,
        }
    }
}

fn check_edit(edit: &Edit, asked: Option<Turn>, history: &FoldedRun) -> Result<(), Refusal> {
    let wrong =
        |field: &str, detail: String| Err(Refusal::new(ProblemCode::InvalidRequest, detail).field(field));
    let Some(turn) = asked else {
        return wrong("turn", "an edit was made at a turn: say which".to_owned());
    };
    let count = edit.snapshots.len();
    if count == 0 || count > EDIT_SNAPSHOTS_MAX {
        return wrong("edit.snapshots", format!("an edit has 1 to {EDIT_SNAPSHOTS_MAX} snapshots"));
    }
    if edit.names.len() > BLOB_HASHES_MAX {
        return wrong("edit.names", format!("an edit names at most {BLOB_HASHES_MAX} blobs"));
    }
    let tree = history.state_at_end(turn).map_err(no_fork_point)?.tree;
    if tree == Some(edit.before) {
        return Ok(());
    }
    let detail = "the edit was made on another tree than that of this turn; make it again".to_owned();
    wrong("edit.before", detail)
}

fn no_fork_point(error: NoSuchTurn) -> Refusal {
    match error {
        NoSuchTurn::NotThere { .. } => Refusal::new(ProblemCode::NotFound, error.to_string()).field("turn"),
        NoSuchTurn::NotEnded { .. } => Refusal::new(ProblemCode::WrongState, error.to_string()).field("turn"),
        NoSuchTurn::NoneEnded => Refusal::new(ProblemCode::WrongState, error.to_string()),
    }
}

fn unreadable(error: CorruptLog) -> Refusal {
    tracing::error!("{}", error_chain(&error));
    Refusal::new(ProblemCode::Internal, "the run's log cannot be read; run `docket verify`")
}

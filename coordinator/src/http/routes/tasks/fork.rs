//! Routes that continue from the end of a turn: resume (a new run of the same task) and fork (new
//! tasks).
//!
//! Both only read the original run. A new run keeps the run's latest engine and models, even if it
//! continues from a turn before they changed: a task is one question to one model.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{
        BLOB_HASHES_MAX, EDIT_SNAPSHOTS_MAX, FORK_SIBLINGS_MAX, ForkRequest, ForkResponse, ForkSibling,
        ParentRef, ProblemCode, RejectRequest, ResumeRequest, ResumeResponse, RunView, TELL_BYTES_MAX,
        WorkspaceEdit,
    },
    content::{BlobRef, Content},
    event::{Envelope, NewEvent, TypedEvent as _},
    history::{FoldedRun, NoSuchTurn},
    ids::{BlobHash, RunId, Seq, StreamId, TaskId, Turn},
    run::{CorruptLog, ForkReason, Forked, PolicyChanged, RunEvent, SnapshotTaken, WorkspaceEdited},
    task::{ForkedFrom, TITLE_CHARS_MAX, TaskRecord, TaskSpec, check_model},
};

use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        request::{ApiRequest, json_response},
    },
    routes::{
        commands,
        runs::{
            run_views::{find_run_view, read_lineage},
            task_policy,
        },
    },
};
use crate::{
    clock,
    error_chain::error_chain,
    store::{AppendError, CommandBlobs, NewBlob, NewFork, NewTask},
};

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn resume_run(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let of: RunId = call.id()?;
    let request: ResumeRequest = call.json()?;
    continue_run(&api, of, request, call.caller.log_name(), ContinueReason::Resumed).await
}

/// Rejects a result and continues in one step, so that there is never a rejection without its run.
pub(in crate::http) async fn reject_result(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let of: RunId = call.id()?;
    let RejectRequest { comment, beside } = call.json()?;
    check_text("comment", Some(&comment))?;
    check_text("beside", beside.as_deref())?;
    let comment = api.redactor.redact_text(comment.trim()).into_owned();
    let hint = beside.map_or_else(|| comment.clone(), |beside| format!("{comment}\n\n{beside}"));
    let request = ResumeRequest { hint: Some(hint), ..ResumeRequest::default() };
    continue_run(&api, of, request, call.caller.log_name(), ContinueReason::Rejected(comment)).await
}

/// Why a run is continued.
enum ContinueReason {
    /// A user resumed it.
    Resumed,
    /// Its result was rejected for this reason.
    Rejected(String),
}

async fn continue_run(
    api: &ApiState,
    of: RunId,
    request: ResumeRequest,
    by: String,
    why: ContinueReason,
) -> HandlerResult {
    let ResumeRequest { turn, edit, hint } = request;
    check_text("hint", hint.as_deref())?;
    let view = find_run_view(api, of).await?;
    let point = ForkPoint::find(api, &view, turn, edit.as_ref()).await?;
    let run = RunId(clock::new_id());
    let mut forked = point.forked_event(view.task, run, ForkReason::Resume);
    let (hint, aside) = redact_hint(api, hint.as_deref());
    forked.hint = hint;
    let (mut edits, mut names) = edit_events(edit.as_ref(), &by, point.turn);
    let (policy, named) =
        point.missing_policy_events(task_policy::last_policy_change(api, view.task).await?.as_ref());
    edits.extend(policy);
    names.extend(named);
    let decide = match why {
        ContinueReason::Resumed => commands::resume(by, forked, edits),
        ContinueReason::Rejected(comment) => commands::reject(by, of, comment, forked, edits),
    };
    let blobs = CommandBlobs { blobs: aside.into_iter().collect(), required_blobs: names };
    let (record, _) = api.store.execute_command(view.task, decide, blobs, api.clock.now()).await?;
    api.wake_waiters(&record);
    // A worker may be executing the replaced run, and clients may be following it.
    api.wakeups.notify_lease_lost();
    api.wakeups.notify_append(of);
    json_response(&ResumeResponse { task: view.task, run, parent: point.parent_ref(), turn: point.turn.0 })
}

pub(in crate::http) async fn fork_run(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let of: RunId = call.id()?;
    let request: ForkRequest = call.json()?;
    check_fork_request(&request)?;
    let view = find_run_view(&api, of).await?;
    if let Some(before) = find_existing_fork(&api, &request.siblings).await? {
        for sibling in &request.siblings {
            check_same_fork(&api, of, &request, *sibling).await?;
        }
        return json_response(&before);
    }
    let changed = task_policy::last_policy_change(&api, view.task).await?;
    let Some((mut task, _)) = api.store.get_task(view.task).await? else {
        return Err(ApiError::new(ProblemCode::NotFound, format!("there is no task {}", view.task)));
    };
    let point = ForkPoint::find(&api, &view, request.turn, request.edit.as_ref()).await?;
    let (policy, named) = point.missing_policy_events(changed.as_ref());
    task.spec.policy = task_policy::effective_policy(changed, task.spec.policy);
    let by = call.caller.log_name();
    let hint = store_hint(&api, request.hint.as_deref()).await?;
    let specs: Vec<TaskSpec> = request
        .siblings
        .iter()
        .enumerate()
        .map(|(nth, sibling)| sibling_spec(&task, &request, sibling.task, nth, point.turn))
        .collect();
    if let Some(error) = specs.iter().find_map(|spec| spec.check().err()) {
        return Err(ApiError::new(ProblemCode::InvalidRequest, error.to_string()).with_field(error.field));
    }
    let tasks = request.siblings.iter().zip(specs).map(|(sibling, spec)| {
        let mut forked = point.forked_event(sibling.task, sibling.run, ForkReason::Fork);
        forked.engine = request.engine.clone().or(forked.engine);
        forked.models = request.models.clone().or(forked.models);
        forked.hint = hint.clone();
        let (edits, mut names) = edit_events(request.edit.as_ref(), &by, point.turn);
        names.extend(hint.as_ref().and_then(Content::blob_ref).map(|blob| blob.hash));
        let mut events = vec![RunEvent::from(forked).encode(point.turn)];
        events.extend(edits);
        events.extend(policy.iter().cloned());
        names.extend(&named);
        let from = ForkedFrom { run: point.owner, seq: point.end_event.seq, turn: point.turn };
        let fork = NewFork { from, run: sibling.run, events, required_blobs: names };
        NewTask { id: sibling.task, spec, fork: Some(Box::new(fork)) }
    });
    api.store.submit(tasks.collect(), by.clone(), api.clock.now()).await.map_err(fork_error)?;
    api.wakeups.notify_task_available();
    let made = find_existing_fork(&api, &request.siblings).await?;
    json_response(&made.ok_or_else(|| ApiError::new(ProblemCode::Internal, "the fork's tasks are missing"))?)
}

fn fork_error(error: AppendError) -> ApiError {
    if matches!(error, AppendError::WrongSeq { .. }) {
        let detail =
            "one of these runs already exists with other content; choose another id for the fork's run";
        return ApiError::new(ProblemCode::IdTaken, detail).with_field("siblings");
    }
    error.into()
}

fn check_fork_request(request: &ForkRequest) -> Result<(), ApiError> {
    let wrong = |field: &str, detail: String| {
        Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field(field))
    };
    let count = request.siblings.len();
    if count == 0 || count > FORK_SIBLINGS_MAX {
        return wrong("siblings", format!("a fork must create 1 to {FORK_SIBLINGS_MAX} tasks"));
    }
    let mut ids: Vec<_> = request.siblings.iter().flat_map(|one| [one.task.0, one.run.0]).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() != count * 2 {
        return wrong("siblings", "give each task and each run its own id".to_owned());
    }
    check_text("hint", request.hint.as_deref())?;
    let models = request.models.iter().flat_map(|models| models.all());
    if let Some(error) = models.filter_map(|(model, _)| check_model(model).err()).next() {
        return wrong("models.main.base_url", error.to_string());
    }
    Ok(())
}

/// Returns an existing fork from the log, so that repeated requests get the same response as the
/// first.
async fn find_existing_fork(
    api: &ApiState,
    siblings: &[ForkSibling],
) -> Result<Option<ForkResponse>, ApiError> {
    let mut from: Option<ForkedFrom> = None;
    for sibling in siblings {
        let Some((task, _)) = api.store.get_task(sibling.task).await? else { return Ok(None) };
        let run = api.store.get_run(sibling.run).await?.filter(|run| run.task == sibling.task);
        let (Some(own), Some(_)) = (task.forked_from, run) else {
            let detail = format!(
                "task id {} already exists with other content: `{}`; choose another id for the fork",
                sibling.task, task.spec.title
            );
            return Err(ApiError::new(ProblemCode::IdTaken, detail).with_field("siblings"));
        };
        from = from.or(Some(own));
    }
    Ok(from.map(|from| ForkResponse {
        siblings: siblings.to_vec(),
        parent: ParentRef { run: from.run, seq: from.seq },
        turn: from.turn.0,
    }))
}

/// Refuses a request whose IDs belong to a different fork. Compares everything that the request
/// decides with the recorded fork; otherwise the new fork would get the response of the first and
/// be lost.
async fn check_same_fork(
    api: &ApiState,
    of: RunId,
    request: &ForkRequest,
    sibling: ForkSibling,
) -> Result<(), ApiError> {
    let (forked, snapshots) = read_fork_start(api, sibling).await?;
    let taken = |field: &str| {
        let detail = format!(
            "task {} with run {} already exists as another fork: of turn {} of run {}; they differ in `{field}`; \
             choose other ids for the new fork",
            sibling.task, sibling.run, forked.turn, forked.parent
        );
        Err(ApiError::new(ProblemCode::IdTaken, detail).with_field("siblings"))
    };
    if !is_in_history(api, of, forked.parent).await? {
        return taken("run");
    }
    if request.turn.is_some_and(|turn| Turn(turn) != forked.turn) {
        return taken("turn");
    }
    let parent = find_run_view(api, of).await?;
    // Values that the request inherits do not change: they are in the parent's history.
    let point = ForkPoint::find(api, &parent, Some(forked.turn.0), None).await?;
    let carried = point.forked_event(sibling.task, sibling.run, ForkReason::Fork);
    let (Some((parent, _)), Some((task, _))) =
        (api.store.get_task(parent.task).await?, api.store.get_task(sibling.task).await?)
    else {
        return Err(ApiError::new(ProblemCode::NotFound, "the fork's tasks are missing"));
    };
    let (hint, _) = redact_hint(api, request.hint.as_deref());
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

/// Returns the start of a fork's run: its origin and the snapshots of the edit.
async fn read_fork_start(
    api: &ApiState,
    sibling: ForkSibling,
) -> Result<(Forked, Vec<SnapshotTaken>), ApiError> {
    // `Forked`, `WorkspaceEdited` and the snapshots are one append.
    let limit = u32::try_from(EDIT_SNAPSHOTS_MAX).unwrap_or(u32::MAX).saturating_add(2);
    let stream = api.store.read_events(StreamId::Run(sibling.run), Seq(0), limit).await?;
    let begins_at = stream.first().map(|first| first.recorded_at);
    let mut events = stream
        .iter()
        .take_while(|event| Some(event.recorded_at) == begins_at)
        .map(|event| RunEvent::decode(&event.kind, event.version, event.payload.as_str()));
    let Some(Ok(RunEvent::Forked(forked))) = events.next() else {
        tracing::error!(run = %sibling.run, "a fork's run does not begin with its origin");
        return Err(ApiError::new(ProblemCode::Corrupt, "cannot read the run's log; run `docket verify`"));
    };
    let mut snapshots = Vec::new();
    if let Some(Ok(RunEvent::WorkspaceEdited(_))) = events.next() {
        while let Some(Ok(RunEvent::SnapshotTaken(taken))) = events.next() {
            snapshots.push(taken);
        }
    }
    Ok((forked, snapshots))
}

/// Whether `other` is `run` or a run whose history it continues.
async fn is_in_history(api: &ApiState, run: RunId, other: RunId) -> Result<bool, ApiError> {
    let mut next = Some(run);
    while let Some(run) = next {
        if run == other {
            return Ok(true);
        }
        next = find_run_view(api, run).await?.parent.map(|parent| parent.run);
    }
    Ok(false)
}

/// Builds the fork's task from the parent's. It gets one attempt, because a retry would start
/// without the history.
fn sibling_spec(parent: &TaskRecord, request: &ForkRequest, id: TaskId, nth: usize, turn: Turn) -> TaskSpec {
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
    // Two results cannot use the same branch.
    spec.branch = spec.branch.map(|branch| format!("{branch}-fork-{}", id.short()));
    if let Some(engine) = &request.engine {
        if spec.engine != engine.name {
            // Role overrides for another engine do not apply to this one.
            spec.roles.clear();
        }
        spec.engine.clone_from(&engine.name);
    }
    if let Some(models) = &request.models {
        spec.model = models.main.clone();
        spec.explore_model = models.explore.as_ref().map(|other| other.model.clone());
        spec.fallback_model = models.fallback.as_ref().map(|other| other.model.clone());
        // The new model plays every role, as in a resumed run.
        spec.roles.iter_mut().for_each(|role| role.model = None);
    }
    spec.script = request.script.or(spec.script);
    spec
}

async fn store_hint(api: &ApiState, text: Option<&str>) -> Result<Option<Content>, ApiError> {
    let (content, aside) = redact_hint(api, text);
    if let Some(blob) = aside {
        api.store.put_blobs(vec![blob], api.clock.now()).await?;
    }
    Ok(content)
}

/// Redacts a hint; a long one is stored as a blob.
fn redact_hint(api: &ApiState, text: Option<&str>) -> (Option<Content>, Option<NewBlob>) {
    let Some(text) = text else { return (None, None) };
    let (content, aside) = Content::inline_or_blob(api.redactor.redact_text(text).as_bytes().to_vec());
    (Some(content), aside.map(|bytes| NewBlob { blob: BlobRef::for_bytes(&bytes), bytes: bytes.into() }))
}

fn check_text(field: &str, text: Option<&str>) -> Result<(), ApiError> {
    if text.is_none_or(|text| !text.trim().is_empty() && text.len() <= TELL_BYTES_MAX) {
        return Ok(());
    }
    let detail = format!("`{field}` must be 1 to {TELL_BYTES_MAX} bytes");
    Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field(field))
}

/// Returns the events for a person's changes, to follow `Forked`, and the blobs they reference.
fn edit_events(edit: Option<&WorkspaceEdit>, by: &str, turn: Turn) -> (Vec<NewEvent>, Vec<BlobHash>) {
    let Some(edit) = edit else { return (Vec::new(), Vec::new()) };
    let mut events = vec![RunEvent::from(WorkspaceEdited { by: by.to_owned() }).encode(turn)];
    events.extend(edit.snapshots.iter().map(|taken| RunEvent::from(taken.clone()).encode(turn)));
    (events, edit.names.clone())
}

/// The point from which a run is continued.
struct ForkPoint {
    end_event: Envelope,
    /// The run whose stream contains the point: the requested run or an ancestor.
    owner: RunId,
    turn: Turn,
    /// Changes to the requested run's configuration since that point.
    later_forks: Vec<Forked>,
    /// Policy changes up to that point.
    policy_changes: Vec<Envelope>,
}

impl ForkPoint {
    async fn find(
        api: &ApiState,
        view: &RunView,
        turn: Option<u32>,
        edit: Option<&WorkspaceEdit>,
    ) -> Result<Self, ApiError> {
        let history = FoldedRun::from_events(read_lineage(api, view, Seq(u64::MAX)).await?)
            .map_err(unreadable_log_error)?;
        let asked = turn.map(Turn);
        if let Some(asked) = asked {
            history.turn(asked).map_err(fork_point_error)?;
        }
        let (end, turn) = history.turn_end(asked).map_err(fork_point_error)?;
        let StreamId::Run(owner) = end.stream else {
            return Err(ApiError::new(
                ProblemCode::Internal,
                "a run's history contains an event of another stream",
            ));
        };
        if let Some(edit) = edit {
            check_edit(edit, asked, &history)?;
        }
        let after = history.events().iter().rev().take_while(|event| event.hash != end.hash);
        let later = after.filter(|event| event.kind == "Forked");
        let later = later.filter_map(|event| serde_json::from_str(event.payload.as_str()).ok()).collect();
        let before = history.events().iter().take_while(|event| event.hash != end.hash);
        let before = before.filter(|event| event.kind == "PolicyChanged").cloned().collect();
        Ok(Self { end_event: end.clone(), owner, turn, later_forks: later, policy_changes: before })
    }

    fn missing_policy_events(&self, changed: Option<&PolicyChanged>) -> (Vec<NewEvent>, Vec<BlobHash>) {
        task_policy::missing_policy_events(changed, &self.policy_changes, self.turn)
    }

    const fn parent_ref(&self) -> ParentRef {
        ParentRef { run: self.owner, seq: self.end_event.seq }
    }

    fn forked_event(&self, task: TaskId, run: RunId, why: ForkReason) -> Forked {
        Forked {
            run,
            task,
            parent: self.owner,
            seq: self.end_event.seq,
            hash: self.end_event.hash,
            turn: self.turn,
            why,
            engine: self.later_forks.iter().find_map(|later| later.engine.clone()),
            models: self.later_forks.iter().find_map(|later| later.models.clone()),
            hint: None,
        }
    }
}

fn check_edit(edit: &WorkspaceEdit, asked: Option<Turn>, history: &FoldedRun) -> Result<(), ApiError> {
    let wrong = |field: &str, detail: String| {
        Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field(field))
    };
    let Some(turn) = asked else {
        return wrong("turn", "an edit requires the turn at which it was made".to_owned());
    };
    let count = edit.snapshots.len();
    if count == 0 || count > EDIT_SNAPSHOTS_MAX {
        return wrong("edit.snapshots", format!("an edit must have 1 to {EDIT_SNAPSHOTS_MAX} snapshots"));
    }
    if edit.names.len() > BLOB_HASHES_MAX {
        return wrong("edit.names", format!("an edit may reference at most {BLOB_HASHES_MAX} blobs"));
    }
    let tree = history.state_at_end(turn).map_err(fork_point_error)?.tree;
    if tree == Some(edit.before) {
        return Ok(());
    }
    let detail = "the edit was made on a different tree than that of this turn; make it again".to_owned();
    wrong("edit.before", detail)
}

fn fork_point_error(error: NoSuchTurn) -> ApiError {
    match error {
        NoSuchTurn::NotFound { .. } => {
            ApiError::new(ProblemCode::NotFound, error.to_string()).with_field("turn")
        }
        NoSuchTurn::NotEnded { .. } => {
            ApiError::new(ProblemCode::WrongState, error.to_string()).with_field("turn")
        }
        NoSuchTurn::NoneEnded => ApiError::new(ProblemCode::WrongState, error.to_string()),
    }
}

fn unreadable_log_error(error: CorruptLog) -> ApiError {
    tracing::error!("{}", error_chain(&error));
    ApiError::new(ProblemCode::Internal, "cannot read the run's log; run `docket verify`")
}

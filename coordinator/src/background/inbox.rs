//! Background job that turns rows of the transactional inbox into tasks.
//!
//! It polls, because a NOTIFY inside an application's transaction takes a database-wide lock at commit, while
//! checking an empty inbox is one step into an empty index. Invariants: a row is either a task or still in
//! the inbox, never both, however many coordinators poll; an invalid row does not delay the others.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
    time::Duration,
};

use docket_schema::{
    api::InboxRow,
    ids::TaskId,
    redact::Redactor,
    task::{InboxSpec, TaskSpec},
};

use crate::{
    app::AppState,
    clock::{Clock, jittered_interval},
    error_chain::error_chain,
    store::{InboxContent, InboxMove, InboxOutcome, NewTask, Store, StoreError},
    task_check::{check_and_redact_spec, check_base},
    wakeups::WakeupBus,
};

/// Longest delay until an enqueued task is noticed. Jittered between half of this and all of it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Rows per round; a full round is followed by the next at once.
const ROUND_MAX: u32 = 200;
/// Wait after a store failure.
const STORE_RETRY: Duration = Duration::from_secs(2);
/// Longest stored rejection reason, in characters.
const REASON_CHARS_MAX: usize = 1000;

/// Consumes the inbox until shutdown.
pub(crate) async fn consume_inbox(app: Arc<AppState>) {
    loop {
        let wait = match consume_inbox_once(&*app.store, &app.redactor, &app.clock, &app.wakeups).await {
            Ok(moved) if moved >= ROUND_MAX as usize => Duration::ZERO,
            Ok(_) => jittered_interval(POLL_INTERVAL),
            Err(error) => {
                tracing::warn!("cannot read the inbox: {}", error_chain(&error));
                jittered_interval(STORE_RETRY)
            }
        };
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Processes one round of waiting rows and returns how many were handled. If it fails, rows already processed
/// stay processed.
pub async fn consume_inbox_once(
    store: &dyn Store,
    redactor: &Redactor,
    clock: &Clock,
    wakes: &WakeupBus,
) -> Result<usize, StoreError> {
    let rows = store.list_waiting_inbox(ROUND_MAX).await?;
    if rows.is_empty() {
        return Ok(0);
    }
    let mut templates = HashMap::new();
    let mut moves = Vec::with_capacity(rows.len());
    for row in rows {
        let found = match build_task(store, &mut templates, &row, redactor).await? {
            Ok(task) => InboxContent::Task(Box::new(task)),
            Err(reason) => InboxContent::Invalid(redact_reason(&reason, redactor)),
        };
        moves.push(InboxMove { by: inbox_submitter(&row, redactor), row: row.id, content: found });
    }
    let moved = consume_rows(store, moves.clone(), clock).await?;
    let mut settled = 0;
    for (one, became) in moves.iter().zip(moved) {
        settled += usize::from(became != InboxOutcome::Gone);
        log_outcome(one, &became);
    }
    if settled > 0 {
        wakes.notify_task_available();
        wakes.notify_due_sooner();
    }
    Ok(settled)
}

async fn consume_rows(
    store: &dyn Store,
    moves: Vec<InboxMove>,
    clock: &Clock,
) -> Result<Vec<InboxOutcome>, StoreError> {
    match store.consume_inbox(moves.clone(), clock.now()).await {
        Ok(moved) => return Ok(moved),
        Err(error) if affects_all_rows(&error) => return Err(error),
        Err(_) => {}
    }
    let mut moved = Vec::with_capacity(moves.len());
    for one in moves {
        let became = match store.consume_inbox(vec![one.clone()], clock.now()).await {
            Ok(mut became) => became.pop(),
            Err(error) if affects_all_rows(&error) => return Err(error),
            Err(error) => {
                let reason = format!("the store rejects it: {}", error_chain(&error));
                let found = InboxContent::Invalid(reason);
                store.consume_inbox(vec![InboxMove { content: found, ..one }], clock.now()).await?.pop()
            }
        };
        moved.push(became.unwrap_or(InboxOutcome::Gone));
    }
    Ok(moved)
}

/// Whether the error says nothing about a particular row.
const fn affects_all_rows(error: &StoreError) -> bool {
    match error {
        StoreError::Unavailable { .. }
        | StoreError::ReadOnly { .. }
        | StoreError::Full { .. }
        | StoreError::Damaged { .. }
        | StoreError::SchemaMismatch { .. }
        | StoreError::Schema { .. } => true,
        StoreError::Corrupt { .. } | StoreError::Internal { .. } => false,
    }
}

/// Builds the task that a row requests, or the reason why it is invalid.
async fn build_task(
    store: &dyn Store,
    templates: &mut HashMap<TaskId, Option<TaskSpec>>,
    row: &InboxRow,
    redactor: &Redactor,
) -> Result<Result<NewTask, String>, StoreError> {
    let Ok(id) = row.id.parse::<TaskId>() else {
        return Ok(Err("its id must be a UUID".to_owned()));
    };
    let given = match InboxSpec::parse(&row.spec) {
        Ok(given) => given,
        Err(fault) => return Ok(Err(fault.to_string())),
    };
    let template = match given.template_id() {
        None => None,
        Some(like) => {
            let known = match templates.entry(like) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(store.get_task(like).await?.map(|(record, _)| record.spec)),
            };
            match known.as_ref() {
                Some(spec) => Some(spec),
                None => return Ok(Err(format!("`like` names task {like}, which does not exist"))),
            }
        }
    };
    let spec = match given.resolve(template) {
        Ok(spec) => spec,
        Err(fault) => return Ok(Err(fault.to_string())),
    };
    let spec = match check_and_redact_spec(spec, redactor) {
        Ok(spec) => spec,
        Err(unsound) => return Ok(Err(unsound.requirement)),
    };
    let checked = check_base(store, &spec).await?.map_err(|unsound| unsound.requirement);
    Ok(checked.map(|()| NewTask { id, spec, fork: None }))
}

fn inbox_submitter(row: &InboxRow, redactor: &Redactor) -> String {
    match redactor.redact_text(&row.submitted_by).trim() {
        "" => "inbox".to_owned(),
        name => format!("inbox/{name}"),
    }
}

/// Parser errors can quote their input, so the reason is redacted.
fn redact_reason(reason: &str, redactor: &Redactor) -> String {
    let text: String =
        redactor.redact_text(reason).chars().filter(|c| *c != '\0').take(REASON_CHARS_MAX).collect();
    text
}

fn log_outcome(one: &InboxMove, became: &InboxOutcome) {
    match became {
        InboxOutcome::Submitted(_) | InboxOutcome::Gone => {}
        InboxOutcome::Duplicate(holder) => {
            tracing::info!(row = %one.row, %holder, "dropped an enqueued task, because another task holds \
                 its deduplication key");
        }
        InboxOutcome::Refused(reason) => {
            tracing::warn!(row = %one.row, by = %one.by, "an enqueued entry is not a valid task: {reason}; \
                 see `docket inbox`");
        }
    }
}

//! Makes tasks of what applications put into the inbox within transactions of their own.
//!
//! It polls: a NOTIFY in an application's transaction would take a lock over the whole database at its commit, and a
//! look at an empty inbox is one step into an empty index. Invariants: a row is a task or stays, never neither and
//! never twice, however many coordinators look; a row that is no task keeps back no other.

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

/// How late an enqueued task may be noticed. Drawn between half of it and all.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Rows of one round; the next round follows at once while there are as many.
const ROUND_MAX: u32 = 200;
/// Wait after the store failed.
const STORE_RETRY: Duration = Duration::from_secs(2);
/// Longest reason that is kept, in characters.
const REASON_CHARS_MAX: usize = 1000;

/// Runs until the shutdown.
pub(crate) async fn consume_inbox(app: Arc<AppState>) {
    loop {
        let wait = match consume_inbox_once(&*app.store, &app.redactor, &app.clock, &app.wakeups).await {
            Ok(moved) if moved >= ROUND_MAX as usize => Duration::ZERO,
            Ok(_) => jittered_interval(POLL_INTERVAL),
            Err(error) => {
                tracing::warn!("the inbox is not looked at for now: {}", error_chain(&error));
                jittered_interval(STORE_RETRY)
            }
        };
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Takes what waits, as far as one round goes; answers how many rows it settled. Where it fails, what was taken stays
/// taken.
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

/// All in one transaction; where the store cannot do that, each by itself, so that the one at fault is found.
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
                let reason = format!("the store does not take it: {}", error_chain(&error));
                let found = InboxContent::Invalid(reason);
                store.consume_inbox(vec![InboxMove { content: found, ..one }], clock.now()).await?.pop()
            }
        };
        moved.push(became.unwrap_or(InboxOutcome::Gone));
    }
    Ok(moved)
}

/// Whether it says nothing about a row.
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

/// The task that a row asks for, or why it asks for none.
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
                None => return Ok(Err(format!("there is no task {like} that it could be `like`"))),
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

/// What a parser says may repeat what it read.
fn redact_reason(reason: &str, redactor: &Redactor) -> String {
    let text: String =
        redactor.redact_text(reason).chars().filter(|c| *c != '\0').take(REASON_CHARS_MAX).collect();
    text
}

fn log_outcome(one: &InboxMove, became: &InboxOutcome) {
    match became {
        InboxOutcome::Submitted(_) | InboxOutcome::Gone => {}
        InboxOutcome::Duplicate(holder) => {
            tracing::info!(row = %one.row, %holder, "an enqueued task's deduplication key is held");
        }
        InboxOutcome::Refused(reason) => {
            tracing::warn!(row = %one.row, by = %one.by, "what was enqueued is no task: {reason}; see `docket inbox`");
        }
    }
}

//! Routes of leases: lease, heartbeat, release. The first two wait for news.
//!
//! A wait registers for the wake-up, then queries the store, then waits. A jittered poll covers
//! lost or missing hints from other coordinators.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{
        CAPACITY_REASON_BYTES_MAX, FAULT_MESSAGE_BYTES_MAX, FAULT_NAME_BYTES_MAX, FAULTS_MAX,
        HeartbeatRequest, HeartbeatResponse, LEASE_MAX, Lease, LeaseRequest, LeaseResponse, ProblemCode,
        ReleaseReason, ReleaseRequest, ReleaseResponse, SANDBOX_LAYERS_MAX, WorkerCapacity, WorkerFault,
    },
    ids::{RunId, TaskId},
};
use tokio::time::{Instant, sleep_until};

use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        request::{ApiRequest, json_response},
    },
    routes::{commands, runs::task_policy},
};
use crate::{
    clock::{self, jittered_interval},
    store::{CommandBlobs, GrantedLease, WorkerHeartbeat},
};

/// Poll interval of a heartbeat, for cancels received by another coordinator. Longer, because each
/// poll renews leases, which is a write.
const HEARTBEAT_POLL: Duration = Duration::from_secs(2);
/// Maximum length of a worker name in bytes; it is part of every `TaskLeased`.
const NAME_BYTES_MAX: usize = 200;
/// Maximum length of a crash description in bytes.
const CRASH_TEXT_BYTES_MAX: usize = 200;
/// Maximum number of queues or engines per request, because they become parameters of a statement.
const LIST_ITEMS_MAX: usize = 100;

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn lease_tasks(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let request: LeaseRequest = call.json()?;
    check_lease_request(&request)?;
    api.lease_length.record_contact(request.incarnation);
    let (came, end) = (Instant::now(), ApiState::long_poll_deadline(request.wait_ms));
    loop {
        let news = api.wakeups.wait_for_task();
        api.check_still_authorized(&call.caller)?;
        let held_ms = u64::try_from(came.elapsed().as_millis()).unwrap_or(u64::MAX);
        let runs = (0..request.max).map(|_| RunId(clock::new_id())).collect();
        let lease_ms = api.lease_length.current_ms();
        let granted = api.store.lease(request.clone(), runs, lease_ms, api.clock.now()).await?;
        if !granted.leases.is_empty() || granted.drain || Instant::now() >= end || api.shutdown.is_cancelled()
        {
            let mut leases = Vec::with_capacity(granted.leases.len());
            for granted in granted.leases {
                leases.push(build_lease(&api, granted, lease_ms).await?);
            }
            return json_response(&LeaseResponse { leases, held_ms, drain: granted.drain });
        }
        let look = end.min(
            Instant::now() + jittered_interval(api.settings.poll_intervals.current_interval(&api.wakeups)),
        );
        tokio::select! {
            () = news => {}
            () = sleep_until(look) => {}
            () = api.shutdown.cancelled() => {}
        }
    }
}

fn check_lease_request(request: &LeaseRequest) -> Result<(), ApiError> {
    let wrong = |field: &str, must: String| {
        Err(ApiError::new(ProblemCode::InvalidRequest, format!("`{field}` must be {must}")).with_field(field))
    };
    if request.max == 0 || request.max > LEASE_MAX {
        return wrong("max", format!("between 1 and {LEASE_MAX}"));
    }
    if i64::try_from(request.number).is_err() {
        return wrong("number", format!("at most {}", i64::MAX));
    }
    if request.name.len() > NAME_BYTES_MAX {
        return wrong("name", format!("at most {NAME_BYTES_MAX} bytes"));
    }
    // PostgreSQL does not allow NUL in text; it would fail the transaction, which is shared with other
    // requests.
    let has_nul = |text: &str| text.contains('\0');
    if has_nul(&request.name) || request.engines.iter().any(|engine| has_nul(&engine.name)) {
        return wrong("name", "free of NUL characters, and so must the names of engines".to_owned());
    }
    if request.engines.is_empty() || request.engines.len() > LIST_ITEMS_MAX {
        return wrong("engines", format!("a list of 1 to {LIST_ITEMS_MAX} engines of the worker"));
    }
    if request.layers.len() > SANDBOX_LAYERS_MAX
        || request.layers.iter().any(|layer| layer.len() > NAME_BYTES_MAX || has_nul(layer))
    {
        return wrong(
            "layers",
            format!(
                "at most {SANDBOX_LAYERS_MAX} names of at most {NAME_BYTES_MAX} bytes, without zero bytes"
            ),
        );
    }
    if request.queues.len() > LIST_ITEMS_MAX {
        return wrong(
            "queues",
            format!("a list of at most {LIST_ITEMS_MAX} queues; an empty list means all"),
        );
    }
    check_faults(&request.faults)?;
    check_room(request.room.as_ref())
}

/// Checks worker faults, which are written with the worker's record at each request.
fn check_faults(faults: &[WorkerFault]) -> Result<(), ApiError> {
    let bad = |fault: &WorkerFault| {
        fault.message.len() > FAULT_MESSAGE_BYTES_MAX
            || fault.message.contains('\0')
            || fault.scope.longest_name_bytes() > FAULT_NAME_BYTES_MAX
    };
    if faults.len() > FAULTS_MAX || faults.iter().any(bad) {
        let detail = format!(
            "`faults` may have at most {FAULTS_MAX} entries, with messages of at most {FAULT_MESSAGE_BYTES_MAX} bytes and \
             no NUL, and names of at most {FAULT_NAME_BYTES_MAX} bytes"
        );
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("faults"));
    }
    Ok(())
}

fn check_room(room: Option<&WorkerCapacity>) -> Result<(), ApiError> {
    let bad = |why: &String| why.len() > CAPACITY_REASON_BYTES_MAX || why.contains('\0');
    if room.and_then(|room| room.full.as_ref()).is_some_and(bad) {
        let detail = format!("`room.full` may have at most {CAPACITY_REASON_BYTES_MAX} bytes, and no NUL");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("room.full"));
    }
    Ok(())
}

async fn build_lease(api: &ApiState, granted: GrantedLease, lease_ms: u64) -> Result<Lease, ApiError> {
    let GrantedLease { mut record, run, head, forked } = granted;
    // A retry starts with the policy of the earlier attempt. A forked run has the policy in its
    // history.
    if record.runs > 1 && !forked {
        let changed = task_policy::last_policy_change(api, record.id).await?;
        record.spec.policy = task_policy::effective_policy(changed, record.spec.policy);
    }
    Ok(Lease {
        task: record.id,
        run,
        attempt: record.runs,
        epoch: record.epoch,
        token: api.run_tokens.issue_token(run, record.epoch),
        lease_ms,
        heartbeat_ms: api.settings.heartbeat_ms,
        head,
        forked,
        spec: record.spec,
        delegated_by: record.delegated_by,
    })
}

pub(in crate::http) async fn renew_leases(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let request: HeartbeatRequest = call.json()?;
    if request.held.len() > LEASE_MAX as usize {
        let detail = format!("a heartbeat may list at most {LEASE_MAX} leases; send several requests");
        return Err(ApiError::new(ProblemCode::TooLarge, detail).with_field("held"));
    }
    check_room(request.room.as_ref())?;
    api.lease_length.record_contact(request.incarnation);
    let end = ApiState::long_poll_deadline(request.wait_ms);
    loop {
        let news = api.wakeups.wait_for_leases();
        api.check_still_authorized(&call.caller)?;
        let HeartbeatRequest { incarnation, held, room, .. } = request.clone();
        let beat = WorkerHeartbeat { incarnation, leases: held, capacity: room };
        let known = api.store.renew_leases(beat, api.lease_length.current_ms(), api.clock.now()).await?;
        if !known.lost.is_empty() || known.drain || Instant::now() >= end || api.shutdown.is_cancelled() {
            let (renewed, lost, drain) = (known.renewed, known.lost, known.drain);
            return json_response(&HeartbeatResponse { renewed, lost, drain });
        }
        // Each poll renews, so that a wait longer than a lease keeps the leases.
        let poll = HEARTBEAT_POLL.min(Duration::from_millis(api.settings.lease_ms / 3));
        let look = end.min(Instant::now() + jittered_interval(poll));
        tokio::select! {
            () = news => {}
            () = sleep_until(look) => {}
            () = api.shutdown.cancelled() => {}
        }
    }
}

pub(in crate::http) async fn release_lease(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let id: TaskId = call.id()?;
    let request: ReleaseRequest = call.json()?;
    let decide = match request.why {
        ReleaseReason::Drained => commands::release(request.epoch),
        ReleaseReason::Crashed(how) if how.len() > CRASH_TEXT_BYTES_MAX => {
            let detail = format!("`why.crashed` may have at most {CRASH_TEXT_BYTES_MAX} bytes");
            return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("why.crashed"));
        }
        ReleaseReason::Crashed(how) => commands::crash(request.epoch, how),
        ReleaseReason::WorkerFault(message)
            if message.len() > FAULT_MESSAGE_BYTES_MAX || message.contains('\0') =>
        {
            let detail =
                format!("`why.worker_fault` may have at most {FAULT_MESSAGE_BYTES_MAX} bytes, and no NUL");
            return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("why.worker_fault"));
        }
        ReleaseReason::WorkerFault(message) => commands::release_for_fault(request.epoch, message),
    };
    let (record, run) =
        api.store.execute_command(id, decide, CommandBlobs::default(), api.clock.now()).await?;
    api.wake_waiters(&record);
    if let (Some(of), Some(_)) = (record.last_run, run) {
        api.wakeups.notify_append(of);
    }
    json_response(&ReleaseResponse { state: record.state })
}

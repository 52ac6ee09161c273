//! Routes of leases: lease, heartbeat, release. The first two wait for news.
//!
//! Waiting registers for the wake-up, then asks the store, then waits; behind it a jittered poll,
//! for a hint of another coordinator may be lost, or there may be none.

use std::{sync::Arc, time::Duration};

use axum::{body::Body, http::Response};
use docket_schema::{
    ids::{RunId, TaskId},
    wire::{
        FAULT_MESSAGE_BYTES_MAX, FAULT_NAME_BYTES_MAX, FAULTS_MAX, HeartbeatRequest, HeartbeatResponse,
        LAYERS_MAX, LEASE_MAX, Lease, LeaseRequest, LeaseResponse, ProblemCode, ROOM_WHY_BYTES_MAX,
        ReleaseReason, ReleaseRequest, ReleaseResponse, Room, WorkerFault,
    },
};
use tokio::time::{Instant, sleep_until};

use super::{
    api::Api,
    call::{Call, json},
    commands,
    errors::Refusal,
    task_policy,
};
use crate::{
    clock::{self, jittered},
    store::{CommandBlobs, Granted, Heartbeat},
};

/// The same for a cancel told to another coordinator. Longer: each look renews, which is a write.
const HEARTBEAT_POLL: Duration = Duration::from_secs(2);
/// Longest worker name, in bytes: it stands in every `TaskLeased`.
const NAME_BYTES_MAX: usize = 200;
/// Longest text of how a run process died, in bytes.
const HOW_BYTES_MAX: usize = 200;
/// Most queues or engines of one request: they stand in a statement.
const LIST_MAX: usize = 100;

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn lease(api: Arc<Api>, call: Call) -> Answered {
    let request: LeaseRequest = call.json()?;
    check(&request)?;
    api.lease_length.record_contact(request.incarnation);
    let (came, end) = (Instant::now(), Api::poll_end(request.wait_ms));
    loop {
        let news = api.wakes.wait_for_work();
        api.must_still_be(&call.caller)?;
        let held_ms = u64::try_from(came.elapsed().as_millis()).unwrap_or(u64::MAX);
        let runs = (0..request.max).map(|_| RunId(clock::new_id())).collect();
        let lease_ms = api.lease_length.current_ms();
        let granted = api.store.lease(request.clone(), runs, lease_ms, api.clock.now()).await?;
        if !granted.leases.is_empty() || granted.drain || Instant::now() >= end || api.shutdown.is_cancelled()
        {
            let mut leases = Vec::with_capacity(granted.leases.len());
            for granted in granted.leases {
                leases.push(lease_of(&api, granted, lease_ms).await?);
            }
            return json(&LeaseResponse { leases, held_ms, drain: granted.drain });
        }
        let look = end.min(Instant::now() + jittered(api.limits.polls.of(&api.wakes)));
        tokio::select! {
            () = news => {}
            () = sleep_until(look) => {}
            () = api.shutdown.cancelled() => {}
        }
    }
}

fn check(request: &LeaseRequest) -> Result<(), Refusal> {
    let wrong = |field: &str, must: String| {
        Err(Refusal::new(ProblemCode::InvalidRequest, format!("`{field}` must be {must}")).field(field))
    };
    if request.max == 0 || request.max > LEASE_MAX {
        return wrong("max", format!("within 1 and {LEASE_MAX}"));
    }
    if i64::try_from(request.number).is_err() {
        return wrong("number", format!("at most {}", i64::MAX));
    }
    if request.name.len() > NAME_BYTES_MAX {
        return wrong("name", format!("at most {NAME_BYTES_MAX} bytes"));
    }
    // A NUL is none of PostgreSQL's characters, and would fail whoever shares the transaction.
    let has_nul = |text: &str| text.contains('\0');
    if has_nul(&request.name) || request.engines.iter().any(|engine| has_nul(&engine.name)) {
        return wrong("name", "text without NUL, and so must be the names of engines".to_owned());
    }
    if request.engines.is_empty() || request.engines.len() > LIST_MAX {
        return wrong("engines", format!("1 to {LIST_MAX} engines the worker has"));
    }
    if request.layers.len() > LAYERS_MAX
        || request.layers.iter().any(|layer| layer.len() > NAME_BYTES_MAX || has_nul(layer))
    {
        return wrong(
            "layers",
            format!("at most {LAYERS_MAX} names of at most {NAME_BYTES_MAX} bytes, none of them zero"),
        );
    }
    if request.queues.len() > LIST_MAX {
        return wrong("queues", format!("at most {LIST_MAX} queues; none stands for all"));
    }
    check_faults(&request.faults)?;
    check_room(request.room.as_ref())
}

/// They are written with the worker's record at each request.
fn check_faults(faults: &[WorkerFault]) -> Result<(), Refusal> {
    let bad = |fault: &WorkerFault| {
        fault.message.len() > FAULT_MESSAGE_BYTES_MAX
            || fault.message.contains('\0')
            || fault.scope.name_bytes() > FAULT_NAME_BYTES_MAX
    };
    if faults.len() > FAULTS_MAX || faults.iter().any(bad) {
        let detail = format!(
            "`faults` may have at most {FAULTS_MAX} entries, with messages of at most {FAULT_MESSAGE_BYTES_MAX} bytes and \
             no NUL, and names of at most {FAULT_NAME_BYTES_MAX} bytes"
        );
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("faults"));
    }
    Ok(())
}

fn check_room(room: Option<&Room>) -> Result<(), Refusal> {
    let bad = |why: &String| why.len() > ROOM_WHY_BYTES_MAX || why.contains('\0');
    if room.and_then(|room| room.full.as_ref()).is_some_and(bad) {
        let detail = format!("`room.full` may have at most {ROOM_WHY_BYTES_MAX} bytes, and no NUL");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("room.full"));
    }
    Ok(())
}

async fn lease_of(api: &Api, granted: Granted, lease_ms: u64) -> Result<Lease, Refusal> {
    let Granted { mut record, run, head, forked } = granted;
    // A later try begins with the policy that an earlier one was given. What stands on a history has it there.
    if record.runs > 1 && !forked {
        let changed = task_policy::changed(api, record.id).await?;
        record.spec.policy = task_policy::in_force(changed, record.spec.policy);
    }
    Ok(Lease {
        task: record.id,
        run,
        attempt: record.runs,
        epoch: record.epoch,
        token: api.run_tokens.make(run, record.epoch),
        lease_ms,
        heartbeat_ms: api.limits.heartbeat_ms,
        head,
        forked,
        spec: record.spec,
        delegated_by: record.delegated_by,
    })
}

pub(super) async fn heartbeat(api: Arc<Api>, call: Call) -> Answered {
    let request: HeartbeatRequest = call.json()?;
    if request.held.len() > LEASE_MAX as usize {
        let detail = format!("a heartbeat lists at most {LEASE_MAX} leases; send several");
        return Err(Refusal::new(ProblemCode::TooLarge, detail).field("held"));
    }
    check_room(request.room.as_ref())?;
    api.lease_length.record_contact(request.incarnation);
    let end = Api::poll_end(request.wait_ms);
    loop {
        let news = api.wakes.wait_for_leases();
        api.must_still_be(&call.caller)?;
        let HeartbeatRequest { incarnation, held, room, .. } = request.clone();
        let beat = Heartbeat { incarnation, held, room };
        let known = api.store.heartbeat(beat, api.lease_length.current_ms(), api.clock.now()).await?;
        if !known.lost.is_empty() || known.drain || Instant::now() >= end || api.shutdown.is_cancelled() {
            let (renewed, lost, drain) = (known.renewed, known.lost, known.drain);
            return json(&HeartbeatResponse { renewed, lost, drain });
        }
        // Each look renews, so a wait longer than a lease keeps the leases all the same.
        let poll = HEARTBEAT_POLL.min(Duration::from_millis(api.limits.lease_ms / 3));
        let look = end.min(Instant::now() + jittered(poll));
        tokio::select! {
            () = news => {}
            () = sleep_until(look) => {}
            () = api.shutdown.cancelled() => {}
        }
    }
}

pub(super) async fn release(api: Arc<Api>, call: Call) -> Answered {
    let id: TaskId = call.id()?;
    let request: ReleaseRequest = call.json()?;
    let decide = match request.why {
        ReleaseReason::Drained => commands::release(request.epoch),
        ReleaseReason::Crashed(how) if how.len() > HOW_BYTES_MAX => {
            let detail = format!("`why.crashed` may have at most {HOW_BYTES_MAX} bytes");
            return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("why.crashed"));
        }
        ReleaseReason::Crashed(how) => commands::crash(request.epoch, how),
        ReleaseReason::WorkerFault(message)
            if message.len() > FAULT_MESSAGE_BYTES_MAX || message.contains('\0') =>
        {
            let detail =
                format!("`why.worker_fault` may have at most {FAULT_MESSAGE_BYTES_MAX} bytes, and no NUL");
            return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("why.worker_fault"));
        }
        ReleaseReason::WorkerFault(message) => commands::release_for_fault(request.epoch, message),
    };
    let (record, run) = api.store.command(id, decide, CommandBlobs::default(), api.clock.now()).await?;
    api.announce(&record);
    if let (Some(of), Some(_)) = (record.last_run, run) {
        api.wakes.appended(of);
    }
    json(&ReleaseResponse { state: record.state })
}

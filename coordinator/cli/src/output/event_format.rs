//! Events as people read them: one line each, for `logs`, `follow`, `run` and the demo.

use crate::output::value_format;
use crate::output::value_format::format_memory_scope;
use docket_schema::{
    content::Content,
    event::{Envelope, TypedEvent as _},
    history::CallOutcome,
    ids::{StreamId, Timestamp},
    message::ToolUse,
    queue::{QueueEvent, QueueSet},
    run::{Compacted, RunEnded, RunEvent, ToolFinished, ToolStatus, tool_uses},
    system::{AdminAct, FiringResult, SkipReason, SystemEvent},
    task::{TaskBlocked, TaskBlockedReason, TaskEvent},
};
use serde_json::Value;

use crate::output::{
    display::{format_duration, sanitize_line},
    fact_format,
};

/// Formats the time of day in UTC.
pub(crate) fn format_time_of_day(at: Timestamp) -> String {
    let text = at.to_string();
    text.get(11..23).unwrap_or(&text).to_owned()
}

/// Formats an event as one sanitized line.
pub(crate) fn format_event(event: &Envelope) -> String {
    let payload = event.payload.as_str();
    let typed =
        match &event.stream {
            StreamId::Run(_) => {
                RunEvent::decode(&event.kind, event.version, payload).map(|event| format_run_event(&event))
            }
            StreamId::Task(_) => {
                TaskEvent::decode(&event.kind, event.version, payload).map(|event| format_task_event(&event))
            }
            StreamId::System(_) => SystemEvent::decode(&event.kind, event.version, payload)
                .map(|event| format_system_event(&event)),
            StreamId::Queue(_) => QueueEvent::decode(&event.kind, event.version, payload)
                .map(|event| format_queue_event(&event)),
        };
    let detail = typed.unwrap_or_else(|error| error.to_string());
    sanitize_line(&format!("{:<16} {detail}", event.kind)).trim_end().to_owned()
}

fn format_queue_event(event: &QueueEvent) -> String {
    let QueueEvent::QueueSet(QueueSet { by, settings }) = event;
    let paused = if settings.paused { "paused" } else { "open" };
    let most = settings.running_max.map_or(String::new(), |max| format!(", at most {max} running"));
    format!("{paused}{most} ({by})")
}

fn format_system_event(event: &SystemEvent) -> String {
    match event {
        SystemEvent::RunImported(e) => format!("run {} of task {} by {}", e.run, e.task, e.by),
        SystemEvent::TokenCreated(e) => {
            let until = e.expires_at.map_or_else(String::new, |at| format!(" until {at}"));
            format!("{} ({}){until} by {}", e.name, e.role.as_str(), e.by)
        }
        SystemEvent::TokenRevoked(e) => format!("{} by {}", e.name, e.by),
        SystemEvent::AdminActed(e) => {
            let from = e.from.as_ref().map_or_else(String::new, |from| format!(" from {from}"));
            format!("{} by {}{from}", format_admin_act(&e.act), e.by)
        }
        SystemEvent::ScheduleSet(e) => {
            format!(
                "{} at `{}` {} by {}: {}",
                e.name, e.schedule.cron, e.schedule.tz, e.by, e.schedule.spec.title
            )
        }
        SystemEvent::SchedulePaused(e) => {
            format!("{} {} by {}", e.name, if e.paused { "rests" } else { "resumed" }, e.by)
        }
        SystemEvent::ScheduleRemoved(e) => format!("{} by {}", e.name, e.by),
        SystemEvent::ScheduleFired(e) => {
            let by = e.by.as_ref().map_or_else(String::new, |by| format!(" by {by}"));
            format!("{} of {}{by}: {}", e.name, e.at, format_firing(&e.gave))
        }
        SystemEvent::LimitSet(e) => {
            format!("{}: {} by {}", e.provider, e.limits, e.by)
        }
        SystemEvent::LimitRemoved(e) => format!("{} by {}", e.provider, e.by),
        SystemEvent::BudgetSet(e) => {
            format!("batch {}: {} by {}", e.batch, value_format::format_budget(&e.budget), e.by)
        }
        SystemEvent::BudgetSpent(e) => format!("batch {}: {}", e.batch, e.message),
        SystemEvent::MemorySaved(e) => {
            format!(
                "{} of {}, {} bytes, by {} of run {}",
                e.key,
                format_memory_scope(&e.scope),
                e.value.bytes,
                e.by.call,
                e.by.run
            )
        }
        SystemEvent::MemoryForgotten(e) => {
            format!("{} of {} by {}", e.key, format_memory_scope(&e.scope), e.by)
        }
        SystemEvent::NotificationsFollowed(e) => format!("read up to position {}", e.position),
        SystemEvent::NotificationRaised(e) => {
            format!("{} {} for {}: {}", e.notice.kind(), e.id, e.targets.join(", "), e.notice.describe())
        }
        SystemEvent::NotificationDelivered(e) => {
            format!("{} to {}, attempt {}", e.id, e.target, e.attempt)
        }
        SystemEvent::NotificationFailed(e) => {
            format!("{} to {}, attempt {}, again at {}: {}", e.id, e.target, e.attempt, e.retry_at, e.why)
        }
        SystemEvent::NotificationDeadLettered(e) => {
            format!("{} to {}, attempt {}: {}", e.id, e.target, e.attempt, e.why)
        }
        SystemEvent::NotificationRetried(e) => format!("{} to {} by {}", e.id, e.target, e.by),
        SystemEvent::NotificationDropped(e) => format!("{} to {} by {}", e.id, e.target, e.by),
        SystemEvent::CallsRefused(e) => {
            format!("{} calls from {} since {}: {}", e.count, e.from, e.since, e.code.code_status_title().0)
        }
        SystemEvent::StreamsArchived(e) => {
            format!("task {}, {} streams, by {}: {}/{}", e.task, e.streams.len(), e.by, e.place, e.file)
        }
        SystemEvent::StreamsRestored(e) => {
            format!("task {}, {} streams, by {}", e.task, e.streams.len(), e.by)
        }
    }
}

/// Describes the outcome of a schedule's firing.
pub(crate) fn format_firing(gave: &FiringResult) -> String {
    match gave {
        FiringResult::Task(task) => format!("task {task}"),
        FiringResult::Skipped(SkipReason::Missed) => {
            "skipped: no coordinator was running when it was due".to_owned()
        }
        FiringResult::Skipped(SkipReason::Overlap) => "skipped: its previous task had not ended".to_owned(),
        FiringResult::Refused(why) => format!("refused: {why}"),
    }
}

/// Formats an administrative action. Actions of the API are recorded before they are executed, so they read as
/// requests: they may have failed.
fn format_admin_act(act: &AdminAct) -> String {
    match act {
        AdminAct::CreateToken { name, role } => {
            format!("requested creation of token {name} ({})", role.as_str())
        }
        AdminAct::RevokeToken { name } => format!("requested revocation of token {name}"),
        AdminAct::ChangePolicy { run } => format!("requested a policy change of run {run}"),
        AdminAct::Import { run, .. } => format!("requested the import of run {run}"),
        AdminAct::CollectGarbage { delete: true } => "requested deletion of unreferenced blobs".to_owned(),
        AdminAct::CollectGarbage { delete: false } => "requested a count of unreferenced blobs".to_owned(),
        AdminAct::Archive { older_than_ms, queue } => {
            let queue = queue.as_ref().map_or_else(String::new, |queue| format!(" of queue {queue}"));
            format!(
                "requested archiving of tasks{queue} that ended at least {} days ago",
                older_than_ms / 86_400_000
            )
        }
        AdminAct::Restore { stream } => format!("requested the restore of {stream} from the archive"),
        AdminAct::Migrate { version } => format!("database migrated by docket {version}"),
        AdminAct::ForgetMemory { key } => format!("requested deletion of the memory `{key}`"),
        AdminAct::DrainWorker { incarnation } => format!("drained worker {incarnation}"),
        AdminAct::DropInboxRow { row } => format!("requested removal of inbox row {row}"),
        AdminAct::SetLimit { provider } => format!("requested a change of the limit of {provider}"),
        AdminAct::RetryNotification { id } => format!("requested redelivery of notification {id}"),
        AdminAct::DropNotification { id } => format!("dropped notification {id}"),
        AdminAct::TestNotification { target } => {
            format!("requested a test notification to {}", target.as_deref().unwrap_or("all targets"))
        }
        AdminAct::Rebuild { differences } => format!("rebuilt derived tables, {differences} differences"),
    }
}

/// Returns the first non-empty line.
pub(crate) fn first_line(content: &Content) -> String {
    content.text_or_size().lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("").to_owned()
}

/// Summarizes a compaction.
pub(crate) fn format_compaction(event: &Compacted) -> String {
    let counts = [
        (event.cleared.len(), "results cleared"),
        (event.dropped.len(), "failed calls dropped"),
        (event.messages as usize, "messages summarized"),
    ];
    let said = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    said.collect::<Vec<_>>().join(", ")
}

/// Summarizes a tool call.
pub(crate) fn format_tool_call(tool: &ToolUse) -> String {
    let text = |name: &str| tool.args.get(name).and_then(Value::as_str);
    let main = ["path", "command", "regex", "test_path", "pattern"].iter().find_map(|name| text(name));
    let main = main.map_or_else(String::new, |value| format!(" {}", value.lines().next().unwrap_or("")));
    format!("{}{main}", tool.name)
}

fn format_run_event(event: &RunEvent) -> String {
    match event {
        RunEvent::RunStarted(e) => {
            format!("{} with {}, sandbox {}", e.engine, e.models, e.sandbox.backend)
        }
        RunEvent::Forked(e) => format!("from run {} after turn {} ({:?})", e.parent.short(), e.turn, e.why),
        RunEvent::RunRecovered(e) => format!("continued by worker {}", e.worker.short()),
        RunEvent::SetupFinished(e) => match e.exit {
            Some(exit) => format!("exit {exit} in {}: {}", format_duration(e.duration_ms), e.command),
            None => format!("killed by a signal or its time limit: {}", e.command),
        },
        RunEvent::BaseChecked(e) => {
            let shared = if e.shared { ", shared with an earlier run on this tree" } else { "" };
            format!(
                "{} {} before the run in {}{shared}",
                e.gate.name,
                e.outcome_label(),
                format_duration(e.duration_ms)
            )
        }
        RunEvent::PhaseChanged(e) => e.phase.as_str().to_owned(),
        RunEvent::ModelRequested(e) => {
            let again = if e.attempt > 1 { format!(", attempt {}", e.attempt) } else { String::new() };
            format!("{} ({} bytes{again})", e.model, e.request_bytes)
        }
        RunEvent::ModelAnswered(e) => format_model_answer(e),
        RunEvent::ModelFailed(e) => format!("{}: {}", e.error, e.message),
        RunEvent::ToolRequested(e) => format!("{} {}", e.call, e.tool),
        RunEvent::ToolFinished(e) => format_tool_finished(e),
        RunEvent::SnapshotTaken(e) => {
            let paths: Vec<String> = e.changes.iter().map(|change| change.path.to_string()).collect();
            format!("{} changed: {}", paths.len(), paths.join(", "))
        }
        RunEvent::GateRequested(e) if !e.step.is_check() => format!("fix {}", e.gate.name),
        RunEvent::GateRequested(e) => format!("{}: {}", e.gate.name, e.gate.command),
        RunEvent::GateFinished(e) => {
            let why = e.facts.not_run.as_ref().map_or_else(String::new, |why| format!(" ({})", why.reason));
            format!("{}{why} in {}", e.outcome_label(), format_duration(e.duration_ms))
        }
        RunEvent::Told(e) => format!("{}: {}", e.by, first_line(&e.text)),
        RunEvent::CancelRequested(e) => format!("{} {}", e.by, e.reason),
        RunEvent::PauseRequested(e) => e.by.clone(),
        RunEvent::Unpaused(e) => e.by.clone(),
        RunEvent::PolicyChanged(e) if e.of_task => {
            let rules = e.rules.as_ref().map_or(0, |policy| policy.rules.len());
            format!("{}: {rules} rules replace the task's policy", e.by)
        }
        RunEvent::PolicyChanged(e) => e.policy.hash.to_string(),
        RunEvent::LimitReached(e) => format!("{:?}", e.which).to_lowercase(),
        RunEvent::RunPaused(_) => String::new(),
        RunEvent::RunBlocked(e) => first_line(&e.question),
        RunEvent::BlockerAnswered(e) => format!("{}: {}", e.by, first_line(&e.text)),
        RunEvent::Delegated(e) => format!("to task {}", e.child.short()),
        RunEvent::ChildAnswered(e) => format!("task {}: {}", e.child.short(), first_line(&e.content)),
        RunEvent::Compacted(e) => format_compaction(e),
        RunEvent::WorkspaceEdited(e) => e.by.clone(),
        RunEvent::RolesPinned(e) => {
            e.roles.iter().map(|role| role.name.as_str()).collect::<Vec<_>>().join(", ")
        }
        RunEvent::RoleBegan(e) => fact_format::format_role(e),
        RunEvent::Concluded(e) => fact_format::format_conclusion(e),
        RunEvent::RunEnded(e) => format_run_end(e),
    }
}

fn format_tool_finished(event: &ToolFinished) -> String {
    let (label, took) = (CallOutcome::from_result(event).label(), format_duration(event.duration_ms));
    let mut text = format!("{} {label} in {took}: {}", event.call, first_line(&event.content));
    if !event.facts.put_back.is_empty() {
        let paths: Vec<String> = event.facts.put_back.iter().map(ToString::to_string).collect();
        text.push_str(&format!("; restored: {}", paths.join(", ")));
    }
    text
}

/// Formats how a run ended and whether the result was verified.
pub(crate) fn format_run_end(end: &RunEnded) -> String {
    match &end.unverified {
        Some(why) => format!("{}, unverified: {}", end.result, why.reason),
        None => end.result.to_string(),
    }
}

/// The label of a tool result's status.
pub(crate) const fn tool_status_label(status: ToolStatus) -> &'static str {
    match status {
        ToolStatus::Ok => "ok",
        ToolStatus::Error => "failed",
        ToolStatus::Refused => "refused",
        ToolStatus::Unknown => "unknown",
    }
}

fn format_model_answer(event: &docket_schema::run::ModelAnswered) -> String {
    let text = event.answer_texts().next().map(first_line);
    let calls: Vec<String> = tool_uses(&event.parts).map(format_tool_call).collect();
    match (text, calls.as_slice()) {
        (Some(text), []) => text,
        (Some(text), calls) => format!("{text} [{}]", calls.join("; ")),
        (None, calls) => format!("[{}]", calls.join("; ")),
    }
}

fn format_task_blocked(event: &TaskBlocked) -> String {
    let run = event.run.short();
    match event.why {
        TaskBlockedReason::Person => format!("run {run}: waits for a person"),
        TaskBlockedReason::Child => format!("run {run}: waits for a child"),
        TaskBlockedReason::Paused => format!("run {run}: paused"),
        TaskBlockedReason::Outage => {
            format!("run {run}: its provider is unavailable; it resumes automatically")
        }
        TaskBlockedReason::Provider => format!("run {run}: its provider needs a person's attention"),
        TaskBlockedReason::Budget => format!("run {run}: its batch budget is used up"),
        TaskBlockedReason::WorkerFault => {
            format!("run {run}: waits for a person: {}", event.message.as_deref().unwrap_or_default())
        }
    }
}

fn format_task_event(event: &TaskEvent) -> String {
    match event {
        TaskEvent::TaskSubmitted(e) => format!("{} ({})", e.spec.title, e.by),
        TaskEvent::TaskMadeAvailable(_) | TaskEvent::TaskUnblocked(_) => String::new(),
        TaskEvent::TaskLeased(e) => {
            format!("epoch {}: run {} by {} {}", e.epoch, e.run.short(), e.worker_name, e.worker.short())
        }
        TaskEvent::TaskReleased(e) => match &e.message {
            None => format!("epoch {}: {:?}", e.epoch, e.why).to_lowercase(),
            Some(message) => format!("epoch {}: worker fault: {message}", e.epoch),
        },
        TaskEvent::TaskLeaseExpired(e) => format!("epoch {}", e.epoch),
        TaskEvent::TaskRunCrashed(e) => format!("epoch {}: {}", e.epoch, e.how),
        TaskEvent::TaskRunFailed(e) => {
            let next = e.next.map_or_else(String::new, |next| format!(" as run {}", next.short()));
            format!("run {}: {}; again at {}{next}", e.run.short(), e.message, format_time_of_day(e.retry_at))
        }
        TaskEvent::TaskBlocked(e) => format_task_blocked(e),
        TaskEvent::TaskCompleted(e) => format!("by run {}", e.run.short()),
        TaskEvent::TaskCancelled(e) => format!("{} {}", e.by, e.reason),
        TaskEvent::TaskDiscarded(e) => e.message.clone(),
        TaskEvent::TaskRetried(e) => format!("{} {}", e.by, e.reason).trim_end().to_owned(),
        TaskEvent::TaskResumed(e) => format!("run {} continues run {}", e.run.short(), e.parent.short()),
        TaskEvent::TaskReprioritized(e) => e.priority.to_string(),
        TaskEvent::TaskPaused(e) => e.by.clone(),
        TaskEvent::TaskDependencyEnded(e) => format!("task {} is {}", e.on.short(), e.state),
        TaskEvent::TaskDelegated(e) => format!("run {} delegated task {}", e.run.short(), e.child.short()),
        TaskEvent::TaskDeliveryClaimed(e) => format!("run {} by {}", e.run.short(), e.deliverer),
        TaskEvent::TaskNeededNoDelivery(e) => format!("run {} changed nothing", e.run.short()),
        TaskEvent::TaskDeliveryRequested(e) => {
            format!("run {}: branch {} to {}", e.run.short(), e.branch, e.remote)
        }
        TaskEvent::TaskDelivered(e) => {
            let place = e.remote.as_ref().map_or_else(String::new, |remote| format!(" of {remote}"));
            format!("run {}: branch {}{place} is at {}", e.run.short(), e.branch, e.commit)
        }
        TaskEvent::TaskDeliveryBlocked(e) => format!("run {}: {}", e.run.short(), e.message),
        TaskEvent::TaskDeliveryHookRan(e) => match e.exit {
            Some(exit) => format!("exit {exit}"),
            None => e.output.clone(),
        },
        TaskEvent::TaskAccepted(e) => format!("run {} by {} {}", e.run.short(), e.by, e.comment),
        TaskEvent::TaskRejected(e) => format!("run {} by {}: {}", e.run.short(), e.by, e.comment),
    }
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        event::Payload,
        ids::{Epoch, EventHash, Position, RunId, Seq, Turn},
    };

    use super::*;

    #[test]
    fn event_is_one_sanitized_line_even_if_undecodable() {
        let event = |kind: &str, payload: &str| Envelope {
            stream: StreamId::Run(RunId(uuid::Uuid::nil())),
            seq: Seq(1),
            position: Position(1),
            recorded_at: Timestamp(1_700_000_000_123_456),
            turn: Turn(1),
            epoch: Epoch(1),
            kind: kind.to_owned(),
            version: 1,
            payload: Payload::from_store(payload.to_owned()),
            prev_hash: EventHash::ZERO,
            hash: EventHash::ZERO,
        };
        let told = event("Told", r#"{"text":{"text":"\u001b[2Jone\ntwo"},"by":"a\nb"}"#);
        assert_eq!(format_event(&told), "Told             a\\nb: \\e[2Jone");
        assert!(format_event(&event("Told", "{}")).contains("has an unexpected format"));
        assert!(format_event(&event("Nope\n", "{}")).starts_with("Nope\\n"));
        assert_eq!(format_time_of_day(told.recorded_at), "22:13:20.123");
    }
}

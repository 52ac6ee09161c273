//! Watches the demo's log: prints what happens and kills two processes in mid-turn.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{RunId, Seq, TaskId},
    message::CallId,
    run::RunEvent,
    task::TaskBlockedReason,
};
use docket_worker::client::CoordinatorClient;
use serde::Serialize;

use super::{
    print_line,
    setup::{self, DemoTask, DemoWorkers},
};
use crate::{
    context::CliContext,
    output::{
        display::{self, TextStyle},
        error::{CliError, CliResult, ExitKind},
    },
};

/// Number of kills: one run process, then one supervisor.
pub(super) const KILL_COUNT: usize = 2;
/// How often the log is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(4);

/// A process that was killed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct KilledProcess {
    /// `run process` or `supervisor`.
    pub(super) what: &'static str,
    pub(super) pid: i32,
    pub(super) task: TaskId,
    pub(super) run: RunId,
    pub(super) turn: u32,
    /// The call that had an intent in the log and no result.
    pub(super) call: String,
}

/// The known state of one run.
#[derive(Default)]
struct WatchedRun {
    after: Seq,
    open: BTreeMap<CallId, (u32, String)>,
}

/// Prints and kills until every task has ended.
pub(super) async fn watch_until_ended(
    cx: &CliContext,
    client: &CoordinatorClient,
    tasks: &[DemoTask],
    workers: &mut DemoWorkers,
) -> CliResult<Vec<KilledProcess>> {
    let mut runs: BTreeMap<RunId, WatchedRun> = BTreeMap::new();
    let mut ended: BTreeSet<TaskId> = BTreeSet::new();
    let mut kills: Vec<KilledProcess> = Vec::new();
    while ended.len() < tasks.len() {
        for task in tasks.iter().filter(|task| !ended.contains(&task.id)).cloned().collect::<Vec<_>>() {
            let record = client.get_task(task.id).await?.task;
            if let Some(run) = record.last_run {
                let watched = runs.entry(run).or_default();
                let page = client.list_events(run, watched.after, None).await?;
                for event in &page.events {
                    watched.apply_event(event);
                    print_event(cx, &task, event);
                }
                if let (Some((call, (turn, tool))), Some(worker)) =
                    (watched.open.first_key_value(), record.worker)
                    && kills.len() < KILL_COUNT
                    && !kills.iter().any(|kill| kill.task == task.id)
                    && let Some(name) = setup::worker_name(client, worker).await?
                {
                    let killed = match kills.len() {
                        0 => workers.kill_run_process(&name).map(|pid| ("run process", pid)),
                        _ => workers.kill_worker(&name).map(|pid| ("supervisor", pid)),
                    };
                    if let Some((what, pid)) = killed {
                        let kill = KilledProcess {
                            what,
                            pid,
                            task: task.id,
                            run,
                            turn: *turn,
                            call: call.0.clone(),
                        };
                        let text = format!(
                            "kill -9 {pid}: the {what} of {}, in turn {turn} while {tool} runs",
                            task.sample.name
                        );
                        print_line(cx, &cx.screen.paint(TextStyle::Bad, &display::sanitize_line(&text)));
                        kills.push(kill);
                    }
                }
            }
            if record.blocked_why == Some(TaskBlockedReason::Person) {
                let asked = record.message.as_deref().unwrap_or("it does not say why");
                let message =
                    format!("{} waits for a person, which the demo does not have: {asked}", task.sample.name);
                return Err(CliError::new(ExitKind::Failed, message));
            }
            if record.state.is_ended() {
                ended.insert(task.id);
            }
        }
        // The demo polls several streams, so it cannot wait on a single one.
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Ok(kills)
}

impl WatchedRun {
    fn apply_event(&mut self, event: &Envelope) {
        self.after = event.seq;
        match RunEvent::decode(&event.kind, event.version, event.payload.as_str()) {
            Ok(RunEvent::ToolRequested(intent))
                if ["run_tests", "run_command"].contains(&intent.tool.as_str()) =>
            {
                self.open.insert(intent.call, (event.turn.0, intent.tool));
            }
            Ok(RunEvent::ToolFinished(result)) => drop(self.open.remove(&result.call)),
            Ok(_) | Err(_) => {}
        }
    }
}

fn print_event(cx: &CliContext, task: &DemoTask, event: &Envelope) {
    let (style, text) = match RunEvent::decode(&event.kind, event.version, event.payload.as_str()) {
        Ok(RunEvent::PhaseChanged(changed)) => (TextStyle::Dim, changed.phase.as_str().to_owned()),
        Ok(RunEvent::RunRecovered(_)) => {
            (TextStyle::Warn, "another process continues from the last snapshot".to_owned())
        }
        Ok(RunEvent::RunEnded(end)) => (TextStyle::Good, end.result.to_string()),
        Ok(_) | Err(_) => return,
    };
    let text = format!("{:<14} turn {:<2} {text}", task.sample.name, event.turn);
    print_line(cx, &cx.screen.paint(style, &display::sanitize_line(&text)));
}

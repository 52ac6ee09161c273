//! The demo's log, watched: what happens is told, and two processes are killed in mid-turn.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{RunId, Seq, TaskId},
    message::CallId,
    run::RunEvent,
    task::TaskBlockedWhy,
};
use docket_worker::client::Client;
use serde::Serialize;

use super::{
    say,
    stage::{self, Staged, Workers},
};
use crate::{
    context::Context,
    output::{
        display::{self, Style},
        fail::{Exit, Failure, Outcome},
    },
};

/// How many processes are killed: one run process, then one supervisor.
pub(super) const KILLS: usize = 2;
/// How often the log is asked for more.
const LOOK: Duration = Duration::from_millis(4);

/// A process that was killed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Kill {
    /// `run process` or `supervisor`.
    pub(super) what: &'static str,
    pub(super) pid: i32,
    pub(super) task: TaskId,
    pub(super) run: RunId,
    pub(super) turn: u32,
    /// The call whose intent stood in the log without a result.
    pub(super) call: String,
}

/// What is known of one run.
#[derive(Default)]
struct Watched {
    after: Seq,
    open: BTreeMap<CallId, (u32, String)>,
}

/// Tells and kills until every task has ended.
pub(super) async fn until_ended(
    cx: &Context,
    client: &Client,
    tasks: &[Staged],
    workers: &mut Workers,
) -> Outcome<Vec<Kill>> {
    let mut runs: BTreeMap<RunId, Watched> = BTreeMap::new();
    let mut ended: BTreeSet<TaskId> = BTreeSet::new();
    let mut kills: Vec<Kill> = Vec::new();
    while ended.len() < tasks.len() {
        for task in tasks.iter().filter(|task| !ended.contains(&task.id)).cloned().collect::<Vec<_>>() {
            let record = client.task(task.id).await?.task;
            if let Some(run) = record.last_run {
                let watched = runs.entry(run).or_default();
                let page = client.events(run, watched.after, None).await?;
                for event in &page.events {
                    watched.take(event);
                    tell(cx, &task, event);
                }
                if let (Some((call, (turn, tool))), Some(worker)) =
                    (watched.open.first_key_value(), record.worker)
                    && kills.len() < KILLS
                    && !kills.iter().any(|kill| kill.task == task.id)
                    && let Some(name) = stage::name_of(client, worker).await?
                {
                    let killed = match kills.len() {
                        0 => workers.kill_run_of(&name).map(|pid| ("run process", pid)),
                        _ => workers.kill_worker(&name).map(|pid| ("supervisor", pid)),
                    };
                    if let Some((what, pid)) = killed {
                        let kill = Kill { what, pid, task: task.id, run, turn: *turn, call: call.0.clone() };
                        let text = format!(
                            "kill -9 {pid}: the {what} of {}, in turn {turn} while {tool} runs",
                            task.sample.name
                        );
                        say(cx, &cx.screen.paint(Style::Bad, &display::line(&text)));
                        kills.push(kill);
                    }
                }
            }
            if record.blocked_why == Some(TaskBlockedWhy::Person) {
                let asked = record.message.as_deref().unwrap_or("it does not say what for");
                let message =
                    format!("{} waits for a person, and the demo has none: {asked}", task.sample.name);
                return Err(Failure::new(Exit::Failed, message));
            }
            if record.state.is_ended() {
                ended.insert(task.id);
            }
        }
        // The demo reads several streams; no one of them can be waited for.
        tokio::time::sleep(LOOK).await;
    }
    Ok(kills)
}

impl Watched {
    fn take(&mut self, event: &Envelope) {
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

fn tell(cx: &Context, task: &Staged, event: &Envelope) {
    let (style, text) = match RunEvent::decode(&event.kind, event.version, event.payload.as_str()) {
        Ok(RunEvent::PhaseChanged(changed)) => (Style::Dim, changed.phase.as_str().to_owned()),
        Ok(RunEvent::RunRecovered(_)) => {
            (Style::Warn, "another process goes on, from the last snapshot".to_owned())
        }
        Ok(RunEvent::RunEnded(end)) => (Style::Good, end.result.to_string()),
        Ok(_) | Err(_) => return,
    };
    let text = format!("{:<14} turn {:<2} {text}", task.sample.name, event.turn);
    say(cx, &cx.screen.paint(style, &display::line(&text)));
}

//! `docket follow`: shows a run live.

use std::{collections::HashMap, time::Duration};

use docket_schema::{
    content::Content,
    event::TypedEvent as _,
    history::CallOutcome,
    ids::{RunId, Seq, StreamId},
    message::CallId,
    run::{GateFinished, RunEnded, RunEvent, RunOutcome, tool_uses},
};
use futures_util::StreamExt as _;

use crate::{
    connect::{
        coordinator::Coordinator,
        resolve::{self, ResolvedId},
    },
    context::CliContext,
    output::{
        display::{self, TextStyle},
        error::{CliError, CliResult, ExitKind},
        event_format, fact_format,
    },
};

/// Poll interval for a task that has no run yet.
const RUN_POLL: Duration = Duration::from_millis(100);
/// Maximum number of lines shown of a question; `docket show` prints all of it.
const QUESTION_LINES_MAX: usize = 20;

/// Command-line arguments of `docket follow`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Shows past events and then new ones until the run ends. For a task without a run, waits for its
first run. Ctrl-C stops following, not the run.

The exit code is 0 if the run succeeded or you stopped following, and 1 if it failed or was
cancelled. If the run is blocked, the command keeps waiting.

Examples:
  docket follow 3f9c01ab
  docket follow 3f9c01ab --json | jq -r 'select(.kind == \"PhaseChanged\") | .payload.phase'"
)]
pub(crate) struct FollowArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
}

/// Follows the run. Exits with 0 if it succeeded.
pub(crate) async fn run_follow(cx: CliContext, args: FollowArgs) -> CliResult {
    let access = Coordinator::connect_for_reading(&cx, &args.id).await?;
    let run = wait_for_run(&access, &args.id).await?;
    if access.is_local() && access.client.get_run(run).await?.ended_at.is_none() {
        let message = "no coordinator is running for this home, so the run makes no progress; start one with `docket up`";
        return Err(CliError::new(
            ExitKind::Refused,
            format!("{message}, or use `docket logs` to see what was recorded"),
        ));
    }
    let mut stream = std::pin::pin!(access.client.follow_run(run, Seq(0)));
    let mut exit = ExitKind::Failed;
    let mut checks = CheckNames::default();
    loop {
        let event = tokio::select! {
            event = stream.next() => event,
            _ = tokio::signal::ctrl_c() => {
                exit = ExitKind::Ok;
                break;
            }
        };
        let Some(event) = event else { break };
        let event = event?;
        if cx.is_json() {
            display::print_json(&event);
        } else {
            print_event(&cx, &event, &mut checks);
        }
        if let Ok(RunEvent::RunEnded(end)) =
            RunEvent::decode(&event.kind, event.version, event.payload.as_str())
        {
            exit = if end.result == RunOutcome::Succeeded { ExitKind::Ok } else { ExitKind::Failed };
        }
    }
    Ok(exit)
}

/// Returns the requested run. For a task that waits for a worker, waits for its first run.
async fn wait_for_run(access: &Coordinator, id: &str) -> CliResult<RunId> {
    let mut told = false;
    while let ResolvedId::Task(task) = resolve::resolve_id(&access.client, id).await? {
        let task = access.client.get_task(task).await?.task;
        // Without a coordinator no run will start, and a task that has ended gets no new run.
        if access.is_local() || task.state.is_ended() || task.last_run.is_some() {
            break;
        }
        if !told {
            let (id, state) = (task.id.short(), task.state);
            display::print_note(&format!(
                "task {id} is {state}; `docket why {id}` shows what it is waiting for"
            ));
            told = true;
        }
        tokio::time::sleep(RUN_POLL).await;
    }
    resolve::resolve_run(&access.client, id).await
}

fn print_event(cx: &CliContext, event: &docket_schema::event::Envelope, checks: &mut CheckNames) {
    let Ok(typed) = RunEvent::decode(&event.kind, event.version, event.payload.as_str()) else {
        display::print_line(&event_format::format_event(event));
        return;
    };
    let (style, text) = describe_event(&typed, checks);
    if text.is_empty() {
        return;
    }
    let place = format!("{} turn {:<3}", event_format::format_time_of_day(event.recorded_at), event.turn);
    let room = cx.screen.columns().saturating_sub(place.len() + 1);
    let text = display::truncate_to_width(&display::sanitize_line(&text), room);
    let text = style.map_or_else(|| text.clone(), |style| cx.screen.paint(style, &text));
    display::print_line(&format!("{} {text}", cx.screen.paint(TextStyle::Dim, &place)));
    if let (RunEvent::RunBlocked(asked), StreamId::Run(run)) = (&typed, &event.stream) {
        print_question(&asked.question, *run);
    }
}

/// Prints the rest of a question after its first line, and how to answer it.
fn print_question(question: &Content, run: RunId) {
    let text = question.text_or_size();
    if text.trim().lines().nth(1).is_some() {
        let excerpt = display::render_excerpt(text.trim(), QUESTION_LINES_MAX, "  ", usize::MAX);
        display::print_line(excerpt.trim_end());
    }
    display::print_line(&format!("  answer with `docket answer {} TEXT`", run.short()));
}

/// Names of the requested final checks by call, for results that arrive later.
#[derive(Debug, Default)]
pub(crate) struct CheckNames(HashMap<CallId, String>);

impl CheckNames {
    fn add(&mut self, event: &RunEvent) {
        if let RunEvent::GateRequested(e) = event {
            self.0.insert(e.call.clone(), e.gate.name.clone());
        }
    }

    /// Describes the check of a call, by name if the call was seen.
    fn describe_check(&self, call: &CallId) -> String {
        self.0
            .get(call)
            .map_or_else(|| "the final check".to_owned(), |name| format!("the final check `{name}`"))
    }
}

/// Formats an event, or returns nothing for events that only repeat others. Records check names in
/// `checks`.
pub(crate) fn describe_event(event: &RunEvent, checks: &mut CheckNames) -> (Option<TextStyle>, String) {
    checks.add(event);
    match event {
        RunEvent::RunStarted(e) => (Some(TextStyle::Dim), format!("started: {} with {}", e.engine, e.models)),
        RunEvent::RunRecovered(_) => {
            (Some(TextStyle::Warn), "another process continues where the last one stopped".to_owned())
        }
        RunEvent::Forked(e) => {
            (Some(TextStyle::Dim), format!("continues from run {}, turn {}", e.parent.short(), e.turn))
        }
        RunEvent::PhaseChanged(e) => (Some(TextStyle::Bold), e.phase.as_str().to_owned()),
        RunEvent::ModelAnswered(e) => {
            let text = e.answer_texts().next().map(event_format::first_line);
            let calls: Vec<String> = tool_uses(&e.parts).map(event_format::format_tool_call).collect();
            let calls = if calls.is_empty() { String::new() } else { format!(" -> {}", calls.join(", ")) };
            (None, format!("{}{calls}", text.unwrap_or_default()).trim().to_owned())
        }
        RunEvent::ModelFailed(e) => (Some(TextStyle::Warn), format!("model call failed: {}", e.message)),
        RunEvent::ToolFinished(e) => match CallOutcome::from_result(e) {
            outcome if outcome.is_ok() => (None, String::new()),
            outcome => (
                Some(TextStyle::Warn),
                format!("   {}: {}", outcome.label(), event_format::first_line(&e.content)),
            ),
        },
        RunEvent::SnapshotTaken(e) if !e.changes.is_empty() => {
            let paths: Vec<String> = e.changes.iter().map(|change| change.path.to_string()).collect();
            (Some(TextStyle::Dim), format!("   changed {}", paths.join(", ")))
        }
        RunEvent::GateFinished(e) => describe_check_result(e, &checks.describe_check(&e.call)),
        RunEvent::Told(e) => {
            (Some(TextStyle::Bold), format!("{} says: {}", e.by, event_format::first_line(&e.text)))
        }
        RunEvent::RunBlocked(e) => {
            (Some(TextStyle::Warn), format!("blocked, asking: {}", event_format::first_line(&e.question)))
        }
        RunEvent::BlockerAnswered(e) => {
            let words = event_format::first_line(&e.text);
            let said = if words.is_empty() { "resumed it".to_owned() } else { format!("answered: {words}") };
            (Some(TextStyle::Bold), format!("{} {said}", e.by))
        }
        RunEvent::RunEnded(e) => (Some(end_style(e)), event_format::format_run_end(e)),
        RunEvent::LimitReached(e) => {
            (Some(TextStyle::Warn), format!("limit reached: {:?}", e.which).to_lowercase())
        }
        RunEvent::CancelRequested(_) => (Some(TextStyle::Warn), "cancel requested".to_owned()),
        RunEvent::PauseRequested(e) => (Some(TextStyle::Warn), format!("pause requested by {}", e.by)),
        RunEvent::RunPaused(_) => {
            (Some(TextStyle::Warn), "paused; resume it with `docket unpause`".to_owned())
        }
        RunEvent::Unpaused(e) => (Some(TextStyle::Bold), format!("unpaused by {}", e.by)),
        RunEvent::RoleBegan(e) => (Some(TextStyle::Bold), fact_format::format_role(e)),
        RunEvent::Concluded(e) => (Some(TextStyle::Dim), format!("   {}", fact_format::format_conclusion(e))),
        RunEvent::Compacted(e) => {
            (Some(TextStyle::Dim), format!("history compacted: {}", event_format::format_compaction(e)))
        }
        RunEvent::SetupFinished(e) if e.exit == Some(0) => {
            (Some(TextStyle::Dim), format!("setup done: {}", e.command))
        }
        RunEvent::BaseChecked(e) => {
            let why = e.facts.not_run.as_ref().map_or_else(String::new, |why| format!(": {}", why.reason));
            (
                Some(TextStyle::Dim),
                format!("before the run: check {} {}{why}", e.gate.name, e.outcome_label()),
            )
        }
        RunEvent::SetupFinished(e) => (Some(TextStyle::Warn), format!("setup failed: {}", e.command)),
        // A retry may go to another model.
        RunEvent::ModelRequested(e) if e.attempt > 1 => {
            (Some(TextStyle::Dim), format!("   calling {}, attempt {}", e.model, e.attempt))
        }
        _ => (None, String::new()),
    }
}

const fn end_style(end: &RunEnded) -> TextStyle {
    match (&end.result, &end.unverified) {
        (RunOutcome::Succeeded, None) => TextStyle::Good,
        (RunOutcome::Succeeded, Some(_)) => TextStyle::Warn,
        (RunOutcome::Failed { .. } | RunOutcome::Cancelled | RunOutcome::Superseded, _) => TextStyle::Bad,
    }
}

/// Formats the result of a final check or of its automatic fix.
fn describe_check_result(e: &GateFinished, check: &str) -> (Option<TextStyle>, String) {
    let (style, text) = match (e.step.is_check(), e.passed) {
        (false, true) => (TextStyle::Dim, "a failed check was fixed automatically".to_owned()),
        (false, false) => (TextStyle::Dim, "a failed check could not be fixed automatically".to_owned()),
        (true, _) if e.is_not_installed() => {
            (TextStyle::Warn, format!("{check} could not run: {}", event_format::first_line(&e.content)))
        }
        (true, true) if !e.facts.removed_tests.is_empty() => {
            let paths: Vec<String> = e.facts.removed_tests.iter().map(ToString::to_string).collect();
            (TextStyle::Warn, format!("{check} passed; the run removed tests in {}", paths.join(", ")))
        }
        (true, true) => (TextStyle::Good, format!("{check} passed")),
        (true, false) => {
            let text = match &e.facts.not_run {
                Some(why) if why.partly => format!("part of {check} did not run: {}", why.reason),
                Some(why) => format!("{check} did not run: {}", why.reason),
                None => format!("{check} failed"),
            };
            (TextStyle::Warn, text)
        }
    };
    (Some(style), format!("   {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_is_named_once_its_call_was_seen() {
        let mut checks = CheckNames::default();
        let (seen, unseen) = (CallId("g1-0".to_owned()), CallId("g1-1".to_owned()));
        checks.0.insert(seen.clone(), "tests".to_owned());
        assert_eq!(checks.describe_check(&seen), "the final check `tests`");
        assert_eq!(checks.describe_check(&unseen), "the final check");
    }
}

//! `docket follow`: a run as it goes.

use std::{collections::HashMap, time::Duration};

use docket_schema::{
    content::Content,
    event::TypedEvent as _,
    history::CallOutcome,
    ids::{RunId, Seq, StreamId},
    message::CallId,
    run::{GateFinished, RunEnded, RunEvent, RunOutcome, calls_of},
};
use futures_util::StreamExt as _;

use crate::{
    connect::{
        access::Access,
        resolve::{self, Named},
    },
    context::Context,
    output::{
        display::{self, Style},
        events, facts,
        fail::{Exit, Failure, Outcome},
    },
};

/// How often a task is looked at that has no run yet.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of a question that are shown; `docket show` has more.
const QUESTION_LINES_MAX: usize = 20;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Shows what has happened and then what happens, until the run ends. Of a task that waits for a worker the
first run is waited for. Ctrl-C ends the watching, not the run.

Ends with 0 where the run succeeded or Ctrl-C ended the watching, with 1 where it failed or was cancelled. One that is
blocked is waited for.

Examples:
  docket follow 3f9c01ab
  docket follow 3f9c01ab --json | jq -r 'select(.kind == \"PhaseChanged\") | .payload.phase'"
)]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
}

/// Follows it. Ends with 0 where the run succeeded.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::to_read(&cx, &args.id).await?;
    let run = awaited(&access, &args.id).await?;
    if access.is_alone() && access.client.run(run).await?.ended_at.is_none() {
        let message = "nobody serves this home, so the run does not go on; `docket up` starts workers";
        return Err(Failure::new(Exit::Refused, format!("{message}, `docket logs` shows what there is")));
    }
    let mut stream = std::pin::pin!(access.client.follow(run, Seq(0)));
    let mut exit = Exit::Failed;
    let mut checks = Checks::default();
    loop {
        let event = tokio::select! {
            event = stream.next() => event,
            _ = tokio::signal::ctrl_c() => {
                exit = Exit::Ok;
                break;
            }
        };
        let Some(event) = event else { break };
        let event = event?;
        if cx.json() {
            display::say_json(&event);
        } else {
            say(&cx, &event, &mut checks);
        }
        if let Ok(RunEvent::RunEnded(end)) =
            RunEvent::decode(&event.kind, event.version, event.payload.as_str())
        {
            exit = if end.result == RunOutcome::Succeeded { Exit::Ok } else { Exit::Failed };
        }
    }
    Ok(exit)
}

/// The run that is meant; of a task that waits for a worker its first one, once there is one.
async fn awaited(access: &Access, id: &str) -> Outcome<RunId> {
    let mut told = false;
    while let Named::Task(task) = resolve::named(&access.client, id).await? {
        let task = access.client.task(task).await?.task;
        // Where nobody serves none will come, and what has ended gets none.
        if access.is_alone() || task.state.is_ended() || task.last_run.is_some() {
            break;
        }
        if !told {
            let (id, state) = (task.id.short(), task.state);
            display::note(&format!("task {id} is {state}; `docket why {id}` tells what it waits for"));
            told = true;
        }
        tokio::time::sleep(LOOK).await;
    }
    resolve::run(&access.client, id).await
}

fn say(cx: &Context, event: &docket_schema::event::Envelope, checks: &mut Checks) {
    let Ok(typed) = RunEvent::decode(&event.kind, event.version, event.payload.as_str()) else {
        display::say(&events::summary(event));
        return;
    };
    let (style, text) = shown(&typed, checks);
    if text.is_empty() {
        return;
    }
    let place = format!("{} turn {:<3}", events::clock(event.recorded_at), event.turn);
    let room = cx.screen.columns().saturating_sub(place.len() + 1);
    let text = display::fit(&display::line(&text), room);
    let text = style.map_or_else(|| text.clone(), |style| cx.screen.paint(style, &text));
    display::say(&format!("{} {text}", cx.screen.paint(Style::Dim, &place)));
    if let (RunEvent::RunBlocked(asked), StreamId::Run(run)) = (&typed, &event.stream) {
        say_question(&asked.question, *run);
    }
}

/// The rest of a question that its first line began, and how it is answered.
fn say_question(question: &Content, run: RunId) {
    let text = question.text_or_size();
    if text.trim().lines().nth(1).is_some() {
        let excerpt = display::excerpt(text.trim(), QUESTION_LINES_MAX, "  ", usize::MAX);
        display::say(excerpt.trim_end());
    }
    display::say(&format!("  `docket answer {} TEXT` answers it", run.short()));
}

/// Names of the final checks that were asked for, by the calls whose results come later.
#[derive(Debug, Default)]
pub(crate) struct Checks(HashMap<CallId, String>);

impl Checks {
    fn add(&mut self, event: &RunEvent) {
        if let RunEvent::GateRequested(e) = event {
            self.0.insert(e.call.clone(), e.gate.name.clone());
        }
    }

    /// The check of a call, with its name where the call was seen.
    fn named(&self, call: &CallId) -> String {
        self.0
            .get(call)
            .map_or_else(|| "the final check".to_owned(), |name| format!("the final check `{name}`"))
    }
}

/// What is shown of an event, and how; nothing for those that only repeat what others say. `checks` takes note of it.
pub(crate) fn shown(event: &RunEvent, checks: &mut Checks) -> (Option<Style>, String) {
    checks.add(event);
    match event {
        RunEvent::RunStarted(e) => (Some(Style::Dim), format!("started: {} with {}", e.engine, e.models)),
        RunEvent::RunRecovered(_) => {
            (Some(Style::Warn), "another process goes on where the last one died".to_owned())
        }
        RunEvent::Forked(e) => {
            (Some(Style::Dim), format!("goes on from run {}, turn {}", e.parent.short(), e.turn))
        }
        RunEvent::PhaseChanged(e) => (Some(Style::Bold), e.phase.as_str().to_owned()),
        RunEvent::ModelAnswered(e) => {
            let text = e.texts().next().map(events::first_line);
            let calls: Vec<String> = calls_of(&e.parts).map(events::call).collect();
            let calls = if calls.is_empty() { String::new() } else { format!(" -> {}", calls.join(", ")) };
            (None, format!("{}{calls}", text.unwrap_or_default()).trim().to_owned())
        }
        RunEvent::ModelFailed(e) => (Some(Style::Warn), format!("the model failed: {}", e.message)),
        RunEvent::ToolFinished(e) => match CallOutcome::from_result(e) {
            outcome if outcome.is_ok() => (None, String::new()),
            outcome => {
                (Some(Style::Warn), format!("   {}: {}", outcome.label(), events::first_line(&e.content)))
            }
        },
        RunEvent::SnapshotTaken(e) if !e.changes.is_empty() => {
            let paths: Vec<String> = e.changes.iter().map(|change| change.path.to_string()).collect();
            (Some(Style::Dim), format!("   changed {}", paths.join(", ")))
        }
        RunEvent::GateFinished(e) => check_finished(e, &checks.named(&e.call)),
        RunEvent::Told(e) => (Some(Style::Bold), format!("{} says: {}", e.by, events::first_line(&e.text))),
        RunEvent::RunBlocked(e) => {
            (Some(Style::Warn), format!("blocked; it asks: {}", events::first_line(&e.question)))
        }
        RunEvent::BlockerAnswered(e) => {
            let words = events::first_line(&e.text);
            let said =
                if words.is_empty() { "lets it go on".to_owned() } else { format!("answers: {words}") };
            (Some(Style::Bold), format!("{} {said}", e.by))
        }
        RunEvent::RunEnded(e) => (Some(end_style(e)), events::ended(e)),
        RunEvent::LimitReached(e) => {
            (Some(Style::Warn), format!("limit reached: {:?}", e.which).to_lowercase())
        }
        RunEvent::CancelRequested(_) => (Some(Style::Warn), "somebody wants it cancelled".to_owned()),
        RunEvent::PauseRequested(e) => (Some(Style::Warn), format!("{} wants it paused", e.by)),
        RunEvent::RunPaused(_) => (Some(Style::Warn), "paused; `docket unpause` lets it go on".to_owned()),
        RunEvent::Unpaused(e) => (Some(Style::Bold), format!("{} lets it go on", e.by)),
        RunEvent::RoleBegan(e) => (Some(Style::Bold), facts::role(e)),
        RunEvent::Concluded(e) => (Some(Style::Dim), format!("   {}", facts::words(e))),
        RunEvent::Compacted(e) => {
            (Some(Style::Dim), format!("history made shorter: {}", events::compacted(e)))
        }
        RunEvent::SetupFinished(e) if e.exit == Some(0) => {
            (Some(Style::Dim), format!("ready: {}", e.command))
        }
        RunEvent::BaseChecked(e) => {
            let why = e.facts.not_run.as_ref().map_or_else(String::new, |why| format!(": {}", why.reason));
            (Some(Style::Dim), format!("before the work: check {} {}{why}", e.gate.name, e.came_to()))
        }
        RunEvent::SetupFinished(e) => (Some(Style::Warn), format!("the setup failed: {}", e.command)),
        // Who is asked then may be another.
        RunEvent::ModelRequested(e) if e.attempt > 1 => {
            (Some(Style::Dim), format!("   asks {}, attempt {}", e.model, e.attempt))
        }
        _ => (None, String::new()),
    }
}

const fn end_style(end: &RunEnded) -> Style {
    match (&end.result, &end.unverified) {
        (RunOutcome::Succeeded, None) => Style::Good,
        (RunOutcome::Succeeded, Some(_)) => Style::Warn,
        (RunOutcome::Failed { .. } | RunOutcome::Cancelled | RunOutcome::Superseded, _) => Style::Bad,
    }
}

/// What is shown of a final check, or of the fix of one.
fn check_finished(e: &GateFinished, check: &str) -> (Option<Style>, String) {
    let (style, text) = match (e.step.is_check(), e.passed) {
        (false, true) => (Style::Dim, "a failed check was mended without the model".to_owned()),
        (false, false) => {
            (Style::Dim, "nothing of a failed check could be mended without the model".to_owned())
        }
        (true, _) if e.is_absent() => {
            (Style::Warn, format!("{check} could not run: {}", events::first_line(&e.content)))
        }
        (true, true) if !e.facts.removed_tests.is_empty() => {
            let paths: Vec<String> = e.facts.removed_tests.iter().map(ToString::to_string).collect();
            (Style::Warn, format!("{check} passed; the run removed the tests of {}", paths.join(", ")))
        }
        (true, true) => (Style::Good, format!("{check} passed")),
        (true, false) => {
            let text = match &e.facts.not_run {
                Some(why) if why.partly => format!("a part of {check} did not run: {}", why.reason),
                Some(why) => format!("{check} did not run: {}", why.reason),
                None => format!("{check} failed"),
            };
            (Style::Warn, text)
        }
    };
    (Some(style), format!("   {text}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_has_its_name_where_its_call_was_seen() {
        let mut checks = Checks::default();
        let (seen, unseen) = (CallId("g1-0".to_owned()), CallId("g1-1".to_owned()));
        checks.0.insert(seen.clone(), "tests".to_owned());
        assert_eq!(checks.named(&seen), "the final check `tests`");
        assert_eq!(checks.named(&unseen), "the final check");
    }
}

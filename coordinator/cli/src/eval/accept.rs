//! What is looked at once a run has ended: acceptance commands, files and artifacts that must be there, paths that may
//! change or must be as they were, files that nobody was to read, and rules that must have spoken. What a run gave away
//! is part of it: what its children were shown or denied was shown or denied in it.

use std::time::Duration;

use docket_sandbox::{CommandOutput, CommandSpec, Ended, Sandbox};
use docket_schema::{
    eval::{EvalCheck, EvalCheckKind},
    event::{Envelope, TypedEvent as _},
    ids::RunId,
    run::{RunEvent, RunState, Verdict},
};
use docket_worker::{
    client::{Client, Lineage},
    policy::PathGlob,
};

use super::{matrix::Try, suite::Task, unread};
use crate::{
    context::Context,
    output::fail::{Exit, FailWith as _, Outcome},
    samples::clean::Clean,
};

/// Characters of what a command said that a report keeps: its end says why.
const SAID_CHARS_MAX: usize = 2000;
/// Paths that are named where several are not as they were.
const NAMED_MAX: usize = 5;

/// All checks of a try whose runs, with those of its children, these are; none where its run ended before it had begun,
/// for then there is nothing to look at.
pub(super) async fn checked(
    cx: &Context,
    client: &Client,
    one: &Try<'_>,
    runs: &[RunId],
    state: &RunState,
) -> Outcome<Option<Vec<EvalCheck>>> {
    let (task, traces) = (one.task, one.task.traces(&one.engine));
    let Some(pins) = state.pins.as_deref() else { return Ok(None) };
    let mut events = Vec::new();
    for run in runs {
        events.extend(typed(&client.all_events(*run, Lineage::Own).await?)?);
    }
    let mut checks: Vec<EvalCheck> = task.changes.iter().map(|globs| changes(globs, state)).collect();
    checks.extend(task.unchanged.iter().map(|glob| unchanged(glob, state)));
    checks.extend(traces.denied.iter().map(|rule| denied(rule, &events)));
    checks.extend(traces.artifacts.iter().map(|name| {
        let passed = state.work.artifacts.contains_key(name);
        check(EvalCheckKind::Artifact, name, if passed { None } else { Some("the run left none".to_owned()) })
    }));
    if task.unread.is_empty() && task.files.is_empty() && task.accept.is_empty() {
        return Ok(Some(checks));
    }
    let mut clean = Box::pin(Clean::of_base(cx, client, pins)).await?;
    if !task.unread.is_empty() {
        let shown = unread::shown(client, &events).await?;
        checks.extend(task.unread.iter().map(|glob| {
            let said = unread::leaked(&clean.root(), glob, &task.unread, &shown, &task.text);
            check(EvalCheckKind::Unread, glob.as_str(), said)
        }));
    }
    Box::pin(clean.go_to_result(client, pins, state)).await?;
    checks.extend(task.files.iter().map(|path| {
        let said = (!clean.has(path)).then(|| "it is not there".to_owned());
        check(EvalCheckKind::File, &path.to_string(), said)
    }));
    if let Some(files) = &task.accept_files {
        let failed = || format!("cannot lay the files of {} over the result", task.name);
        files.lay(&clean.root()).fail_with(Exit::Failed, failed)?;
    }
    if !task.accept.is_empty() {
        checks.extend(commands(&clean.sandbox(cx).await?, task).await?);
    }
    Ok(Some(checks))
}

/// Events of this build; what it cannot read is a broken log, not a run that did nothing.
fn typed(events: &[Envelope]) -> Outcome<Vec<RunEvent>> {
    let one = |event: &Envelope| RunEvent::decode(&event.kind, event.version, event.payload.as_str());
    events.iter().map(one).collect::<Result<_, _>>().fail_as(Exit::Verification)
}

fn check(what: EvalCheckKind, name: &str, said: Option<String>) -> EvalCheck {
    EvalCheck { what, name: name.to_owned(), passed: said.is_none(), said, duration_ms: None }
}

fn unchanged(glob: &PathGlob, state: &RunState) -> EvalCheck {
    let changed = changed(state, |path| glob.means(path));
    check(EvalCheckKind::Unchanged, glob.as_str(), changed.map(|named| format!("changed: {named}")))
}

fn changes(globs: &[PathGlob], state: &RunState) -> EvalCheck {
    let beside = changed(state, |path| !globs.iter().any(|glob| glob.means(path)));
    let named: Vec<&str> = globs.iter().map(PathGlob::as_str).collect();
    let name = if named.is_empty() { "nothing".to_owned() } else { named.join(", ") };
    check(EvalCheckKind::Changes, &name, beside.map(|named| format!("changed beside that: {named}")))
}

/// Names of paths that are not as they were, of those that are meant; none where there are none.
fn changed(state: &RunState, is_meant: impl Fn(&str) -> bool) -> Option<String> {
    let all = state.overlay.keys().map(ToString::to_string);
    let changed: Vec<String> = all.filter(|path| is_meant(path)).collect();
    let named = changed.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match changed.len().saturating_sub(NAMED_MAX) {
        _ if changed.is_empty() => None,
        0 => Some(named),
        more => Some(format!("{named} and {more} more")),
    }
}

fn denied(rule: &str, events: &[RunEvent]) -> EvalCheck {
    let spoke = |event: &RunEvent| {
        let RunEvent::ToolRequested(asked) = event else { return false };
        matches!(&asked.policy, Verdict::Deny { rule: by, .. } if by == rule)
    };
    let said = (!events.iter().any(spoke)).then(|| "it denied no call".to_owned());
    check(EvalCheckKind::Denied, rule, said)
}

/// Setup, then the acceptance commands, each whatever became of those before it. Without the network: what a result is
/// worth must not hang on what happens to answer.
async fn commands(sandbox: &Sandbox, task: &Task) -> Outcome<Vec<EvalCheck>> {
    let mut checks = Vec::with_capacity(task.accept.len());
    let limit = Duration::from_millis(task.accept_timeout_ms);
    for line in &task.setup {
        let (output, said) = ran(sandbox, line, limit).await?;
        if said.is_some() {
            let duration_ms = Some(output.duration_ms);
            // Nothing that follows could be judged.
            return Ok(vec![EvalCheck { duration_ms, ..check(EvalCheckKind::Command, line, said) }]);
        }
    }
    for line in &task.accept {
        let (output, said) = ran(sandbox, line, limit).await?;
        let duration_ms = Some(output.duration_ms);
        checks.push(EvalCheck { duration_ms, ..check(EvalCheckKind::Command, line, said) });
    }
    Ok(checks)
}

async fn ran(sandbox: &Sandbox, line: &str, limit: Duration) -> Outcome<(CommandOutput, Option<String>)> {
    let spec = CommandSpec { timeout: limit, network: None, ..CommandSpec::shell(line) };
    let output = sandbox.run(spec).await.fail_with(Exit::Failed, || format!("cannot run `{line}`"))?;
    let how = match &output.ended {
        Ended::Exit(0) => return Ok((output, None)),
        Ended::Exit(status) => format!("status {status}"),
        Ended::Signal(signal) => format!("ended by signal {signal}"),
        Ended::TimedOut => format!("not done within {} s", limit.as_secs()),
        Ended::Exceeded(_) => "ended for it used too much".to_owned(),
    };
    let words =
        [&output.stdout.bytes, &output.stderr.bytes].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let words = words.join("\n");
    let words = words.trim();
    let skip = words.chars().count().saturating_sub(SAID_CHARS_MAX);
    let tail: String = words.chars().skip(skip).collect();
    let said = if tail.is_empty() { how } else { format!("{how}: {tail}") };
    Ok((output, Some(said)))
}

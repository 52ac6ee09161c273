//! Checks of an ended run: acceptance commands, required files and artifacts, paths that may or must not
//! change, files that must not be read, and policy rules that must have denied a call. Child tasks of the run
//! are included: what they were shown or denied counts for the run.

use std::time::Duration;

use docket_sandbox::{CommandExit, CommandOutput, CommandSpec, Sandbox};
use docket_schema::{
    eval::{EvalCheck, EvalCheckKind},
    event::{Envelope, TypedEvent as _},
    ids::RunId,
    run::{PolicyVerdict, RunEvent, RunState},
};
use docket_worker::{
    client::{CoordinatorClient, HistoryScope},
    policy::PathGlob,
};

use super::{leak_check, matrix::EvalTrial, suite::EvalTask};
use crate::{
    context::CliContext,
    output::error::{CliResult, ExitKind, FailWith as _},
    samples::clean_checkout::CleanCheckout,
};

/// Characters of a command's output kept in a report, from its end, where the cause usually is.
const OUTPUT_CHARS_MAX: usize = 2000;
/// Maximum number of paths listed when several changed.
const PATHS_LISTED_MAX: usize = 5;

/// Runs all checks of a trial for these runs (including those of its children). `None` = the run ended before
/// it started, so there is nothing to check.
pub(super) async fn run_checks(
    cx: &CliContext,
    client: &CoordinatorClient,
    one: &EvalTrial<'_>,
    runs: &[RunId],
    state: &RunState,
) -> CliResult<Option<Vec<EvalCheck>>> {
    let (task, traces) = (one.task, one.task.expected_traces(&one.engine));
    let Some(pins) = state.pins.as_deref() else { return Ok(None) };
    let mut events = Vec::new();
    for run in runs {
        events.extend(decode_events(&client.all_events(*run, HistoryScope::Own).await?)?);
    }
    let mut checks: Vec<EvalCheck> =
        task.allowed_changes.iter().map(|globs| check_changes(globs, state)).collect();
    checks.extend(task.must_not_change.iter().map(|glob| check_unchanged(glob, state)));
    checks.extend(traces.denied.iter().map(|rule| check_denied(rule, &events)));
    checks.extend(traces.artifacts.iter().map(|name| {
        let passed = state.engine_state.artifacts.contains_key(name);
        build_check(
            EvalCheckKind::Artifact,
            name,
            if passed { None } else { Some("the run produced none".to_owned()) },
        )
    }));
    if task.must_not_be_read.is_empty() && task.required_files.is_empty() && task.accept.is_empty() {
        return Ok(Some(checks));
    }
    let mut clean = Box::pin(CleanCheckout::from_base(cx, client, pins)).await?;
    if !task.must_not_be_read.is_empty() {
        let shown = leak_check::collect_shown_texts(client, &events).await?;
        checks.extend(task.must_not_be_read.iter().map(|glob| {
            let said =
                leak_check::describe_leak(&clean.root(), glob, &task.must_not_be_read, &shown, &task.text);
            build_check(EvalCheckKind::Unread, glob.as_str(), said)
        }));
    }
    Box::pin(clean.restore_result(client, pins, state)).await?;
    checks.extend(task.required_files.iter().map(|path| {
        let said = (!clean.path_exists(path)).then(|| "it does not exist".to_owned());
        build_check(EvalCheckKind::File, &path.to_string(), said)
    }));
    if let Some(files) = &task.accept_files {
        let failed = || format!("cannot copy the accept files of {} over the result", task.name);
        files.copy_over(&clean.root()).fail_with(ExitKind::Failed, failed)?;
    }
    if !task.accept.is_empty() {
        checks.extend(run_accept_commands(&clean.prepare_sandbox(cx).await?, task).await?);
    }
    Ok(Some(checks))
}

/// Decodes events of this build. An unreadable event is a broken log, not a run that did nothing.
fn decode_events(events: &[Envelope]) -> CliResult<Vec<RunEvent>> {
    let one = |event: &Envelope| RunEvent::decode(&event.kind, event.version, event.payload.as_str());
    events.iter().map(one).collect::<Result<_, _>>().fail_as(ExitKind::Verification)
}

fn build_check(what: EvalCheckKind, name: &str, said: Option<String>) -> EvalCheck {
    EvalCheck { what, name: name.to_owned(), passed: said.is_none(), said, duration_ms: None }
}

fn check_unchanged(glob: &PathGlob, state: &RunState) -> EvalCheck {
    let changed = list_changed_paths(state, |path| glob.matches(path));
    build_check(EvalCheckKind::Unchanged, glob.as_str(), changed.map(|named| format!("changed: {named}")))
}

fn check_changes(globs: &[PathGlob], state: &RunState) -> EvalCheck {
    let beside = list_changed_paths(state, |path| !globs.iter().any(|glob| glob.matches(path)));
    let named: Vec<&str> = globs.iter().map(PathGlob::as_str).collect();
    let name = if named.is_empty() { "nothing".to_owned() } else { named.join(", ") };
    build_check(
        EvalCheckKind::Changes,
        &name,
        beside.map(|named| format!("changed outside of these: {named}")),
    )
}

/// Lists changed paths that match; `None` = no match.
fn list_changed_paths(state: &RunState, is_meant: impl Fn(&str) -> bool) -> Option<String> {
    let all = state.overlay.keys().map(ToString::to_string);
    let changed: Vec<String> = all.filter(|path| is_meant(path)).collect();
    let named = changed.iter().take(PATHS_LISTED_MAX).cloned().collect::<Vec<_>>().join(", ");
    match changed.len().saturating_sub(PATHS_LISTED_MAX) {
        _ if changed.is_empty() => None,
        0 => Some(named),
        more => Some(format!("{named} and {more} more")),
    }
}

fn check_denied(rule: &str, events: &[RunEvent]) -> EvalCheck {
    let spoke = |event: &RunEvent| {
        let RunEvent::ToolRequested(asked) = event else { return false };
        matches!(&asked.policy, PolicyVerdict::Deny { rule: by, .. } if by == rule)
    };
    let said = (!events.iter().any(spoke)).then(|| "the rule denied no call".to_owned());
    build_check(EvalCheckKind::Denied, rule, said)
}

/// Runs setup and then all acceptance commands, each regardless of the others. Without network access: the
/// verdict must not depend on external services.
async fn run_accept_commands(sandbox: &Sandbox, task: &EvalTask) -> CliResult<Vec<EvalCheck>> {
    let mut checks = Vec::with_capacity(task.accept.len());
    let limit = Duration::from_millis(task.accept_timeout_ms);
    for line in &task.setup {
        let (output, said) = run_command(sandbox, line, limit).await?;
        if said.is_some() {
            let duration_ms = Some(output.duration_ms);
            // The checks that follow could not be judged.
            return Ok(vec![EvalCheck { duration_ms, ..build_check(EvalCheckKind::Command, line, said) }]);
        }
    }
    for line in &task.accept {
        let (output, said) = run_command(sandbox, line, limit).await?;
        let duration_ms = Some(output.duration_ms);
        checks.push(EvalCheck { duration_ms, ..build_check(EvalCheckKind::Command, line, said) });
    }
    Ok(checks)
}

async fn run_command(
    sandbox: &Sandbox,
    line: &str,
    limit: Duration,
) -> CliResult<(CommandOutput, Option<String>)> {
    let spec = CommandSpec { timeout: limit, network: None, ..CommandSpec::shell(line) };
    let output = sandbox.run(spec).await.fail_with(ExitKind::Failed, || format!("cannot run `{line}`"))?;
    let how = match &output.exit {
        CommandExit::Exit(0) => return Ok((output, None)),
        CommandExit::Exit(status) => format!("status {status}"),
        CommandExit::Signal(signal) => format!("killed by signal {signal}"),
        CommandExit::TimedOut => format!("did not finish within {} s", limit.as_secs()),
        CommandExit::Exceeded(_) => "killed because it exceeded a resource limit".to_owned(),
    };
    let words =
        [&output.stdout.bytes, &output.stderr.bytes].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let words = words.join("\n");
    let words = words.trim();
    let skip = words.chars().count().saturating_sub(OUTPUT_CHARS_MAX);
    let tail: String = words.chars().skip(skip).collect();
    let said = if tail.is_empty() { how } else { format!("{how}: {tail}") };
    Ok((output, Some(said)))
}

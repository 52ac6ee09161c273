//! Runs the final checks once before a run changes anything: checks that fail then are not its fault. The results are
//! recorded, so that regressions and rework can be computed from the log, tests that failed before are excused at the
//! end, and a check that could not run before is not counted as failed.
//!
//! Only if the run's settings ask for it (`base_checks`), and only before its first turn. Runs on the same tree with
//! the same setup and checks share a result for a day, in a file of the worker's cache as in
//! [`super::project_context`]. Changes that the checks make to the workspace are reverted: the run begins with the
//! tree it was given.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use docket_schema::{
    ids::{DecisionHash, TreeHash, Turn},
    message::CallId,
    run::{
        BaseChecked, CheckFix, GateRequested, GateSpec, GateStep, LinterSpec, RunStage, RunStarted, RunState,
    },
    snapshot::Manifest,
    task::TaskSpec,
};

use crate::run::{
    environment::run_workspace::restore_from_state,
    errors::start_error::StartError,
    log::{blob_cache::BlobCache, journal::Journal, pending_append::PendingAppend},
    tool_calls::{final_checks, redaction::redact_facts, tool_executor::ToolExecutor},
};
use crate::{bootstrap::RunBootstrap, lint};

/// How long other runs may reuse a result: inputs outside the tree, such as a package index, change too.
const CACHE_TTL: Duration = Duration::from_secs(24 * 3600);
/// The check that says nothing about the base: what a task requires does not exist yet.
const REQUIRES_CHECK: &str = "requires";

/// Runs the checks if the run wants them and has none recorded.
///
/// # Errors
/// [`StartError`]: the workspace cannot be restored, or nothing can be recorded.
pub(in crate::run) async fn run_baseline_checks(
    bootstrap: &RunBootstrap,
    journal: &mut Journal,
    material: &BlobCache,
    bench: &mut ToolExecutor,
) -> Result<(), StartError> {
    let state = journal.state();
    let Some(pins) = state.pins.clone().filter(|pins| needs_baseline_checks(state, pins)) else {
        return Ok(());
    };
    let gates = baseline_gates(&pins, &bench.workspace.manifest());
    if gates.is_empty() {
        return Ok(());
    }
    let tree = state.tree.unwrap_or(pins.base.tree);
    let kept = cache_path(&bootstrap.cache, tree, &gates, &pins, &bootstrap.lease.spec);
    let checks = if let Some(checks) = read_cached_checks(&kept) {
        checks
    } else {
        let checks = run_gates(bench, state, gates).await;
        restore_from_state(&mut bench.workspace, state, material).await?;
        // A check that did not run may run a minute later: a runner gets installed, the machine is less busy.
        let all_ran = checks.iter().all(|check| check.gate.is_linter() || check.facts.not_run.is_none());
        if all_ran && let Err(error) = write_cached_checks(&kept, &checks) {
            // Not fatal: the checks run again next time.
            tracing::debug!(%error, "cannot cache the check results of a base");
        }
        checks
    };
    let mut out = PendingAppend::default();
    checks.into_iter().for_each(|check| out.push(Turn(0), check));
    journal.append_results(&out).await?;
    Ok(())
}

fn needs_baseline_checks(state: &RunState, pins: &RunStarted) -> bool {
    let untouched = state.turn == Turn(0) && state.stage == RunStage::Deciding && state.lineage.is_empty();
    pins.settings.base_checks && untouched && !state.base_checked
}

/// Returns the pinned checks plus the linters that judge at the end and have a file here. Other linters say nothing
/// before the run creates a file for them. Which files they will get is not known yet: it matters only whether they
/// run.
fn baseline_gates(pins: &RunStarted, files: &Manifest) -> Vec<GateSpec> {
    let has_files = |linter: &&LinterSpec| files.entries.keys().any(|path| lint::applies_to(linter, path));
    let linters =
        pins.linters.iter().filter(|linter| linter.gates).filter(has_files).map(|linter| GateSpec {
            name: linter.name.clone(),
            command: lint::render_command(linter.project.as_ref().unwrap_or(&linter.check), &[]),
            mend: Some(CheckFix { command: None, files: Vec::new(), imports: None }),
        });
    pins.gates.iter().filter(|gate| gate.name != REQUIRES_CHECK).cloned().chain(linters).collect()
}

async fn run_gates(bench: &ToolExecutor, state: &RunState, gates: Vec<GateSpec>) -> Vec<BaseChecked> {
    let mut done = Vec::new();
    for (nth, gate) in gates.into_iter().enumerate() {
        let call = CallId::for_gate(Turn(0), nth);
        let (step, decision) = (GateStep::Check, DecisionHash::ZERO);
        let open = GateRequested { call, gate: gate.clone(), step, decision };
        let started = Instant::now();
        let outcome = final_checks::run_check(bench, state, &open, &[]).await;
        let passed = final_checks::has_passed(&open, &outcome);
        let duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let facts = redact_facts(&bench.redactor, outcome.facts);
        done.push(BaseChecked { gate, passed, facts, duration_ms, shared: false });
    }
    done
}

/// Names the file after everything known that the result depends on. A worker started with another `PATH` may lack
/// programs that an earlier one had.
fn cache_path(
    cache: &Path,
    tree: TreeHash,
    gates: &[GateSpec],
    pins: &RunStarted,
    spec: &TaskSpec,
) -> PathBuf {
    let programs = std::env::var_os("PATH").unwrap_or_default();
    let on = serde_json::json!([
        tree,
        gates,
        spec.setup,
        pins.sandbox.backend,
        env!("CARGO_PKG_VERSION"),
        programs.to_string_lossy()
    ]);
    cache.join("base-checks").join(format!("{}.json", blake3::hash(on.to_string().as_bytes())))
}

fn read_cached_checks(path: &Path) -> Option<Vec<BaseChecked>> {
    let made = fs::metadata(path).and_then(|found| found.modified()).ok()?;
    let fresh = made.elapsed().is_ok_and(|age| age < CACHE_TTL);
    let bytes = fs::read(path).ok().filter(|_| fresh)?;
    let checks: Vec<BaseChecked> = serde_json::from_slice(&bytes).ok()?;
    Some(checks.into_iter().map(|check| BaseChecked { shared: true, ..check }).collect())
}

/// Writes atomically, because other run processes read the file.
fn write_cached_checks(path: &Path, checks: &[BaseChecked]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(&serde_json::to_vec(checks)?)?;
    file.persist(path)?;
    Ok(())
}

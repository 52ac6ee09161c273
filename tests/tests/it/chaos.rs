//! The chaos run: many tasks, and faults of every kind all the while; afterwards the log is read and checked.
//!
//! `DOCKET_CHAOS_SEED` repeats a seed: the same faults, in the same order, at the same counts of tasks done. What the
//! scheduler makes of them is its own. `DOCKET_CHAOS_TASKS` says how many tasks; 500 are the whole run.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::SubmitRequest,
    ids::TreeHash,
    task::{TaskSpec, TaskState},
};
use docket_tests::{
    chaos::{
        ChaosCluster, ChaosOutcome, ChaosStore, ExpectedTask, FaultCapabilities, FaultPlan, SeededRandom,
        run_chaos,
    },
    system::{
        CoordinatorProcess, LeaseDuration, NetworkLink, SampleRepository, StoreLocation, TestIsolation,
        WorkerOptions, WorkerProcess, acquire_scenario_slot, bring_loopback_up, print_notice,
        run_in_namespaces, wait_until,
    },
};

/// Tasks of a run where nobody says how many: every fault strikes at least once.
const TASKS: usize = 60;
/// Of so many on it is a whole run: enough for every consequence to show itself, not only every fault.
const WHOLE: usize = 500;
/// Kinds of tasks, each with a script of its own.
const VARIANTS: usize = 8;
/// How long a run may take: so long, and as much again for each task.
const LIMIT: Duration = Duration::from_secs(240);
const LIMIT_A_TASK: Duration = Duration::from_secs(2);
/// What setting up and reading may take beside that.
const AROUND: Duration = Duration::from_secs(240);
/// Leases. Short ones would end by themselves on a machine that is busy with other tests, and nobody could say which
/// did for a fault.
const LEASE: LeaseDuration = LeaseDuration::Patient;

fn env_number(name: &str) -> Result<Option<u64>> {
    let Ok(text) = std::env::var(name) else { return Ok(None) };
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map(Some).with_context(|| format!("{name} is a number, not {text:?}"))
}

fn task_count() -> Result<usize> {
    Ok(env_number("DOCKET_CHAOS_TASKS")?.map_or(Ok(TASKS), usize::try_from)?)
}

/// What nothing else depends on: any number will do.
fn fresh_seed() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// The script of a kind of tasks. What it does, done twice or not at all, shows in the tree.
fn variant_script(variant: usize) -> String {
    let mut turns = format!(
        "[[turns]]\ndelay_ms = {}\n[[turns.calls]]\nname = \"create_file\"\n\
         args = {{ path = \"docs/{variant}.md\", content = \"page {variant}\\n\" }}\n\n",
        50 + variant * 20
    );
    for step in 0..1 + variant % 4 {
        turns.push_str(&format!(
            "[[turns]]\ndelay_ms = 50\n[[turns.calls]]\nname = \"run_command\"\n\
             args = {{ command = \"echo {variant}.{step} >> log.txt && cat docs/*.md log.txt >> all.txt\" }}\n\n"
        ));
    }
    if variant % 2 == 1 {
        turns.push_str(
            "[[turns]]\n[[turns.calls]]\nname = \"edit_file\"\n\
             args = { path = \"notes.txt\", edits = [{ search = \"first\", replace = \"second\" }] }\n\
             [[turns.calls]]\nname = \"run_command\"\nargs = { command = \"rm old.txt; mv log.txt docs/log.txt\" }\n\n",
        );
    }
    turns.push_str("[[turns]]\ntext = \"Done.\"\n");
    turns
}

/// One task of each kind, as a coordinator has it: submitted and cancelled.
async fn submit_templates(coordinator: &CoordinatorProcess) -> Result<Vec<TaskSpec>> {
    let sample = SampleRepository::new(&[("notes.txt", "first\n"), ("old.txt", "old\n")])?;
    let mut specs = Vec::new();
    for variant in 0..VARIANTS {
        let script = sample.write_script(&variant_script(variant))?;
        let model = format!("scripted:chaos-{variant}");
        let args = ["--model", &model, "--script", script.to_str().context("UTF-8")?, "--queue", "template"];
        let (template, spec) = sample.submit(coordinator, &args).await?;
        coordinator.client().cancel(template, "a template").await?;
        specs.push(TaskSpec {
            title: format!("Kind {variant}"),
            queue: "chaos".parse()?,
            // Whoever is hit often is no poison here.
            crashes_max: 100_000,
            ..spec
        });
    }
    Ok(specs)
}

/// The tree of each kind, undisturbed.
async fn undisturbed_trees() -> Result<Vec<TreeHash>> {
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let specs = submit_templates(&coordinator).await?;
    let worker =
        WorkerProcess::start(&coordinator, &WorkerOptions { slots: 2, ..WorkerOptions::default() }).await?;
    let submitted = coordinator.client().submit(&SubmitRequest { tasks: specs, ids: None }).await?;
    let mut trees = Vec::new();
    for task in submitted.tasks {
        let view = coordinator.wait_until_ended(task.id).await.with_context(|| worker.log_tail())?;
        ensure!(view.task.state == TaskState::Completed && view.task.epoch.0 == 1, "{:?}", view.task);
        let history = coordinator.run_history(view.runs[0].id).await?;
        trees.push(history.final_tree().context("a tree")?);
    }
    let distinct: std::collections::BTreeSet<_> = trees.iter().collect();
    ensure!(distinct.len() == VARIANTS, "kinds that cannot be told apart: {trees:?}");
    worker.drain().await?;
    coordinator.end_and_check().await?;
    Ok(trees)
}

async fn run_chaos_test(test: &str, on: ChaosStore) -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let count = task_count()?;
    let limit = LIMIT + LIMIT_A_TASK * u32::try_from(count)?;
    let namespaces = match run_in_namespaces(test, limit + AROUND).await? {
        TestIsolation::Done => return Ok(()),
        TestIsolation::Inside => {
            bring_loopback_up()?;
            true
        }
        TestIsolation::Unavailable => false,
    };
    let seed = env_number("DOCKET_CHAOS_SEED")?.unwrap_or_else(fresh_seed);
    let possible = FaultCapabilities { postgres: on == ChaosStore::Postgres, namespaces };
    let plan = FaultPlan::generate(seed, count, LEASE.as_ms(), possible);
    print_notice(&format!(
        "{test}: {count} tasks, {} faults; DOCKET_CHAOS_TASKS={count} DOCKET_CHAOS_SEED={seed:#x} repeats them",
        plan.faults.len()
    ));
    let drawn = plan.fault_counts();
    let trees = undisturbed_trees().await?;
    let Some(mut stage) = ChaosCluster::start(on, LEASE, namespaces).await? else { return Ok(()) };
    let specs = submit_templates(stage.coordinator()).await?;
    let wanted = (0..count).map(|n| ExpectedTask {
        spec: TaskSpec { title: format!("Task {n}"), ..specs[n % VARIANTS].clone() },
        tree: trees[n % VARIANTS],
    });
    let mut draws = SeededRandom::new(!seed);
    stage.start_workers(&mut draws).await?;
    let played = run_chaos(&mut stage, wanted.collect(), plan, &mut draws, limit).await;
    let outcome = played.with_context(|| format!("seed {seed:#x}"))?;
    print_notice(&format!("{test}: {outcome:?}"));
    ensure!(
        outcome.injected_faults.keys().eq(drawn.keys()),
        "drawn were {drawn:?}, struck {:?}",
        outcome.injected_faults
    );
    let ChaosOutcome { leases, renewals, appends, .. } = outcome;
    ensure!(leases >= count && renewals > 0 && appends >= 3 * count, "the taps are blind: {outcome:?}");
    // A storm that nobody noticed was none.
    for kind in ["TaskRunCrashed", "TaskLeaseExpired", "RunRecovered"] {
        ensure!(outcome.events.contains_key(kind), "no {kind}: {:?}", outcome.events);
    }
    if count >= WHOLE {
        let refused = |codes: &[&str]| codes.iter().any(|code| outcome.refusals.contains_key(*code));
        ensure!(refused(&["Fenced", "LeaseExpired", "Ended"]), "no zombie tried: {:?}", outcome.refusals);
        ensure!(!namespaces || refused(&["StorageFull"]), "no disk was full: {:?}", outcome.refusals);
    }
    stage.end_and_check().await
}

/// The control of the run's network: what is cut off is cut off, and comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cut_link_passes_nothing_and_restored_link_passes_all() -> Result<()> {
    let test = "chaos::cut_link_passes_nothing_and_restored_link_passes_all";
    if run_in_namespaces(test, AROUND).await? != TestIsolation::Inside {
        return Ok(());
    }
    let link = NetworkLink::new(7)?;
    let listener = std::net::TcpListener::bind((link.address(), 0))?;
    let there = listener.local_addr()?;
    let connected = || link.connect(there, Duration::from_millis(500));
    // A new link is up once both its ends have seen each other.
    wait_until("a link that is up", async || connected().ok()).await?;
    link.cut()?;
    ensure!(connected().is_err(), "what is cut passes");
    link.restore()?;
    wait_until("a link that was mended", async || connected().ok()).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_stays_valid_under_faults_on_postgres() -> Result<()> {
    let test = "chaos::log_stays_valid_under_faults_on_postgres";
    Box::pin(run_chaos_test(test, ChaosStore::Postgres)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_stays_valid_under_faults_on_sqlite() -> Result<()> {
    let test = "chaos::log_stays_valid_under_faults_on_sqlite";
    Box::pin(run_chaos_test(test, ChaosStore::Sqlite)).await
}

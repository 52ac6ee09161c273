//! Resuming long runs over HTTP: the time between a lease and the next decision, the speed of deriving
//! decisions again, and the time until the stepper shows a screen.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use docket_coordinator::clock::Clock;
use docket_schema::{ids::IncarnationId, run::RunState};
use docket_worker::{
    client::{CoordinatorClient, HistoryScope},
    engine::{self, Action},
    process::{TrustedSpec, run_trusted},
    replay,
    run::{BlobCache, render_call},
    secret::Secret,
};

use crate::{
    groups::stores::fold::{TURNS, write_events},
    harness::{
        backlog::{self, LeasedRun},
        bench_folder::ServedCoordinator,
        docket_binary::GroupSite,
        synthetic_events,
        synthetic_run::SyntheticRun,
    },
    report::{BenchReport, EffortLevel, Samples, rate_per_second},
};

/// Number of events in the run that is resumed and verified.
const RESUMED_EVENTS: usize = 1500;
/// Time limit for the stepper's first screen.
const SCREEN_TIMEOUT: Duration = Duration::from_secs(20);

pub(crate) async fn measure(
    site: &GroupSite,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let served = ServedCoordinator::start(&site.folder).await?;
    let measured = measure_on(&served, site, effort, report).await;
    served.shut_down().await;
    measured
}

async fn measure_on(
    served: &ServedCoordinator,
    site: &GroupSite,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let (store, clock) = (served.running.handle().store(), Clock::new());
    let client = CoordinatorClient::new(
        &served.running.url(),
        Secret::new(&served.token).context("the token is empty")?,
    )?;
    let mut held = backlog::lease_new_runs(&store, &clock, 2).await?;
    let (short, long) = (held.pop().context("no run")?, held.pop().context("no run")?);
    let run = SyntheticRun::new(short, RESUMED_EVENTS).await?;
    for blob in run.blobs {
        backlog::put_blob(&store, &clock, blob).await?;
    }
    write_events(&store, &clock, short, &run.events).await?;
    time_resumes(&client, short, effort, report).await?;
    time_decisions(&client, short, effort, report).await?;
    let incarnation = IncarnationId(docket_coordinator::clock::new_id());
    write_events(
        &store,
        &clock,
        long,
        &synthetic_events::run_events(long.task, long.run, incarnation, TURNS),
    )
    .await?;
    time_first_screen(served, site, long, effort, report).await
}

/// Measures from a lease to the next decision with its encoded request: reads the log over HTTP, folds,
/// decides, and renders with fetched prompts. Excludes restoring the files.
async fn time_resumes(
    client: &CoordinatorClient,
    held: LeasedRun,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let mut samples = Samples::default();
    for _ in 0..effort.folds() {
        let started = Instant::now();
        let events = client.all_events(held.run, HistoryScope::WithAncestors).await?;
        ensure!(events.len() >= RESUMED_EVENTS, "{} events", events.len());
        let mut state = RunState::default();
        for event in &events {
            state.apply_envelope(event)?;
        }
        let pins = state.pins.clone().context("a run that began")?;
        let engine = engine::find_engine(&pins.engine).context("the engine")?;
        let decision = engine.decide(&state);
        let Action::CallModel(call) = &decision.act else { anyhow::bail!("the run asks no model next") };
        let request = render_call(&BlobCache::new(client.clone()), call).await?;
        samples.push_ms(started.elapsed());
        ensure!(request.body.len() > RESUMED_EVENTS, "the request is too short to be true");
    }
    report.set_percentile("resume_1500_ms", &samples, 50);
    Ok(())
}

async fn time_decisions(
    client: &CoordinatorClient,
    held: LeasedRun,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let events = client.all_events(held.run, HistoryScope::WithAncestors).await?;
    let material = BlobCache::new(client.clone());
    let mut samples = Samples::default();
    for _ in 0..effort.rounds() {
        let started = Instant::now();
        let verified = replay::verify(&events, &material).await.context("the made-up run does not verify")?;
        ensure!(verified.decisions as usize > RESUMED_EVENTS / 4, "{verified:?}");
        samples.push(rate_per_second(verified.decisions, started.elapsed()));
    }
    report.set_percentile("verify_decisions_per_s", &samples, 50);
    Ok(())
}

/// Measures `docket step` as a process: start, read, fold, draw.
async fn time_first_screen(
    served: &ServedCoordinator,
    site: &GroupSite,
    held: LeasedRun,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let mut samples = Samples::default();
    let variable = |name: &str, value: String| (name.into(), value.into());
    for _ in 0..effort.rounds() + 1 {
        let spec = TrustedSpec {
            program: site.docket.clone(),
            args: vec!["step".into(), "--first-frame".into(), held.run.to_string().into()],
            cwd: site.folder.clone(),
            env: vec![
                variable("DOCKET_URL", served.running.url()),
                variable("DOCKET_TOKEN", served.token.clone()),
                variable("DOCKET_HOME", site.folder.join("step-home").display().to_string()),
            ],
            stdin: Vec::new(),
            timeout: SCREEN_TIMEOUT,
            stdout_bytes_max: 64 * 1024,
        };
        let started = Instant::now();
        let shown = run_trusted(spec).await.context("`docket step` does not start")?;
        samples.push_ms(started.elapsed());
        ensure!(shown.stdout.len() > 80, "no screen: {}", String::from_utf8_lossy(&shown.stderr));
    }
    report.set_percentile("step_first_screen_ms", &samples, 50);
    Ok(())
}

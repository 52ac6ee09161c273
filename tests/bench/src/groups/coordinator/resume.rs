//! Long runs taken up again over HTTP: what a process does between its lease and its next decision, how fast
//! decisions are derived again, and how soon the stepper shows something.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use docket_coordinator::clock::Clock;
use docket_schema::{ids::IncarnationId, run::RunState};
use docket_worker::{
    client::{Client, Lineage},
    engine::{self, Act},
    process::{TrustedSpec, run_trusted},
    replay,
    run::{Material, rendered},
    secret::Secret,
};

use crate::{
    groups::stores::fold::{TURNS, write},
    harness::{
        backlog::{self, Held},
        docket_binary::Site,
        places::Served,
        stream,
        synthetic_run::SyntheticRun,
    },
    report::{Effort, Report, Samples, rate},
};

/// Events of the run that is resumed and verified.
const RESUMED_EVENTS: usize = 1500;
/// The stepper has shown something by then, or never will.
const SCREEN_TIMEOUT: Duration = Duration::from_secs(20);

/// Measures.
pub(crate) async fn measure(site: &Site, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let served = Served::start(&site.folder).await?;
    let measured = on(&served, site, effort, report).await;
    served.end().await;
    measured
}

async fn on(served: &Served, site: &Site, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let (store, clock) = (served.running.handle().store(), Clock::new());
    let client =
        Client::new(&served.running.url(), Secret::new(&served.token).context("the token is empty")?)?;
    let mut held = backlog::runs(&store, &clock, 2).await?;
    let (short, long) = (held.pop().context("no run")?, held.pop().context("no run")?);
    let run = SyntheticRun::new(short, RESUMED_EVENTS).await?;
    for blob in run.blobs {
        backlog::put_blob(&store, &clock, blob).await?;
    }
    write(&store, &clock, short, &run.events).await?;
    resumes(&client, short, effort, report).await?;
    decisions(&client, short, effort, report).await?;
    let incarnation = IncarnationId(docket_coordinator::clock::new_id());
    write(&store, &clock, long, &stream::events(long.task, long.run, incarnation, TURNS)).await?;
    first_screen(served, site, long, effort, report).await
}

/// From a lease in hand to the next decision with its request in bytes: the log read over HTTP, folded,
/// decided on, rendered with its prompts fetched. Without the files.
async fn resumes(client: &Client, held: Held, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let mut samples = Samples::default();
    for _ in 0..effort.folds() {
        let started = Instant::now();
        let events = client.all_events(held.run, Lineage::Whole).await?;
        ensure!(events.len() >= RESUMED_EVENTS, "{} events", events.len());
        let mut state = RunState::default();
        for event in &events {
            state.apply_envelope(event)?;
        }
        let pins = state.pins.clone().context("a run that began")?;
        let engine = engine::engine(&pins.engine).context("the engine")?;
        let decision = engine.decide(&state);
        let Act::CallModel(call) = &decision.act else { anyhow::bail!("the run asks no model next") };
        let request = rendered(&Material::new(client.clone()), call).await?;
        samples.push_ms(started.elapsed());
        ensure!(request.body.len() > RESUMED_EVENTS, "the request is too short to be true");
    }
    report.set_percentile("resume_1500_ms", &samples, 50);
    Ok(())
}

async fn decisions(client: &Client, held: Held, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let events = client.all_events(held.run, Lineage::Whole).await?;
    let material = Material::new(client.clone());
    let mut samples = Samples::default();
    for _ in 0..effort.rounds() {
        let started = Instant::now();
        let verified = replay::verify(&events, &material).await.context("the made-up run does not verify")?;
        ensure!(verified.decisions as usize > RESUMED_EVENTS / 4, "{verified:?}");
        samples.push(rate(verified.decisions, started.elapsed()));
    }
    report.set_percentile("verify_decisions_per_s", &samples, 50);
    Ok(())
}

/// `docket step` as a process: start, read, fold, draw.
async fn first_screen(
    served: &Served,
    site: &Site,
    held: Held,
    effort: Effort,
    report: &mut Report,
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

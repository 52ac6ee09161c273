//! `docket top` at a terminal: a coordinator, a worker and tasks that run, stop, and come; keys, other sizes, a coordinator
//! that goes away and comes back.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, Signal, StoreLocation, WorkerOptions, WorkerProcess,
    acquire_scenario_slot, send_signal, wait_until,
};

use super::home::parse_row;
use crate::terminal::{StderrTarget, TestTerminal};

/// Works for longer than any test looks, in short turns: at the end of one it hears that it is to stop.
fn long_script() -> String {
    let turn = |nth: u32| {
        format!(
            "[[turns]]\ntext = \"I wait.\"\ncalls = [{{ name = \"run_command\", args = {{ command = \"sleep 1; echo {nth}\" }} }}]\n"
        )
    };
    (0..200).map(turn).collect()
}

const SHORT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "a\n" } }]
[[turns]]
text = "It is done."
"#;

struct TopFixture {
    coordinator: CoordinatorProcess,
    sample: SampleRepository,
    worker: WorkerProcess,
}

impl TopFixture {
    async fn new() -> Result<Self> {
        let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
        let sample = SampleRepository::new(&[("README.md", "read me\n")])?;
        let worker =
            WorkerProcess::start(&coordinator, &WorkerOptions { slots: 2, ..WorkerOptions::default() })
                .await?;
        Ok(Self { coordinator, sample, worker })
    }

    async fn submit(&self, title: &str, script: &str, queue: &str) -> Result<String> {
        let script = self.sample.write_script(script)?;
        let (repo, script) =
            (self.sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
        let args = ["submit", title, "--json", "--repo", repo, "--model", "scripted:s", "--script", script];
        // On a busy machine the long ones must not come to the end of the usual number of turns.
        let args = [&args[..], &["--turns", "200"]].concat();
        let said =
            self.coordinator.run_docket(&[&args[..], &["--queue", queue]].concat()).await?.into_stdout()?;
        Ok(parse_row(&said)?["id"].as_str().context("an id")?.to_owned())
    }

    async fn wait_until_running(&self, task: &str) -> Result<()> {
        wait_until("a running task", async || {
            let said =
                self.coordinator.run_docket(&["show", task, "--json"]).await.ok()?.into_stdout().ok()?;
            (parse_row(&said).ok()?["state"] == "running").then_some(())
        })
        .await
        .with_context(|| self.worker.log_tail())
    }

    fn open_top(&self) -> Result<TestTerminal> {
        TestTerminal::open_sized(self.coordinator.home(), &[], &["top"], (100, 30), StderrTarget::Shown)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_shows_queues_workers_and_runs_and_restores_the_terminal() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let mut house = TopFixture::new().await?;
    let running = house.submit("Walk the long way round", &long_script(), "roads").await?;
    house.wait_until_running(&running).await?;
    let later = house.submit("Sweep the yard", &long_script(), "yards").await?;
    house.wait_until_running(&later).await?;
    house.submit("Paint the fence", &long_script(), "yards").await?;

    let mut top = house.open_top()?;
    let screen =
        top.wait_for_texts(&["Running", "Walk the long way round", "Sweep the yard", "Queues", "Workers"])?;
    ensure!(
        top.screen_state().alternate_screen() && top.screen_state().hide_cursor() && !top.is_cooked()?,
        "it is taken"
    );
    for part in [&running[28..], "2 running", "1 available", "2 of 2 busy", "roads", "yards", "q quit"] {
        ensure!(screen.contains(part), "no `{part}` in\n{screen}");
    }
    // It is live: what comes and what ends is seen without a key.
    // The short one waits before a slot is free, and is of a queue of which nothing runs: it goes before the long one that
    // waits. Submitted only after the cancelling, it would come too late on a busy machine, and wait for minutes.
    house.submit("Count the stars", SHORT, "stars").await?;
    let cancelled = house.coordinator.run_docket(&["cancel", &running]).await?;
    ensure!(cancelled.success(), "{cancelled:?}");
    top.wait_for_screen("the new task has ended, the cancelled one too, and another began", |screen| {
        let (running, ended) = screen.split_once("Recently ended").unwrap_or((screen, ""));
        running.contains("Paint the fence")
            && ended.contains("Count the stars")
            && ended.contains("cancelled")
    })?;

    // Other sizes: nothing is lost that fits, and nothing panics where next to nothing does.
    // Whatever runs at the moment, there are more rows than it has.
    top.resize(60, 8)?;
    top.wait_for_screen("a small screen", |screen| screen.contains("scri…") && screen.contains("q quit"))?;
    top.press("jj")?;
    let scrolled = top.wait_for_screen("two rows further", |screen| !screen.contains("docket 0."))?;
    ensure!(scrolled.contains("q quit"), "{scrolled}");
    top.press("g")?;
    top.wait_for_texts(&["docket 0."])?;
    top.resize(9, 2)?;
    top.wait_for_screen("hardly a screen", |screen| screen.contains("docket") && screen.contains("q quit"))?;
    top.resize(120, 40)?;
    top.press("\u{c}")?;
    top.wait_for_texts(&["Workers", "Paint the fence"])?;

    // The coordinator goes away, and comes back at the same place.
    send_signal(house.coordinator.pid(), Signal::SIGKILL);
    let screen = top.wait_for_texts(&["not connected; last known state", "cannot reach the coordinator"])?;
    ensure!(screen.contains("Paint the fence"), "what was known stays:\n{screen}");
    house.coordinator.restart().await?;
    top.wait_for_screen("it is connected again", |screen| {
        screen.contains("q quit") && screen.contains("Paint the fence")
    })?;

    top.press("q")?;
    let status = top.wait_for_end()?;
    ensure!(status.success() && top.is_restored()?, "{status}\n{}", top.screen());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_restores_the_terminal_on_every_exit() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut top = TestTerminal::open(coordinator.home(), &[], &["top"])?;
        top.wait_for_texts(&["nothing to do", "Workers", "none: `docket up`"])?;
        ensure!(top.screen_state().alternate_screen() && !top.is_cooked()?, "it took the terminal");
        top.send_signal(signal);
        let status = top.wait_for_end()?;
        ensure!(status.success() && top.is_restored()?, "{signal}: {status}\n{}", top.screen());
    }
    // A coordinator that is asked for a screen and does not answer: keys are heard all the same.
    let mut top = TestTerminal::open(coordinator.home(), &[], &["top"])?;
    top.wait_for_texts(&["nothing to do"])?;
    send_signal(coordinator.pid(), Signal::SIGSTOP);
    top.resize(70, 20)?;
    top.wait_for_screen("the screen is drawn anew", |screen| screen.contains("q quit"))?;
    // The terminal's library forgets a key that comes in the very moment of a change of size, until the next one comes.
    top.press("j")?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    top.press("\u{3}")?;
    let status = top.wait_for_end();
    send_signal(coordinator.pid(), Signal::SIGCONT);
    ensure!(status?.success() && top.is_restored()?, "{}", top.screen());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn top_without_terminal_prints_once_and_reports_a_missing_coordinator() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let printed = coordinator.run_docket(&["top"]).await?.into_stdout()?;
    ensure!(
        printed.starts_with("docket ") && printed.contains("Workers") && !printed.contains('\u{1b}'),
        "{printed}"
    );
    // At one that is not there it fails before it takes the terminal.
    let env = [("DOCKET_URL", "http://127.0.0.1:9"), ("DOCKET_TOKEN", "dkt_none")];
    let mut top = TestTerminal::open(coordinator.home(), &env, &["top"])?;
    let status = top.wait_for_end()?;
    let screen = top.screen();
    ensure!(
        status.code() == Some(5) && screen.contains("cannot reach the coordinator"),
        "{status}\n{screen}"
    );
    ensure!(screen.contains("docket up") && top.is_restored()?, "{screen}");
    Ok(())
}

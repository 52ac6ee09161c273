//! `docket top` at a terminal: a coordinator, a worker and tasks that run, stop, and come; keys, other sizes, a coordinator
//! that goes away and comes back.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{
    Coordinator, LeaseTime, Place, Sample, Signal, Worker, WorkerOptions, room, send, until,
};

use super::stage::row;
use crate::terminal::{Errors, Terminal};

/// Works for longer than any test looks, in short turns: at the end of one it hears that it is to stop.
fn long() -> String {
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

struct House {
    coordinator: Coordinator,
    sample: Sample,
    worker: Worker,
}

impl House {
    async fn new() -> Result<Self> {
        let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
        let sample = Sample::new(&[("README.md", "read me\n")])?;
        let worker =
            Worker::start(&coordinator, &WorkerOptions { slots: 2, ..WorkerOptions::default() }).await?;
        Ok(Self { coordinator, sample, worker })
    }

    async fn submit(&self, title: &str, script: &str, queue: &str) -> Result<String> {
        let script = self.sample.script(script)?;
        let (repo, script) =
            (self.sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
        let args = ["submit", title, "--json", "--repo", repo, "--model", "scripted:s", "--script", script];
        // On a busy machine the long ones must not come to the end of the usual number of turns.
        let args = [&args[..], &["--turns", "200"]].concat();
        let said = self.coordinator.docket(&[&args[..], &["--queue", queue]].concat()).await?.ok()?;
        Ok(row(&said)?["id"].as_str().context("an id")?.to_owned())
    }

    async fn runs(&self, task: &str) -> Result<()> {
        until("a running task", async || {
            let said = self.coordinator.docket(&["show", task, "--json"]).await.ok()?.ok().ok()?;
            (row(&said).ok()?["state"] == "running").then_some(())
        })
        .await
        .with_context(|| self.worker.tail())
    }

    fn top(&self) -> Result<Terminal> {
        Terminal::open_sized(self.coordinator.home(), &[], &["top"], (100, 30), Errors::Shown)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_shows_queues_workers_and_runs_as_they_go_and_gives_the_terminal_back() -> Result<()> {
    let _room = room().await;
    let mut house = House::new().await?;
    let running = house.submit("Walk the long way round", &long(), "roads").await?;
    house.runs(&running).await?;
    let later = house.submit("Sweep the yard", &long(), "yards").await?;
    house.runs(&later).await?;
    house.submit("Paint the fence", &long(), "yards").await?;

    let mut top = house.top()?;
    let screen =
        top.shows_all(&["Running", "Walk the long way round", "Sweep the yard", "Queues", "Workers"])?;
    ensure!(top.state().alternate_screen() && top.state().hide_cursor() && !top.is_cooked()?, "it is taken");
    for part in [&running[28..], "2 running", "1 available", "2 of 2 busy", "roads", "yards", "q ends"] {
        ensure!(screen.contains(part), "no `{part}` in\n{screen}");
    }
    // It is live: what comes and what ends is seen without a key.
    // The short one waits before a slot is free, and is of a queue of which nothing runs: it goes before the long one that
    // waits. Submitted only after the cancelling, it would come too late on a busy machine, and wait for minutes.
    house.submit("Count the stars", SHORT, "stars").await?;
    let cancelled = house.coordinator.docket(&["cancel", &running]).await?;
    ensure!(cancelled.success(), "{cancelled:?}");
    top.shows("the new task has ended, the cancelled one too, and another began", |screen| {
        let (running, ended) = screen.split_once("Ended lately").unwrap_or((screen, ""));
        running.contains("Paint the fence")
            && ended.contains("Count the stars")
            && ended.contains("cancelled")
    })?;

    // Other sizes: nothing is lost that fits, and nothing panics where next to nothing does.
    // Whatever runs at the moment, there are more rows than it has.
    top.resize(60, 8)?;
    top.shows("a small screen", |screen| screen.contains("scri…") && screen.contains("q ends"))?;
    top.press("jj")?;
    let scrolled = top.shows("two rows further", |screen| !screen.contains("docket 0."))?;
    ensure!(scrolled.contains("q ends"), "{scrolled}");
    top.press("g")?;
    top.shows_all(&["docket 0."])?;
    top.resize(9, 2)?;
    top.shows("hardly a screen", |screen| screen.contains("docket") && screen.contains("q ends"))?;
    top.resize(120, 40)?;
    top.press("\u{c}")?;
    top.shows_all(&["Workers", "Paint the fence"])?;

    // The coordinator goes away, and comes back at the same place.
    send(house.coordinator.pid(), Signal::SIGKILL);
    let screen = top.shows_all(&["not connected, this is how it stood", "cannot reach the coordinator"])?;
    ensure!(screen.contains("Paint the fence"), "what was known stays:\n{screen}");
    house.coordinator.restart().await?;
    top.shows("it is connected again", |screen| {
        screen.contains("q ends") && screen.contains("Paint the fence")
    })?;

    top.press("q")?;
    let status = top.ended()?;
    ensure!(status.success() && top.is_given_back()?, "{status}\n{}", top.screen());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_it_ends_the_terminal_is_as_before() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let mut top = Terminal::open(coordinator.home(), &[], &["top"])?;
        top.shows_all(&["nothing to do", "Workers", "none: `docket up`"])?;
        ensure!(top.state().alternate_screen() && !top.is_cooked()?, "it took the terminal");
        top.signal(signal);
        let status = top.ended()?;
        ensure!(status.success() && top.is_given_back()?, "{signal}: {status}\n{}", top.screen());
    }
    // A coordinator that is asked for a screen and does not answer: keys are heard all the same.
    let mut top = Terminal::open(coordinator.home(), &[], &["top"])?;
    top.shows_all(&["nothing to do"])?;
    send(coordinator.pid(), Signal::SIGSTOP);
    top.resize(70, 20)?;
    top.shows("the screen is drawn anew", |screen| screen.contains("q ends"))?;
    // The terminal's library forgets a key that comes in the very moment of a change of size, until the next one comes.
    top.press("j")?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    top.press("\u{3}")?;
    let status = top.ended();
    send(coordinator.pid(), Signal::SIGCONT);
    ensure!(status?.success() && top.is_given_back()?, "{}", top.screen());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_terminal_it_is_printed_once_and_without_a_coordinator_it_says_so() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let printed = coordinator.docket(&["top"]).await?.ok()?;
    ensure!(
        printed.starts_with("docket ") && printed.contains("Workers") && !printed.contains('\u{1b}'),
        "{printed}"
    );
    // At one that is not there it fails before it takes the terminal.
    let env = [("DOCKET_URL", "http://127.0.0.1:9"), ("DOCKET_TOKEN", "dkt_none")];
    let mut top = Terminal::open(coordinator.home(), &env, &["top"])?;
    let status = top.ended()?;
    let screen = top.screen();
    ensure!(
        status.code() == Some(5) && screen.contains("cannot reach the coordinator"),
        "{status}\n{screen}"
    );
    ensure!(screen.contains("docket up") && top.is_given_back()?, "{screen}");
    Ok(())
}

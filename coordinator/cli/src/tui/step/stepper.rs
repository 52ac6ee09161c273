//! The main loop of the stepper: keys, fetched content, new events and signals go in; screens, fetches and
//! actions come out.
//!
//! Invariant: everything started here also ends here, except the key reader thread, which ends at its next
//! poll.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use docket_schema::event::Envelope;
use docket_worker::client::CoordinatorClient;
use futures_util::StreamExt as _;
use ratatui::crossterm::event;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{OnceCell, mpsc},
    task::JoinSet,
};

use super::{
    actions,
    content_cache::{ContentRequest, LoadedContent, RunSide},
    fetcher::ContentFetcher,
    load_run,
    pane_text::TextTone,
    run::Run,
    state::{RunAction, StepperEffect, StepperState},
    terminal::{self, TerminalGuard, TerminalInput},
    view::{self, ColorPalette},
};
use crate::{
    connect::coordinator::Coordinator,
    context::CliContext,
    history::lineage::HistorySource,
    output::error::{CliResult, ExitKind},
};

/// Concurrent fetches: enough to hide the round trip, few enough that the current page does not wait behind
/// previous ones.
const FETCHES_MAX: usize = 6;
/// Keys that are queued while a screen is drawn; more than anyone types.
const QUEUED_KEYS_MAX: usize = 256;
/// How often the key reader thread checks whether it should stop.
const KEY_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Events of a live run that are processed together.
const FOLLOWED_EVENTS_MAX: usize = 256;

/// The result of a background task of the loop.
enum StepperTaskResult {
    Fetched(ContentRequest, LoadedContent, u64),
    Reloaded(CliResult<Run>),
    OtherLoaded(CliResult<Run>),
    ActionDone(RunAction, CliResult<String>),
}

/// The running stepper.
pub(super) struct RunStepper {
    cx: CliContext,
    client: CoordinatorClient,
    source: HistorySource,
    state: StepperState,
    fetcher: ContentFetcher,
    tasks: JoinSet<StepperTaskResult>,
    /// Requests being fetched.
    in_flight: BTreeSet<ContentRequest>,
    /// Incremented when a run is replaced, so that results for the previous one are dropped.
    round: u64,
    /// No process serves the home, so the run does not progress by itself.
    is_local: bool,
}

impl RunStepper {
    /// Creates a stepper over `run`.
    pub(super) fn new(cx: CliContext, access: &Coordinator, run: Run, size: (u16, u16)) -> CliResult<Self> {
        let run = Arc::new(run);
        let bases = [Arc::new(OnceCell::new()), Arc::new(OnceCell::new())];
        let (client, cache) = (access.client.clone(), cx.home.ensure_folder("cache")?);
        let fetcher =
            ContentFetcher { client: client.clone(), cache, run: Arc::clone(&run), other: None, bases };
        Ok(Self {
            cx,
            client,
            source: access.history_source(),
            state: StepperState::new(run, size),
            fetcher,
            tasks: JoinSet::new(),
            in_flight: BTreeSet::new(),
            round: 0,
            is_local: access.is_local(),
        })
    }

    /// Sets the run to compare with.
    pub(super) fn set_other_run(&mut self, other: Run) {
        let other = Arc::new(other);
        self.fetcher.other = Some(Arc::clone(&other));
        self.fetcher.bases[usize::from(RunSide::Other as u8)] = Arc::new(OnceCell::new());
        self.start_round();
        self.state.set_other_run(other);
    }

    /// The state before the first screen.
    pub(super) const fn state(&self) -> &StepperState {
        &self.state
    }

    fn start_round(&mut self) {
        self.round += 1;
        self.in_flight.clear();
    }

    fn palette(&self) -> ColorPalette {
        if self.cx.screen.has_colors() { ColorPalette::Colors } else { ColorPalette::Plain }
    }

    /// Runs until the user quits.
    pub(super) async fn run_loop(mut self) -> CliResult {
        let mut hangups = signal(SignalKind::hangup())?;
        let mut terminations = signal(SignalKind::terminate())?;
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut screen = TerminalGuard::acquire()?;
        self.state.resize(screen.size());
        let wanted = Arc::new(AtomicBool::new(true));
        let mut keys = spawn_key_reader(Arc::clone(&wanted));
        let mut news = self.follow_events();
        let palette = self.palette();
        let outcome = loop {
            screen.draw(|buffer| view::draw_screen(&self.state, palette, buffer))?;
            self.start_fetches();
            let effect = tokio::select! {
                heard = keys.recv() => match heard {
                    Some(heard) => self.handle_input(heard, &mut keys),
                    // The terminal is gone.
                    None => break Ok(ExitKind::Ok),
                },
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    if let Ok(done) = done {
                        self.handle_task_result(done);
                    }
                    None
                }
                Some(events) = news.recv() => {
                    self.append_events(events);
                    None
                }
                _ = hangups.recv() => break Ok(ExitKind::Ok),
                _ = terminations.recv() => break Ok(ExitKind::Ok),
                _ = interrupts.recv() => break Ok(ExitKind::Ok),
            };
            match effect {
                Some(StepperEffect::Quit) => break Ok(ExitKind::Ok),
                Some(StepperEffect::Redraw) => screen.clear()?,
                Some(StepperEffect::Suspend) => screen.suspend()?,
                Some(StepperEffect::Reload) => self.start_reload(),
                Some(StepperEffect::LoadOther(id)) => self.start_loading_other(id),
                Some(StepperEffect::Perform(act)) => self.start_action(act),
                None => {}
            }
        };
        wanted.store(false, Ordering::Relaxed);
        self.tasks.shutdown().await;
        drop(screen);
        outcome
    }

    /// Applies all queued input before the next screen, up to an effect.
    fn handle_input(
        &mut self,
        first: TerminalInput,
        keys: &mut mpsc::Receiver<TerminalInput>,
    ) -> Option<StepperEffect> {
        let mut next = Some(first);
        while let Some(heard) = next {
            match heard {
                TerminalInput::Key(key) => {
                    if let Some(effect) = self.state.press(key) {
                        return Some(effect);
                    }
                }
                TerminalInput::Resized(columns, rows) => self.state.resize((columns, rows)),
            }
            next = keys.try_recv().ok();
        }
        None
    }

    fn start_fetches(&mut self) {
        for want in self.state.missing_content() {
            if self.in_flight.len() >= FETCHES_MAX {
                break;
            }
            if self.in_flight.insert(want.clone()) {
                let (fetcher, round) = (self.fetcher.clone(), self.round);
                self.tasks.spawn(async move {
                    let loaded = fetcher.fetch(&want).await;
                    StepperTaskResult::Fetched(want, loaded, round)
                });
            }
        }
    }

    fn handle_task_result(&mut self, done: StepperTaskResult) {
        match done {
            StepperTaskResult::Fetched(want, loaded, round) if round == self.round => {
                self.in_flight.remove(&want);
                self.state.store_loaded(want, loaded);
            }
            StepperTaskResult::Fetched(..) => {}
            StepperTaskResult::Reloaded(Ok(run)) => {
                let run = Arc::new(run);
                self.fetcher.run = Arc::clone(&run);
                self.start_round();
                self.state.replace_run(run);
            }
            StepperTaskResult::OtherLoaded(Ok(run)) => self.set_other_run(run),
            StepperTaskResult::Reloaded(Err(failure)) | StepperTaskResult::OtherLoaded(Err(failure)) => {
                self.state.set_message(
                    TextTone::Bad,
                    failure.format_message(crate::output::error::CauseDisplay::Hidden),
                );
            }
            StepperTaskResult::ActionDone(_, Ok(text)) => self.state.set_message(TextTone::Good, text),
            StepperTaskResult::ActionDone(act, Err(failure)) => {
                let text = failure.format_message(crate::output::error::CauseDisplay::Hidden);
                self.state.set_message(TextTone::Bad, format!("{}: {text}", actions::action_name(act)));
            }
        }
    }

    fn append_events(&mut self, events: Vec<Envelope>) {
        // No one else holds the run while it grows, unless a fetch is running: it is not copied.
        self.fetcher.run = Arc::new(Run::new(self.state.run.id));
        self.state.append_events(events);
        self.fetcher.run = Arc::clone(&self.state.run);
    }

    fn start_reload(&mut self) {
        let (source, run) = (self.source.clone(), self.state.run.id);
        self.state.set_message(TextTone::Plain, "reloading the run…");
        self.tasks.spawn(async move { StepperTaskResult::Reloaded(load_run::load_run(&source, run).await) });
    }

    fn start_loading_other(&mut self, id: String) {
        let (client, source) = (self.client.clone(), self.source.clone());
        self.tasks.spawn(async move {
            StepperTaskResult::OtherLoaded(load_run::load_by_id(&client, &source, &id).await)
        });
    }

    fn start_action(&mut self, act: RunAction) {
        let (cx, run) = (self.cx.clone(), self.state.run.id);
        self.state.set_message(TextTone::Plain, format!("{} …", actions::action_name(act)));
        self.tasks.spawn(async move {
            StepperTaskResult::ActionDone(act, actions::perform_action(&cx, run, act).await)
        });
    }

    /// Follows new events of the run if another process serves it.
    fn follow_events(&mut self) -> mpsc::Receiver<Vec<Envelope>> {
        let (sender, receiver) = mpsc::channel(4);
        let after = self.state.run.own_head();
        if self.is_local || !self.state.is_open() {
            return receiver;
        }
        let stream = self.client.follow_run(self.state.run.id, after);
        // Ends with its receiver, or with the runtime.
        tokio::spawn(async move {
            let mut chunks = std::pin::pin!(stream.ready_chunks(FOLLOWED_EVENTS_MAX));
            while let Some(chunk) = chunks.next().await {
                // If the connection is permanently lost, the run can still be reloaded by key.
                let events: Vec<Envelope> = chunk.into_iter().filter_map(Result::ok).collect();
                if events.is_empty() || sender.send(events).await.is_err() {
                    break;
                }
            }
        });
        receiver
    }
}

/// Reads keys in a separate thread, because the terminal library blocks.
pub(crate) fn spawn_key_reader(wanted: Arc<AtomicBool>) -> mpsc::Receiver<TerminalInput> {
    let (sender, receiver) = mpsc::channel(QUEUED_KEYS_MAX);
    std::thread::spawn(move || {
        while wanted.load(Ordering::Relaxed) {
            match event::poll(KEY_POLL_INTERVAL) {
                Ok(false) => {}
                Ok(true) => match event::read() {
                    Ok(event) => {
                        if terminal::to_terminal_input(&event)
                            .is_some_and(|heard| sender.blocking_send(heard).is_err())
                        {
                            break;
                        }
                    }
                    Err(_) => break,
                },
                Err(_) => break,
            }
        }
    });
    receiver
}

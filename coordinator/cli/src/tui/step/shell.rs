//! The loop around the model: keys, what was fetched, what the run did since, and signals go in; screens,
//! fetches and acts come out.
//!
//! Invariant: everything that is started here ends here, but the thread that waits for keys, which ends
//! with its next look.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use docket_schema::event::Envelope;
use docket_worker::client::Client;
use futures_util::StreamExt as _;
use ratatui::crossterm::event;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{OnceCell, mpsc},
    task::JoinSet,
};

use super::{
    act,
    doc::Tone,
    fetch::Fetcher,
    load,
    model::{Act, Effect, Model},
    run::Run,
    shelf::{Loaded, Side, Want},
    terminal::{self, Heard, Taken},
    view::{self, Palette},
};
use crate::{
    connect::access::Access,
    context::Context,
    history::lineage::Source,
    output::fail::{Exit, Outcome},
};

/// Fetches under way at once: enough to hide the round trip, few enough that what is looked at now does
/// not wait behind what was looked at.
const FETCHES_MAX: usize = 6;
/// Keys that wait while a screen is drawn; more than anybody types.
const KEYS_WAITING_MAX: usize = 256;
/// How often the thread that reads keys looks whether it is still wanted.
const KEYS_LOOK: Duration = Duration::from_millis(100);
/// Events of a run that goes on, taken together.
const NEWS_MAX: usize = 256;

/// What a task of the loop came back with.
enum Done {
    Fetched(Want, Loaded, u64),
    Reloaded(Outcome<Run>),
    Beside(Outcome<Run>),
    Acted(Act, Outcome<String>),
}

/// See the module.
pub(super) struct Stepper {
    cx: Context,
    client: Client,
    source: Source,
    model: Model,
    fetcher: Fetcher,
    tasks: JoinSet<Done>,
    /// What is being fetched.
    asked: BTreeSet<Want>,
    /// Rises when a run is replaced: answers about the one before are dropped.
    round: u64,
    /// Nobody serves the home: nothing of the run goes on by itself.
    alone: bool,
}

impl Stepper {
    /// A stepper over `run`, with another beside it where one is wanted.
    pub(super) fn new(cx: Context, access: &Access, run: Run, size: (u16, u16)) -> Outcome<Self> {
        let run = Arc::new(run);
        let bases = [Arc::new(OnceCell::new()), Arc::new(OnceCell::new())];
        let (client, cache) = (access.client.clone(), cx.home.folder("cache")?);
        let fetcher = Fetcher { client: client.clone(), cache, run: Arc::clone(&run), other: None, bases };
        Ok(Self {
            cx,
            client,
            source: access.source(),
            model: Model::new(run, size),
            fetcher,
            tasks: JoinSet::new(),
            asked: BTreeSet::new(),
            round: 0,
            alone: access.is_alone(),
        })
    }

    /// Sets another run beside the first.
    pub(super) fn beside(&mut self, other: Run) {
        let other = Arc::new(other);
        self.fetcher.other = Some(Arc::clone(&other));
        self.fetcher.bases[usize::from(Side::Other as u8)] = Arc::new(OnceCell::new());
        self.renewed();
        self.model.beside(other);
    }

    /// What the first screen is.
    pub(super) const fn model(&self) -> &Model {
        &self.model
    }

    fn renewed(&mut self) {
        self.round += 1;
        self.asked.clear();
    }

    fn palette(&self) -> Palette {
        if self.cx.screen.colored() { Palette::Colors } else { Palette::Plain }
    }

    /// Steps until somebody has seen enough.
    pub(super) async fn run(mut self) -> Outcome {
        let mut hangups = signal(SignalKind::hangup())?;
        let mut terminations = signal(SignalKind::terminate())?;
        let mut interrupts = signal(SignalKind::interrupt())?;
        let mut screen = Taken::take()?;
        self.model.resized(screen.size());
        let wanted = Arc::new(AtomicBool::new(true));
        let mut keys = keys(Arc::clone(&wanted));
        let mut news = self.news();
        let palette = self.palette();
        let outcome = loop {
            screen.draw(|buffer| view::draw(&self.model, palette, buffer))?;
            self.fetch();
            let effect = tokio::select! {
                heard = keys.recv() => match heard {
                    Some(heard) => self.heard(heard, &mut keys),
                    // Its terminal is gone.
                    None => break Ok(Exit::Ok),
                },
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => {
                    if let Ok(done) = done {
                        self.done(done);
                    }
                    None
                }
                Some(events) = news.recv() => {
                    self.grew(events);
                    None
                }
                _ = hangups.recv() => break Ok(Exit::Ok),
                _ = terminations.recv() => break Ok(Exit::Ok),
                _ = interrupts.recv() => break Ok(Exit::Ok),
            };
            match effect {
                Some(Effect::Quit) => break Ok(Exit::Ok),
                Some(Effect::Redraw) => screen.clear()?,
                Some(Effect::Suspend) => screen.suspend()?,
                Some(Effect::Reload) => self.reload(),
                Some(Effect::Beside(id)) => self.load_beside(id),
                Some(Effect::Act(act)) => self.act(act),
                None => {}
            }
        };
        wanted.store(false, Ordering::Relaxed);
        self.tasks.shutdown().await;
        drop(screen);
        outcome
    }

    /// Takes all that was typed meanwhile before the next screen, up to a wish for the shell.
    fn heard(&mut self, first: Heard, keys: &mut mpsc::Receiver<Heard>) -> Option<Effect> {
        let mut next = Some(first);
        while let Some(heard) = next {
            match heard {
                Heard::Key(key) => {
                    if let Some(effect) = self.model.press(key) {
                        return Some(effect);
                    }
                }
                Heard::Resized(columns, rows) => self.model.resized((columns, rows)),
            }
            next = keys.try_recv().ok();
        }
        None
    }

    fn fetch(&mut self) {
        for want in self.model.wants() {
            if self.asked.len() >= FETCHES_MAX {
                break;
            }
            if self.asked.insert(want.clone()) {
                let (fetcher, round) = (self.fetcher.clone(), self.round);
                self.tasks.spawn(async move {
                    let loaded = fetcher.fetch(&want).await;
                    Done::Fetched(want, loaded, round)
                });
            }
        }
    }

    fn done(&mut self, done: Done) {
        match done {
            Done::Fetched(want, loaded, round) if round == self.round => {
                self.asked.remove(&want);
                self.model.arrived(want, loaded);
            }
            Done::Fetched(..) => {}
            Done::Reloaded(Ok(run)) => {
                let run = Arc::new(run);
                self.fetcher.run = Arc::clone(&run);
                self.renewed();
                self.model.reloaded(run);
            }
            Done::Beside(Ok(run)) => self.beside(run),
            Done::Reloaded(Err(failure)) | Done::Beside(Err(failure)) => {
                self.model.say(Tone::Bad, failure.text(crate::output::fail::Chain::Hidden));
            }
            Done::Acted(_, Ok(text)) => self.model.say(Tone::Good, text),
            Done::Acted(act, Err(failure)) => {
                let text = failure.text(crate::output::fail::Chain::Hidden);
                self.model.say(Tone::Bad, format!("{}: {text}", act::name(act)));
            }
        }
    }

    fn grew(&mut self, events: Vec<Envelope>) {
        // Nobody else holds the run while it grows, unless something is being fetched: it is not copied.
        self.fetcher.run = Arc::new(Run::new(self.model.run.id));
        self.model.grew(events);
        self.fetcher.run = Arc::clone(&self.model.run);
    }

    fn reload(&mut self) {
        let (source, run) = (self.source.clone(), self.model.run.id);
        self.model.say(Tone::Plain, "the run is read again…");
        self.tasks.spawn(async move { Done::Reloaded(load::run(&source, run).await) });
    }

    fn load_beside(&mut self, id: String) {
        let (client, source) = (self.client.clone(), self.source.clone());
        self.tasks.spawn(async move { Done::Beside(load::named(&client, &source, &id).await) });
    }

    fn act(&mut self, act: Act) {
        let (cx, run) = (self.cx.clone(), self.model.run.id);
        self.model.say(Tone::Plain, format!("{} …", act::name(act)));
        self.tasks.spawn(async move { Done::Acted(act, act::perform(&cx, run, act).await) });
    }

    /// What the run does from now on, where somebody works on it.
    fn news(&mut self) -> mpsc::Receiver<Vec<Envelope>> {
        let (sender, receiver) = mpsc::channel(4);
        let after = self.model.run.own_head();
        if self.alone || !self.model.is_open() {
            return receiver;
        }
        let stream = self.client.follow(self.model.run.id, after);
        // Ends with its receiver, or when the runtime does.
        tokio::spawn(async move {
            let mut chunks = std::pin::pin!(stream.ready_chunks(NEWS_MAX));
            while let Some(chunk) = chunks.next().await {
                // A connection that is lost for good leaves the key that reads the run again.
                let events: Vec<Envelope> = chunk.into_iter().filter_map(Result::ok).collect();
                if events.is_empty() || sender.send(events).await.is_err() {
                    break;
                }
            }
        });
        receiver
    }
}

/// Reads keys on a thread of its own: the terminal's library waits in the foreground.
pub(crate) fn keys(wanted: Arc<AtomicBool>) -> mpsc::Receiver<Heard> {
    let (sender, receiver) = mpsc::channel(KEYS_WAITING_MAX);
    std::thread::spawn(move || {
        while wanted.load(Ordering::Relaxed) {
            match event::poll(KEYS_LOOK) {
                Ok(false) => {}
                Ok(true) => match event::read() {
                    Ok(event) => {
                        if terminal::heard(&event).is_some_and(|heard| sender.blocking_send(heard).is_err()) {
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

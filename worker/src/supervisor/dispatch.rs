//! The loop around `decide`: waits for the next thing that happens, and does what follows from it.
//! All state is here and in nobody else's hands.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    time::{Duration, Instant},
};

use docket_sandbox::Checked;
use docket_schema::{
    ids::IncarnationId,
    wire::{
        HeartbeatRequest, HeartbeatResponse, LEASE_MAX, Lease, LeaseRequest, LeaseResponse, ProblemCode,
        ReleaseRequest, ReleaseResponse,
    },
};
use futures_util::{Stream, StreamExt as _, stream, stream::FuturesUnordered};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    child::{Attended, Order, attend},
    config::SupervisorConfig,
    decide::{Moment, next_wake, on, room},
    report::{SupervisorEnd, SupervisorError, SupervisorReport},
    scratch::Scratch,
    state::{Command, Event, Failure, Key, KilledFor, Phase, State},
};
use crate::{
    bootstrap::Bootstrap,
    client::{Client, ClientError},
    process::{ChildLog, ChildSpec},
};

/// Time for a heartbeat's answer beyond its wait. Shorter than other calls: a stalled coordinator
/// must leave time for another attempt within the lease.
const BEAT_ANSWER: Duration = Duration::from_secs(5);
/// How long a worker that ends waits until the coordinator has heard of that.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(2);

type Doing<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// SIGTERM and SIGINT, as the signals of [`run`].
///
/// # Errors
/// When the system does not let them be caught.
pub fn termination_signals() -> Result<impl Stream<Item = ()> + Unpin + Send, SupervisorError> {
    use tokio::signal::unix::{SignalKind, signal};
    let terminate = signal(SignalKind::terminate()).map_err(SupervisorError::Signals)?;
    let interrupt = signal(SignalKind::interrupt()).map_err(SupervisorError::Signals)?;
    Ok(Box::pin(stream::unfold((terminate, interrupt), |(mut terminate, mut interrupt)| async move {
        tokio::select! {
            got = terminate.recv() => got,
            got = interrupt.recv() => got,
        }
        .map(|()| ((), (terminate, interrupt)))
    })))
}

/// Works until the first of `signals` asks it to end, then drains; the second skips the grace.
///
/// `preflight` checks what the runs will need of this host (the sandbox) and is awaited before any
/// work is asked for: its lines are logged, its error is the end.
///
/// # Errors
/// [`SupervisorError`] when it cannot begin. Later troubles are waited out, or end in a report.
pub async fn run(
    config: SupervisorConfig,
    preflight: impl Future<Output = Result<Preflight, String>> + Send,
    signals: impl Stream<Item = ()> + Unpin + Send,
) -> Result<SupervisorReport, SupervisorError> {
    let client = Client::trusting(&config.coordinator, config.token.clone(), config.ca.as_deref())
        .map_err(SupervisorError::Client)?;
    let Preflight { lines, walls, layers } = preflight.await.map_err(SupervisorError::Preflight)?;
    for line in lines {
        tracing::info!("{line}");
    }
    let incarnation = config.incarnation;
    let scratch = Scratch::open(&config.scratch, incarnation)?;
    std::fs::create_dir_all(&config.cache)
        .map_err(|source| SupervisorError::Folder { path: config.cache.clone(), source })?;
    let state = State::new(config.slots.clamp(1, LEASE_MAX), config.grace);
    tracing::info!(%incarnation, name = config.name, slots = state.slots, coordinator = client.address(), "worker started");
    let dispatcher = Dispatcher {
        config,
        walls,
        layers,
        client,
        incarnation,
        scratch,
        state,
        lease: None,
        beat: None,
        runs: FuturesUnordered::new(),
        cleanings: FuturesUnordered::new(),
        orders: BTreeMap::new(),
        releases: FuturesUnordered::new(),
        away: false,
        spoken: false,
        refused: None,
        killed_in_drain: false,
    };
    Ok(dispatcher.work(signals).await)
}

/// What was found of the host before any work is asked for.
#[derive(Debug, Default)]
pub struct Preflight {
    /// To be logged.
    pub lines: Vec<String>,
    /// The walls that passed their controls: run processes need not check them again.
    pub walls: Option<Checked>,
    /// Their names, for people.
    pub layers: Vec<String>,
}

struct Dispatcher {
    config: SupervisorConfig,
    walls: Option<Checked>,
    layers: Vec<String>,
    client: Client,
    incarnation: IncarnationId,
    scratch: Scratch,
    state: State,
    lease: Option<Doing<Result<LeaseResponse, ClientError>>>,
    beat: Option<Doing<Result<HeartbeatResponse, ClientError>>>,
    runs: FuturesUnordered<Doing<Attended>>,
    /// Folders on their way out: a large one takes a while, and nobody waits for it but the end.
    cleanings: FuturesUnordered<JoinHandle<()>>,
    orders: BTreeMap<Key, watch::Sender<Order>>,
    releases: FuturesUnordered<Doing<(Key, Result<ReleaseResponse, ClientError>)>>,
    /// The coordinator did not answer last time: told once.
    away: bool,
    /// The coordinator answered once: what is no answer of ours now is trouble on the way.
    spoken: bool,
    refused: Option<String>,
    killed_in_drain: bool,
}

/// Waits for what is under way; for ever where nothing is.
async fn under_way<T>(doing: &mut Option<Doing<T>>) -> T {
    match doing {
        Some(future) => {
            let output = future.await;
            *doing = None;
            output
        }
        None => std::future::pending().await,
    }
}

impl Dispatcher {
    async fn work(mut self, mut signals: impl Stream<Item = ()> + Unpin + Send) -> SupervisorReport {
        let mut event = Event::Begun;
        let mut signals_open = true;
        // Somebody told the coordinator that this worker is to end.
        let mut drained = false;
        loop {
            let at = Moment { now: Instant::now(), jitter: crate::clock::jitter() };
            let mut commands = on(&mut self.state, at, event);
            if drained && self.state.phase == Phase::Leasing {
                tracing::info!("drained: no new work, runs end their turn");
                commands.extend(on(&mut self.state, at, Event::Signal));
            }
            for command in commands {
                if command == Command::Finish {
                    return self.report().await;
                }
                self.perform(command);
            }
            let wake = next_wake(&self.state);
            let wait = async {
                match wake {
                    Some(wake) => tokio::time::sleep_until(wake.into()).await,
                    None => std::future::pending().await,
                }
            };
            event = tokio::select! {
                signal = signals.next(), if signals_open => match signal {
                    Some(()) => {
                        tracing::info!("asked to end: no new work, runs end their turn");
                        Event::Signal
                    }
                    None => {
                        signals_open = false;
                        Event::Tick
                    }
                },
                Some(Attended { key, end, reach, fault, folder }) = self.runs.next() => {
                    self.orders.remove(&key);
                    self.cleanings.push(tokio::task::spawn_blocking(move || folder.clear()));
                    tracing::info!(task = %key.task, epoch = key.epoch.0, %end, "run process ended");
                    match fault {
                        Some(fault) => {
                            let (kind, message) = (fault.kind.as_str(), &fault.message);
                            tracing::error!(kind, message, "a fault of this worker: tasks that it concerns are left to others");
                            Event::RunFaulted(key, fault)
                        }
                        None => Event::RunEnded(key, end, reach),
                    }
                }
                answer = under_way(&mut self.lease) => match answer {
                    Ok(LeaseResponse { leases, held_ms, drain }) => {
                        self.answered();
                        drained |= drain;
                        Event::Leased(leases, Duration::from_millis(held_ms))
                    }
                    Err(error) => Event::LeaseFailed(self.lease_failure(&error)),
                },
                answer = under_way(&mut self.beat) => match answer {
                    Ok(HeartbeatResponse { renewed, lost, drain }) => {
                        self.answered();
                        drained |= drain;
                        let lost = lost.into_iter().map(|lost| (lost.task, lost.why)).collect();
                        Event::Beaten { renewed, lost }
                    }
                    Err(error) => {
                        self.failure(&error);
                        Event::BeatFailed
                    }
                },
                Some(_) = self.cleanings.next() => Event::Tick,
                Some((key, answer)) = self.releases.next() => match answer {
                    Ok(ReleaseResponse { state: _ }) => Event::Released(key),
                    Err(error) => Event::ReleaseFailed(key, self.release_failure(key, &error)),
                },
                () = wait => Event::Tick,
            };
        }
    }

    fn perform(&mut self, command: Command) {
        match command {
            Command::Lease { wanted, wait } => {
                let request = LeaseRequest {
                    incarnation: self.incarnation,
                    number: wanted.number,
                    name: self.config.name.clone(),
                    queues: self.config.queues.clone(),
                    engines: self.config.engines.clone(),
                    labels: self.config.labels.clone(),
                    layers: self.layers.clone(),
                    faults: self.state.quarantine.faults(),
                    room: Some(room(&self.state)),
                    max: wanted.max,
                    wait_ms: ms(wait),
                };
                let client = self.client.clone();
                self.lease = Some(Box::pin(async move { client.lease(&request).await }));
            }
            Command::Heartbeat { held, wait } => {
                let (incarnation, room) = (self.incarnation, Some(room(&self.state)));
                let request = HeartbeatRequest { incarnation, held, room, wait_ms: ms(wait) };
                let client = self.client.clone();
                self.beat = Some(Box::pin(async move {
                    let late = |_| ClientError::Unreachable {
                        doing: "renew leases",
                        url: client.address().to_owned(),
                        source: Box::new(std::io::Error::from(std::io::ErrorKind::TimedOut)),
                    };
                    let answer = client.heartbeat(&request);
                    tokio::time::timeout(wait + BEAT_ANSWER, answer).await.map_err(late)?
                }));
            }
            Command::Start(lease) => self.start(*lease),
            Command::Terminate(key) => self.order(key, Order::Terminate),
            Command::Kill(key, why) => {
                tracing::warn!(task = %key.task, epoch = key.epoch.0, "run process is killed: {why}");
                self.killed_in_drain |= why == KilledFor::Drain;
                self.order(key, Order::Kill);
            }
            Command::Release(key, why) => {
                let client = self.client.clone();
                self.releases.push(Box::pin(async move {
                    let request = ReleaseRequest { epoch: key.epoch, why };
                    (key, client.release(key.task, &request).await)
                }));
            }
            Command::Finish => {}
        }
    }

    fn order(&self, key: Key, order: Order) {
        if let Some(orders) = self.orders.get(&key) {
            orders.send_replace(order);
        }
    }

    fn start(&mut self, lease: Lease) {
        let key = Key::of(&lease);
        let folder = self.scratch.of(&lease);
        tracing::info!(
            task = %lease.task, run = %lease.run, epoch = lease.epoch.0, attempt = lease.attempt,
            "run process starts"
        );
        let keys = self.config.keys.iter();
        let bootstrap = Bootstrap {
            ca: self.config.ca.clone(),
            coordinator: self.client.address().to_owned(),
            lease,
            incarnation: self.incarnation,
            keys: keys.map(|(provider, key)| (provider.clone(), key.expose().to_owned())).collect(),
            scratch: folder.work.clone(),
            progress: Some(folder.progress.clone()),
            fault: Some(folder.fault.clone()),
            cache: self.config.cache.clone(),
            settings: self.config.settings.clone(),
            walls: self.walls.clone(),
            failpoints: self.config.failpoints.clone(),
        };
        let program = &self.config.program;
        let spec = ChildSpec {
            program: program.path.clone(),
            args: program.args.clone(),
            cwd: self.scratch.root().to_owned(),
            env: Vec::new(),
            inherit: program.inherit.clone(),
            stdin_payload: serde_json::to_vec(&bootstrap).expect("plain data with string keys"),
            log: ChildLog::Append(folder.log.clone()),
        };
        let (sender, orders) = watch::channel(Order::Run);
        self.orders.insert(key, sender);
        let hang_after = self.config.hang_after;
        self.runs.push(Box::pin(attend(key, spec, folder, orders, hang_after)));
    }

    fn answered(&mut self) {
        self.spoken = true;
        if std::mem::take(&mut self.away) {
            tracing::info!("the coordinator answers again");
        }
    }

    fn failure(&mut self, error: &ClientError) {
        if !std::mem::replace(&mut self.away, true) {
            tracing::warn!(error = error as &dyn std::error::Error, "will try again; runs go on meanwhile");
        }
    }

    fn lease_failure(&mut self, error: &ClientError) -> Failure {
        let failure = match failure_of(error) {
            Failure::Final if self.spoken && error.problem().is_none() => Failure::Away,
            failure => failure,
        };
        match failure {
            Failure::Away => self.failure(error),
            Failure::Final => {
                tracing::error!(error = error as &dyn std::error::Error, "the coordinator gives no work");
                self.refused = Some(error.to_string());
            }
        }
        failure
    }

    fn release_failure(&mut self, key: Key, error: &ClientError) -> Failure {
        let failure = failure_of(error);
        match failure {
            Failure::Away => self.failure(error),
            Failure::Final => {
                tracing::info!(task = %key.task, epoch = key.epoch.0, error = error as &dyn std::error::Error, "lease not taken back");
            }
        }
        failure
    }

    async fn report(mut self) -> SupervisorReport {
        while self.cleanings.next().await.is_some() {}
        if self.refused.is_none() && self.spoken && !self.away {
            let (incarnation, room) = (self.incarnation, Some(room(&self.state)));
            let request = HeartbeatRequest { incarnation, held: Vec::new(), room, wait_ms: 0 };
            say_goodbye(self.client.clone(), request).await;
        }
        let end = match self.refused {
            Some(why) => SupervisorEnd::Refused(why),
            None if self.killed_in_drain => SupervisorEnd::Killed,
            None => SupervisorEnd::Drained,
        };
        let report = SupervisorReport { incarnation: self.incarnation, end, tally: self.state.tally };
        tracing::info!("worker ended: {report}");
        report
    }
}

/// Tells the coordinator that this worker has ended. Whatever it said of its room before would stand for the time that a
/// worker counts as there, and `docket why` would name its full slots. Nothing depends on this: a worker that is killed
/// says nothing.
async fn say_goodbye(client: Client, request: HeartbeatRequest) {
    match tokio::time::timeout(GOODBYE_TIME_MAX, client.heartbeat(&request)).await {
        Ok(Ok(HeartbeatResponse { .. })) => {}
        Ok(Err(error)) => tracing::debug!(error = &error as &dyn std::error::Error, "no goodbye was said"),
        Err(_) => tracing::debug!("no goodbye was said in time"),
    }
}

fn ms(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

/// What may pass without anything being changed is waited out: only what cannot is the end of a worker.
fn failure_of(error: &ClientError) -> Failure {
    match error.code() {
        Some(
            ProblemCode::Unavailable
            | ProblemCode::TooMany
            | ProblemCode::StorageFull
            | ProblemCode::Corrupt
            | ProblemCode::Internal,
        ) => Failure::Away,
        Some(_) => Failure::Final,
        None if error.is_retryable() => Failure::Away,
        None => Failure::Final,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_is_told_to_wait_waits() {
        for (code, failure) in [
            (ProblemCode::TooMany, Failure::Away),
            (ProblemCode::Unavailable, Failure::Away),
            (ProblemCode::Unauthorized, Failure::Final),
            (ProblemCode::Forbidden, Failure::Final),
        ] {
            let error = ClientError::Refused(Box::new(code.problem("no")));
            assert_eq!(failure_of(&error), failure, "{code:?}");
        }
    }
}

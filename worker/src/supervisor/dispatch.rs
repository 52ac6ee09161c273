//! The loop around `decide`: waits for the next event and executes the resulting commands. It owns all state.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    time::{Duration, Instant},
};

use docket_sandbox::CheckedHost;
use docket_schema::{
    api::{
        HeartbeatRequest, HeartbeatResponse, LEASE_MAX, Lease, LeaseRequest, LeaseResponse, ProblemCode,
        ReleaseRequest, ReleaseResponse,
    },
    ids::IncarnationId,
};
use futures_util::{Stream, StreamExt as _, stream, stream::FuturesUnordered};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    config::SupervisorConfig,
    decide::{NowWithJitter, handle_event, next_wake, worker_room},
    process_supervision::{EndedProcess, ProcessOrder, supervise_process},
    report::{SupervisorEnd, SupervisorError, SupervisorReport},
    scratch::ScratchFolder,
    state::{
        CallFailure, DispatcherCommand, DispatcherEvent, DispatcherState, LeaseKey, RunKillReason,
        WorkerPhase,
    },
};
use crate::{
    bootstrap::RunBootstrap,
    client::{ClientError, CoordinatorClient},
    process::{ChildLog, ChildSpec},
};

/// Time for a heartbeat's reply beyond its wait. Shorter than for other calls: a stalled coordinator must leave time
/// for another attempt within the lease.
const HEARTBEAT_ANSWER_TIME: Duration = Duration::from_secs(5);
/// How long a worker that shuts down waits for the coordinator to acknowledge that.
const GOODBYE_TIME_MAX: Duration = Duration::from_secs(2);

type PendingFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Returns SIGTERM and SIGINT, as the `signals` of [`run_supervisor`].
///
/// # Errors
/// The system does not allow a handler for them.
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

/// Works until the first of `signals`, then drains; the second one skips the grace period.
///
/// `preflight` checks that this host has what runs need (the sandbox), and is awaited before any work is requested:
/// its lines are logged, its error ends the worker.
///
/// # Errors
/// [`SupervisorError`] if the worker cannot start. Later failures are waited out, or end in a report.
pub async fn run_supervisor(
    config: SupervisorConfig,
    preflight: impl Future<Output = Result<PreflightReport, String>> + Send,
    signals: impl Stream<Item = ()> + Unpin + Send,
) -> Result<SupervisorReport, SupervisorError> {
    let client = CoordinatorClient::with_ca(&config.coordinator, config.token.clone(), config.ca.as_deref())
        .map_err(SupervisorError::Client)?;
    let PreflightReport { log_lines: lines, checked_sandbox: walls, sandbox_layers: layers } =
        preflight.await.map_err(SupervisorError::Preflight)?;
    for line in lines {
        tracing::info!("{line}");
    }
    let incarnation = config.incarnation;
    let scratch = ScratchFolder::open(&config.scratch, incarnation)?;
    std::fs::create_dir_all(&config.cache)
        .map_err(|source| SupervisorError::Folder { path: config.cache.clone(), source })?;
    let state = DispatcherState::new(config.slots.clamp(1, LEASE_MAX), config.grace);
    tracing::info!(%incarnation, name = config.name, slots = state.slots, coordinator = client.address(), "worker started");
    let dispatcher = LeaseDispatcher {
        config,
        checked_sandbox: walls,
        sandbox_layers: layers,
        client,
        incarnation,
        scratch,
        state,
        lease: None,
        heartbeat: None,
        runs: FuturesUnordered::new(),
        cleanups: FuturesUnordered::new(),
        order_senders: BTreeMap::new(),
        releases: FuturesUnordered::new(),
        is_unreachable: false,
        has_answered: false,
        refusal_reason: None,
        killed_in_drain: false,
    };
    Ok(dispatcher.run_loop(signals).await)
}

/// The results of the host checks made before any work is requested.
#[derive(Debug, Default)]
pub struct PreflightReport {
    /// Lines to log.
    pub log_lines: Vec<String>,
    /// The sandbox that passed its checks, so that run processes need not repeat them.
    pub checked_sandbox: Option<CheckedHost>,
    /// Names of its layers, for people.
    pub sandbox_layers: Vec<String>,
}

struct LeaseDispatcher {
    config: SupervisorConfig,
    checked_sandbox: Option<CheckedHost>,
    sandbox_layers: Vec<String>,
    client: CoordinatorClient,
    incarnation: IncarnationId,
    scratch: ScratchFolder,
    state: DispatcherState,
    lease: Option<PendingFuture<Result<LeaseResponse, ClientError>>>,
    heartbeat: Option<PendingFuture<Result<HeartbeatResponse, ClientError>>>,
    runs: FuturesUnordered<PendingFuture<EndedProcess>>,
    /// Folders being removed: a large one takes a while, and only shutdown waits for it.
    cleanups: FuturesUnordered<JoinHandle<()>>,
    order_senders: BTreeMap<LeaseKey, watch::Sender<ProcessOrder>>,
    releases: FuturesUnordered<PendingFuture<(LeaseKey, Result<ReleaseResponse, ClientError>)>>,
    /// The coordinator did not answer the last call; logged once.
    is_unreachable: bool,
    /// The coordinator has answered before, so an unexpected reply now is a network problem.
    has_answered: bool,
    refusal_reason: Option<String>,
    killed_in_drain: bool,
}

/// Waits for the pending call; forever if there is none.
async fn await_pending<T>(doing: &mut Option<PendingFuture<T>>) -> T {
    match doing {
        Some(future) => {
            let output = future.await;
            *doing = None;
            output
        }
        None => std::future::pending().await,
    }
}

impl LeaseDispatcher {
    async fn run_loop(mut self, mut signals: impl Stream<Item = ()> + Unpin + Send) -> SupervisorReport {
        let mut event = DispatcherEvent::Started;
        let mut signals_open = true;
        // The coordinator was asked to drain this worker.
        let mut drained = false;
        loop {
            let at = NowWithJitter { now: Instant::now(), jitter: crate::clock::random_jitter() };
            let mut commands = handle_event(&mut self.state, at, event);
            if drained && self.state.phase == WorkerPhase::Leasing {
                tracing::info!("drain requested: no new work, runs finish their turn");
                commands.extend(handle_event(&mut self.state, at, DispatcherEvent::TerminationSignal));
            }
            for command in commands {
                if command == DispatcherCommand::Finish {
                    return self.finish_report().await;
                }
                self.perform_command(command);
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
                        tracing::info!("shutting down: no new work, runs finish their turn");
                        DispatcherEvent::TerminationSignal
                    }
                    None => {
                        signals_open = false;
                        DispatcherEvent::Tick
                    }
                },
                Some(EndedProcess { key, end, reach, fault, folder }) = self.runs.next() => {
                    self.order_senders.remove(&key);
                    self.cleanups.push(tokio::task::spawn_blocking(move || folder.remove_files()));
                    tracing::info!(task = %key.task, epoch = key.epoch.0, %end, "run process ended");
                    match fault {
                        Some(fault) => {
                            let (kind, message) = (fault.kind.as_str(), &fault.message);
                            tracing::error!(kind, message, "a fault of this worker: affected tasks are left to other workers");
                            DispatcherEvent::RunFaulted(key, fault)
                        }
                        None => DispatcherEvent::RunEnded(key, end, reach),
                    }
                }
                answer = await_pending(&mut self.lease) => match answer {
                    Ok(LeaseResponse { leases, held_ms, drain }) => {
                        self.note_answer();
                        drained |= drain;
                        DispatcherEvent::Leased(leases, Duration::from_millis(held_ms))
                    }
                    Err(error) => DispatcherEvent::LeaseFailed(self.classify_lease_failure(&error)),
                },
                answer = await_pending(&mut self.heartbeat) => match answer {
                    Ok(HeartbeatResponse { renewed, lost, drain }) => {
                        self.note_answer();
                        drained |= drain;
                        let lost = lost.into_iter().map(|lost| (lost.task, lost.why)).collect();
                        DispatcherEvent::HeartbeatAcknowledged { renewed, lost }
                    }
                    Err(error) => {
                        self.note_failure(&error);
                        DispatcherEvent::HeartbeatFailed
                    }
                },
                Some(_) = self.cleanups.next() => DispatcherEvent::Tick,
                Some((key, answer)) = self.releases.next() => match answer {
                    Ok(ReleaseResponse { state: _ }) => DispatcherEvent::Released(key),
                    Err(error) => DispatcherEvent::ReleaseFailed(key, self.classify_release_failure(key, &error)),
                },
                () = wait => DispatcherEvent::Tick,
            };
        }
    }

    fn perform_command(&mut self, command: DispatcherCommand) {
        match command {
            DispatcherCommand::Lease { attempt: wanted, wait } => {
                let request = LeaseRequest {
                    incarnation: self.incarnation,
                    number: wanted.number,
                    name: self.config.name.clone(),
                    queues: self.config.queues.clone(),
                    engines: self.config.engines.clone(),
                    labels: self.config.labels.clone(),
                    layers: self.sandbox_layers.clone(),
                    faults: self.state.quarantine.reported_faults(),
                    room: Some(worker_room(&self.state)),
                    max: wanted.max,
                    wait_ms: duration_ms(wait),
                };
                let client = self.client.clone();
                self.lease = Some(Box::pin(async move { client.lease(&request).await }));
            }
            DispatcherCommand::Heartbeat { leases: held, wait } => {
                let (incarnation, room) = (self.incarnation, Some(worker_room(&self.state)));
                let request = HeartbeatRequest { incarnation, held, room, wait_ms: duration_ms(wait) };
                let client = self.client.clone();
                self.heartbeat = Some(Box::pin(async move {
                    let late = |_| ClientError::Unreachable {
                        doing: "renew leases",
                        url: client.address().to_owned(),
                        source: Box::new(std::io::Error::from(std::io::ErrorKind::TimedOut)),
                    };
                    let answer = client.heartbeat(&request);
                    tokio::time::timeout(wait + HEARTBEAT_ANSWER_TIME, answer).await.map_err(late)?
                }));
            }
            DispatcherCommand::Start(lease) => self.start_run(*lease),
            DispatcherCommand::Terminate(key) => self.send_order(key, ProcessOrder::Terminate),
            DispatcherCommand::Kill(key, why) => {
                tracing::warn!(task = %key.task, epoch = key.epoch.0, "killing run process: {why}");
                self.killed_in_drain |= why == RunKillReason::Drain;
                self.send_order(key, ProcessOrder::Kill);
            }
            DispatcherCommand::Release(key, why) => {
                let client = self.client.clone();
                self.releases.push(Box::pin(async move {
                    let request = ReleaseRequest { epoch: key.epoch, why };
                    (key, client.release(key.task, &request).await)
                }));
            }
            DispatcherCommand::Finish => {}
        }
    }

    fn send_order(&self, key: LeaseKey, order: ProcessOrder) {
        if let Some(orders) = self.order_senders.get(&key) {
            orders.send_replace(order);
        }
    }

    fn start_run(&mut self, lease: Lease) {
        let key = LeaseKey::from_lease(&lease);
        let folder = self.scratch.run_folder_for(&lease);
        tracing::info!(
            task = %lease.task, run = %lease.run, epoch = lease.epoch.0, attempt = lease.attempt,
            "starting run process"
        );
        let keys = self.config.keys.iter();
        let bootstrap = RunBootstrap {
            ca: self.config.ca.clone(),
            coordinator: self.client.address().to_owned(),
            lease,
            incarnation: self.incarnation,
            keys: keys.map(|(provider, key)| (provider.clone(), key.expose().to_owned())).collect(),
            scratch: folder.workspace.clone(),
            progress: Some(folder.progress.clone()),
            fault: Some(folder.fault.clone()),
            cache: self.config.cache.clone(),
            settings: self.config.settings.clone(),
            walls: self.checked_sandbox.clone(),
            failpoints: self.config.failpoints.clone(),
        };
        let program = &self.config.program;
        let spec = ChildSpec {
            program: program.path.clone(),
            args: program.args.clone(),
            cwd: self.scratch.root().to_owned(),
            env: Vec::new(),
            inherit: program.inherited_variables.clone(),
            stdin_payload: serde_json::to_vec(&bootstrap).expect("plain data with string keys"),
            log: ChildLog::Append(folder.log.clone()),
        };
        let (sender, orders) = watch::channel(ProcessOrder::Run);
        self.order_senders.insert(key, sender);
        let hang_after = self.config.hang_after;
        self.runs.push(Box::pin(supervise_process(key, spec, folder, orders, hang_after)));
    }

    fn note_answer(&mut self) {
        self.has_answered = true;
        if std::mem::take(&mut self.is_unreachable) {
            tracing::info!("the coordinator responds again");
        }
    }

    fn note_failure(&mut self, error: &ClientError) {
        if !std::mem::replace(&mut self.is_unreachable, true) {
            tracing::warn!(error = error as &dyn std::error::Error, "will retry; runs continue meanwhile");
        }
    }

    fn classify_lease_failure(&mut self, error: &ClientError) -> CallFailure {
        let failure = match classify_client_error(error) {
            CallFailure::Final if self.has_answered && error.problem().is_none() => CallFailure::Retryable,
            failure => failure,
        };
        match failure {
            CallFailure::Retryable => self.note_failure(error),
            CallFailure::Final => {
                tracing::error!(
                    error = error as &dyn std::error::Error,
                    "the coordinator rejects this worker"
                );
                self.refusal_reason = Some(error.to_string());
            }
        }
        failure
    }

    fn classify_release_failure(&mut self, key: LeaseKey, error: &ClientError) -> CallFailure {
        let failure = classify_client_error(error);
        match failure {
            CallFailure::Retryable => self.note_failure(error),
            CallFailure::Final => {
                tracing::info!(task = %key.task, epoch = key.epoch.0, error = error as &dyn std::error::Error, "lease not released");
            }
        }
        failure
    }

    async fn finish_report(mut self) -> SupervisorReport {
        while self.cleanups.next().await.is_some() {}
        if self.refusal_reason.is_none() && self.has_answered && !self.is_unreachable {
            let (incarnation, room) = (self.incarnation, Some(worker_room(&self.state)));
            let request = HeartbeatRequest { incarnation, held: Vec::new(), room, wait_ms: 0 };
            send_final_heartbeat(self.client.clone(), request).await;
        }
        let end = match self.refusal_reason {
            Some(why) => SupervisorEnd::Refused(why),
            None if self.killed_in_drain => SupervisorEnd::Killed,
            None => SupervisorEnd::Drained,
        };
        let report = SupervisorReport { incarnation: self.incarnation, end, tally: self.state.tally };
        tracing::info!("worker ended: {report}");
        report
    }
}

/// Tells the coordinator that this worker has ended. Otherwise its last reported capacity would remain valid until
/// the worker counts as gone, and `docket why` would report its full slots. Nothing depends on this: a worker that is
/// killed reports nothing.
async fn send_final_heartbeat(client: CoordinatorClient, request: HeartbeatRequest) {
    match tokio::time::timeout(GOODBYE_TIME_MAX, client.heartbeat(&request)).await {
        Ok(Ok(HeartbeatResponse { .. })) => {}
        Ok(Err(error)) => tracing::debug!(error = &error as &dyn std::error::Error, "final heartbeat failed"),
        Err(_) => tracing::debug!("final heartbeat timed out"),
    }
}

fn duration_ms(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)
}

/// Classifies a client error: whatever may pass by itself is retried, and only a permanent failure ends the worker.
fn classify_client_error(error: &ClientError) -> CallFailure {
    match error.problem_code() {
        Some(
            ProblemCode::Unavailable
            | ProblemCode::TooMany
            | ProblemCode::StorageFull
            | ProblemCode::Corrupt
            | ProblemCode::Internal,
        ) => CallFailure::Retryable,
        Some(_) => CallFailure::Final,
        None if error.is_retryable() => CallFailure::Retryable,
        None => CallFailure::Final,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retryable_problem_codes_are_retried() {
        for (code, failure) in [
            (ProblemCode::TooMany, CallFailure::Retryable),
            (ProblemCode::Unavailable, CallFailure::Retryable),
            (ProblemCode::Unauthorized, CallFailure::Final),
            (ProblemCode::Forbidden, CallFailure::Final),
        ] {
            let error = ClientError::Problem(Box::new(code.to_problem("no")));
            assert_eq!(classify_client_error(&error), failure, "{code:?}");
        }
    }
}

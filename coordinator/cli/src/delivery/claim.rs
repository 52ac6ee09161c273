//! Delivery claims decide who delivers a result when several processes could: two `docket up` on one store, or
//! one and a person's `docket apply`.
//!
//! A claim is an event of the task's stream, appended only if the stream has not changed since the claimant
//! read it, so of two concurrent claimants one wins. It holds until the outcome is recorded, or for a term
//! after it was last renewed. A waiter measures that term on its own clock from when it first saw the claim, so
//! no two clocks are compared. The holder renews the claim while a push or a hook runs, and aborts the work if
//! it cannot.

use std::{
    collections::HashMap,
    fmt::Write as _,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use docket_schema::{
    api::{DeliveryStep, ProblemCode},
    ids::{RunId, Seq, TaskId},
    task::{DeliveryBlockedReason, DeliveryClaim, DeliveryHistory},
};
use docket_worker::client::{ClientError, CoordinatorClient};
use tokio::time::Instant;

use super::delivery_attempt::{
    DeliveryAttempt, DeliveryFailure, DeliveryReport, DeliveryRequest, deliver, fetch_deliveries_with_head,
};
use crate::{
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind},
    },
};

/// Timing of claims.
#[derive(Debug, Clone, Copy)]
struct ClaimTiming {
    /// How long a claim holds without renewal: longer than a coordinator restart takes.
    term: Duration,
    /// How often a held claim is renewed.
    renew_interval: Duration,
    /// The part of the term that remains when a hanging renewal is given up: time to end the guarded work.
    safety_margin: Duration,
    /// Minimum time between two attempts.
    poll_interval: Duration,
}

/// The timing used in production.
const CLAIM_TIMING: ClaimTiming = ClaimTiming {
    term: Duration::from_secs(30),
    renew_interval: Duration::from_secs(10),
    safety_margin: Duration::from_secs(5),
    poll_interval: CLAIM_POLL_INTERVAL,
};
/// How often a claim is retried because others wrote to the task concurrently.
const CLAIM_TRIES_MAX: u32 = 20;
/// How long a command waits for another process's delivery: one term, plus time for its hook.
const CLAIM_WAIT_MAX: Duration = Duration::from_secs(180);
/// How often a waiting command checks.
const CLAIM_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// File in the home with the name under which its `docket up` delivers.
const CLAIMANT_NAME_FILE: &str = "deliverer.id";

/// A claimant, with the claims of others that it has seen.
#[derive(Debug)]
pub(crate) struct DeliveryClaimant {
    name: String,
    timing: ClaimTiming,
    seen_claims: Mutex<HashMap<TaskId, (Seq, Instant)>>,
}

/// A claim that is held.
#[derive(Debug)]
pub(super) struct HeldClaim {
    push: bool,
    hook: bool,
    since: Instant,
}

impl DeliveryClaimant {
    fn with_name(name: String) -> Self {
        Self { name, timing: CLAIM_TIMING, seen_claims: Mutex::default() }
    }

    /// A claimant for one command.
    pub(crate) fn for_command() -> Self {
        Self::with_name(format!("{}/{}", host_name(), docket_coordinator::clock::new_id().simple()))
    }

    /// The claimant of the `docket up` of `home`. It has the same name after each restart, so claims it held
    /// when it crashed are still its own. Only one process owns a home at a time.
    pub(crate) fn for_home(home: &Path) -> Self {
        let file = home.join(CLAIMANT_NAME_FILE);
        let known = std::fs::read_to_string(&file).unwrap_or_default();
        let known = known.trim();
        if known.len() == 32 && known.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Self::with_name(format!("{}/{known}", host_name()));
        }
        let fresh = docket_coordinator::clock::new_id().simple().to_string();
        if let Err(error) = std::fs::write(&file, &fresh) {
            tracing::warn!(%error, "the deliverer's name cannot be saved; after a crash its claims must expire first");
        }
        Self::with_name(format!("{}/{fresh}", host_name()))
    }

    /// Whether the claim belongs to another claimant and has not yet expired since it was first seen.
    pub(crate) fn is_held_by_other(&self, task: TaskId, claim: &DeliveryClaim) -> bool {
        if claim.claimed.deliverer == self.name {
            return false;
        }
        let mut seen = self.seen_claims.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = seen.entry(task).or_insert((claim.seq, Instant::now()));
        if entry.0 != claim.seq {
            *entry = (claim.seq, Instant::now());
        }
        entry.1.elapsed() < Duration::from_millis(claim.claimed.term_ms)
    }

    fn forget_seen_claim(&self, task: TaskId) {
        self.seen_claims.lock().unwrap_or_else(PoisonError::into_inner).remove(&task);
    }
}

fn host_name() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| "localhost".to_owned())
}

/// The delivery and the claimant of a claim.
#[derive(Debug, Clone, Copy)]
struct ClaimContext<'a> {
    client: &'a CoordinatorClient,
    claims: &'a DeliveryClaimant,
    task: TaskId,
    run: RunId,
}

impl DeliveryAttempt<'_> {
    const fn claim_context(&self) -> ClaimContext<'_> {
        ClaimContext {
            client: self.client,
            claims: self.claimant,
            task: self.request.task.id,
            run: self.request.run,
        }
    }

    /// Claims the delivery unless it is already done, and reads the log again. `commit` is the commit being
    /// delivered, if any. An older claim of our own is renewed, so it holds for a while from now.
    pub(super) async fn claim(&mut self, commit: Option<&str>) -> Result<(), DeliveryFailure> {
        if let Some(held) = &self.held_claim {
            let at = Instant::now();
            if at.duration_since(held.since) >= self.claimant.timing.renew_interval {
                let found = self.claim_context().renew(held).await?;
                self.recorded.hooks = found.hooks;
                self.held_claim = self.held_claim.take().map(|held| HeldClaim { since: at, ..held });
            }
            return Ok(());
        }
        let failed = |failure| DeliveryFailure::Retryable(DeliveryBlockedReason::Repository, failure);
        let task = self.request.task.id;
        for _ in 0..CLAIM_TRIES_MAX {
            let (found, seq) = fetch_deliveries_with_head(self.client, task).await.map_err(failed)?;
            self.recorded = found;
            if let Some(claim) =
                self.recorded.claim.as_ref().filter(|claim| self.claimant.is_held_by_other(task, claim))
            {
                return Err(DeliveryFailure::ClaimedElsewhere(claim.claimed.deliverer.clone()));
            }
            let (push, hook) = match commit {
                Some(commit) => (self.request.push.is_some(), self.wants_hook(commit)),
                None => (false, false),
            };
            let since = Instant::now();
            match self.claim_context().write_claim(seq, push, hook).await {
                Ok(()) => {
                    self.claimant.forget_seen_claim(task);
                    self.held_claim = Some(HeldClaim { push, hook, since });
                    return Ok(());
                }
                Err(error) if error.problem_code() == Some(ProblemCode::WrongState) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
        let why = "the task's stream changes too often to claim its delivery";
        Err(failed(CliError::new(ExitKind::Failed, why)))
    }

    /// Runs `work` while renewing the claim, and aborts it if the claim is lost.
    pub(super) async fn run_guarded<T>(&self, work: impl Future<Output = T>) -> Result<T, DeliveryFailure> {
        match &self.held_claim {
            None => Ok(work.await),
            Some(held) => self.claim_context().run_guarded(held, work).await,
        }
    }
}

impl ClaimContext<'_> {
    async fn write_claim(&self, expected: Seq, push: bool, hook: bool) -> Result<(), ClientError> {
        let term_ms = u64::try_from(self.claims.timing.term.as_millis()).unwrap_or(u64::MAX);
        self.write_claim_for(term_ms, expected, (push, hook)).await
    }

    /// Releases the claim so that the next claimant can start at once. If this fails, the claim expires by
    /// itself.
    async fn release(&self) {
        let Ok((found, seq)) = fetch_deliveries_with_head(self.client, self.task).await else { return };
        let Some(DeliveryClaim { claimed, .. }) = found.claim else { return };
        if claimed.deliverer == self.claims.name
            && let Err(error) = self.write_claim_for(0, seq, (claimed.push, claimed.hook)).await
        {
            tracing::debug!(%error, "the delivery claim will expire by itself");
        }
    }

    async fn write_claim_for(
        &self,
        term_ms: u64,
        expected: Seq,
        (push, hook): (bool, bool),
    ) -> Result<(), ClientError> {
        let deliverer = self.claims.name.clone();
        let step = DeliveryStep::Claimed { deliverer, term_ms, expected, push, hook };
        self.client.record_delivery(self.task, self.run, step).await.map(drop)
    }

    async fn run_guarded<T>(
        &self,
        held: &HeldClaim,
        work: impl Future<Output = T>,
    ) -> Result<T, DeliveryFailure> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            lost = self.renew_until_lost(held) => Err(lost),
        }
    }

    /// Completes when the claim is lost or may be. Others count the term from when they saw the claim, which is
    /// no earlier than we wrote it.
    async fn renew_until_lost(&self, held: &HeldClaim) -> DeliveryFailure {
        let ClaimTiming { term, renew_interval: renewed, safety_margin: spare, poll_interval: look_again } =
            self.claims.timing;
        let mut last = held.since;
        let mut missed = None;
        loop {
            tokio::time::sleep(renewed.saturating_sub(last.elapsed()).max(look_again)).await;
            let at = Instant::now();
            // Aborted in time: hanging work must not outlive the claim.
            let left = term.saturating_sub(spare).saturating_sub(last.elapsed());
            match tokio::time::timeout(left, self.renew(held)).await {
                Ok(Ok(_)) => last = at,
                Ok(Err(undone @ DeliveryFailure::ClaimedElsewhere(_))) => return undone,
                // A coordinator that refuses at once never reaches the timeout.
                Ok(Err(undone)) if left.is_zero() => return undone,
                Ok(Err(undone)) => missed = Some(undone),
                Err(_) => {
                    let late = "the coordinator did not answer in time to renew the claim on this delivery";
                    return missed.unwrap_or_else(|| {
                        DeliveryFailure::Retryable(
                            DeliveryBlockedReason::Repository,
                            CliError::new(ExitKind::Unreachable, late),
                        )
                    });
                }
            }
        }
    }

    /// Renews the claim and returns what the log says about the task's deliveries.
    async fn renew(&self, held: &HeldClaim) -> Result<DeliveryHistory, DeliveryFailure> {
        let failed = |failure| DeliveryFailure::Retryable(DeliveryBlockedReason::Repository, failure);
        loop {
            let (found, seq) = fetch_deliveries_with_head(self.client, self.task).await.map_err(failed)?;
            let own = |claim: &&DeliveryClaim| claim.claimed.deliverer == self.claims.name;
            if let Some(other) = found.claim.as_ref().filter(|claim| !own(claim)) {
                return Err(DeliveryFailure::ClaimedElsewhere(other.claimed.deliverer.clone()));
            }
            match self.write_claim(seq, held.push, held.hook).await {
                Ok(()) => return Ok(found),
                // Someone else wrote to the task concurrently.
                Err(error) if error.problem_code() == Some(ProblemCode::WrongState) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
    }
}

/// Delivers a result for a command, waiting while another process delivers it.
pub(crate) async fn deliver_or_wait(
    cx: &CliContext,
    client: &CoordinatorClient,
    ask: &DeliveryRequest<'_>,
) -> CliResult<DeliveryReport> {
    let (claims, began) = (DeliveryClaimant::for_command(), Instant::now());
    let mut told = String::new();
    loop {
        match Box::pin(deliver(cx, client, &claims, ask)).await {
            Ok(done) => return Ok(done),
            Err(DeliveryFailure::ClaimedElsewhere(who)) if began.elapsed() < CLAIM_WAIT_MAX => {
                if told.is_empty() {
                    let _ = write!(told, "{who} is delivering this result; waiting");
                    display::print_note(&display::sanitize_line(&told));
                }
                tokio::time::sleep(CLAIM_POLL_INTERVAL).await;
            }
            Err(undone) => {
                // The failed attempt is over, so a new attempt does not wait.
                let of = ClaimContext { client, claims: &claims, task: ask.task.id, run: ask.run };
                of.release().await;
                return Err(undone.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use docket_coordinator::{
        clock::{self, Clock},
        http::{ApiToken, TokenRole},
        server::{self, ServerConfig},
        store::{Store, sqlite},
    };
    use docket_schema::{
        api::{LeaseRequest, SubmitRequest},
        content::BlobRef,
        ids::IncarnationId,
        run::EngineRef,
        snapshot::Manifest,
    };
    use docket_worker::secret::Secret;
    use serde_json::json;

    use super::*;

    const TOKEN: &str = "dkt_0123456789abcdef0123456789abcdef";
    /// Shorter than [`CLAIM_TIMING`], but long enough to survive a machine that stalls for a second.
    const FAST: ClaimTiming = ClaimTiming {
        term: Duration::from_millis(3000),
        renew_interval: Duration::from_millis(250),
        safety_margin: Duration::from_millis(500),
        poll_interval: Duration::from_millis(50),
    };

    /// A coordinator with a task that has a run.
    struct TestCoordinator {
        running: server::RunningServer,
        store: std::sync::Arc<dyn Store>,
        client: CoordinatorClient,
        task: TaskId,
        run: RunId,
        _folder: tempfile::TempDir,
    }

    impl TestCoordinator {
        async fn open() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let store: std::sync::Arc<dyn Store> =
                std::sync::Arc::new(sqlite::open(&folder.path().join("docket.db")).await.expect("opens"));
            let config =
                ServerConfig::loopback(0, vec![ApiToken::from_token("tester", TokenRole::Admin, TOKEN)]);
            let clock = std::sync::Arc::new(Clock::new());
            let running =
                server::start_server(std::sync::Arc::clone(&store), config, clock).await.expect("serves");
            let client = CoordinatorClient::new(&running.url(), Secret::new(TOKEN).expect("a token"))
                .expect("a client");
            let task = submit(&client).await;
            let request = LeaseRequest {
                labels: docket_schema::task::LabelSet::default(),
                layers: Vec::new(),
                faults: Vec::new(),
                room: None,
                incarnation: IncarnationId(clock::new_id()),
                number: 1,
                name: "worker".to_owned(),
                queues: Vec::new(),
                engines: vec![EngineRef { name: "react".to_owned(), version: 1 }],
                max: 1,
                wait_ms: 0,
            };
            let run = client.lease(&request).await.expect("leases").leases[0].run;
            Self { running, store, client, task, run, _folder: folder }
        }

        const fn claim_context<'a>(&'a self, claims: &'a DeliveryClaimant) -> ClaimContext<'a> {
            ClaimContext { client: &self.client, claims, task: self.task, run: self.run }
        }

        async fn read_deliveries(&self) -> (DeliveryHistory, Seq) {
            fetch_deliveries_with_head(&self.client, self.task).await.expect("reads")
        }

        async fn claim(&self, claims: &DeliveryClaimant) -> HeldClaim {
            let (_, seq) = self.read_deliveries().await;
            self.claim_context(claims).write_claim(seq, false, true).await.expect("claims");
            HeldClaim { push: false, hook: true, since: Instant::now() }
        }

        async fn close(self) {
            self.running.shutdown().await;
            self.store.close().await;
        }
    }

    /// Submits a task that no worker takes.
    async fn submit(client: &CoordinatorClient) -> TaskId {
        let bytes = Manifest::default().encode();
        let base = json!({ "manifest": BlobRef::for_bytes(&bytes), "tree": Manifest::default().tree_hash() });
        client.put_blob(BlobRef::for_bytes(&bytes), bytes.into()).await.expect("stores");
        let model = json!({ "provider": "scripted", "name": "none" });
        let task = json!({ "title": "A task", "text": "Nothing is asked.", "base": base, "model": model });
        let tasks = vec![serde_json::from_value(task).expect("a task")];
        client.submit(&SubmitRequest { tasks, ids: None }).await.expect("submits").tasks[0].id
    }

    fn fast_claimant(name: &str) -> DeliveryClaimant {
        DeliveryClaimant { timing: FAST, ..DeliveryClaimant::with_name(name.to_owned()) }
    }

    #[tokio::test]
    async fn claim_is_renewed_while_guarded_work_runs() {
        let house = TestCoordinator::open().await;
        let (own, other) = (fast_claimant("own"), fast_claimant("other"));
        let held = house.claim(&own).await;
        let first = house.read_deliveries().await.0.claim.expect("a claim");
        assert!(other.is_held_by_other(house.task, &first));
        // Longer than its term, while another claimant keeps checking whether it can take over.
        let watched = async {
            let (began, mut seen) = (Instant::now(), std::collections::BTreeSet::new());
            while began.elapsed() < FAST.term * 2 {
                let claim = house.read_deliveries().await.0.claim.expect("a claim");
                assert!(other.is_held_by_other(house.task, &claim), "it expired after {:?}", began.elapsed());
                seen.insert(claim.seq);
                tokio::time::sleep(FAST.poll_interval).await;
            }
            seen.len()
        };
        let times = house.claim_context(&own).run_guarded(&held, watched).await.expect("keeps it");
        assert!(times > 3, "it was written {times} times");
        // Control: a claim that is not renewed expires for every observer.
        let last = house.read_deliveries().await.0.claim.expect("a claim");
        assert!(other.is_held_by_other(house.task, &last));
        tokio::time::sleep(FAST.term + FAST.renew_interval).await;
        assert!(!other.is_held_by_other(house.task, &last));
        house.close().await;
    }

    #[tokio::test]
    async fn guarded_work_is_cancelled_when_the_claim_is_lost() {
        let house = TestCoordinator::open().await;
        let own = fast_claimant("own");
        let held = house.claim(&own).await;
        house.claim(&fast_claimant("other")).await;
        let hangs = std::future::pending::<()>();
        let lost = house.claim_context(&own).run_guarded(&held, hangs).await;
        assert!(matches!(&lost, Err(DeliveryFailure::ClaimedElsewhere(who)) if who == "other"), "{lost:?}");
        // The work does not outlive a claim that cannot be renewed: it ends before others consider the term
        // over.
        let held = house.claim(&own).await;
        let TestCoordinator { running, store, client, task, run, _folder } = house;
        running.shutdown().await;
        store.close().await;
        let began = Instant::now();
        let of = ClaimContext { client: &client, claims: &own, task, run };
        let hangs = of.run_guarded(&held, std::future::pending::<()>());
        let lost = tokio::time::timeout(FAST.term * 4, hangs).await.expect("it ends");
        assert!(matches!(lost, Err(DeliveryFailure::Retryable(..))), "{lost:?}");
        assert!(began.elapsed() < FAST.term, "{:?}", began.elapsed());
    }
}

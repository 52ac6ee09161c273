//! Who delivers a result, where several could: two `docket up` on one store, or one and a person's `docket apply`.
//!
//! A claim is an event of the task's stream, written only where nothing was written since its claimant looked; so of
//! two who look at once one gets it. It holds until what was claimed is told, or for a term after it was last written.
//! Who waits counts that term on a clock of their own from when they first saw the claim: no two clocks are compared.
//! Who holds it writes it again while a push or a hook goes on, and breaks that off where it cannot.

use std::{
    collections::HashMap,
    fmt::Write as _,
    path::Path,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use docket_schema::{
    ids::{RunId, Seq, TaskId},
    task::{Claim, Deliveries, DeliveryBlockedWhy},
    wire::{DeliveryStep, ProblemCode},
};
use docket_worker::client::{Client, ClientError};
use tokio::time::Instant;

use super::steps::{Ask, Done, Under, Undone, deliver, deliveries_at};
use crate::{
    context::Context,
    output::{
        display,
        fail::{Exit, Failure, Outcome},
    },
};

/// How a claim is kept.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// How long it holds where it is not written again: longer than a coordinator takes to come back.
    term: Duration,
    /// How often one that is held is written again.
    renewed: Duration,
    /// What is left of the term when a renewal that hangs is given up: time to end what it guards.
    spare: Duration,
    /// Least time between two tries.
    look_again: Duration,
}

/// As it is done.
const PACE: Pace = Pace {
    term: Duration::from_secs(30),
    renewed: Duration::from_secs(10),
    spare: Duration::from_secs(5),
    look_again: LOOK_AGAIN,
};
/// How often a claim is tried again because others wrote to the task meanwhile.
const LOOKS_MAX: u32 = 20;
/// How long a command waits for somebody else's delivery: a term, and some more for their hook.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often it looks meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// File in the home that holds the name under which its `docket up` delivers.
const NAME: &str = "deliverer.id";

/// A claimant, and the claims of others that it has seen.
#[derive(Debug)]
pub(crate) struct Claims {
    name: String,
    pace: Pace,
    seen: Mutex<HashMap<TaskId, (Seq, Instant)>>,
}

/// A claim that is held.
#[derive(Debug)]
pub(super) struct Held {
    push: bool,
    hook: bool,
    since: Instant,
}

impl Claims {
    /// A claimant of this name.
    fn named(name: String) -> Self {
        Self { name, pace: PACE, seen: Mutex::default() }
    }

    /// For one command.
    pub(crate) fn once() -> Self {
        Self::named(format!("{}/{}", host(), docket_coordinator::clock::new_id().simple()))
    }

    /// For the `docket up` of `home`: under the same name after each start, so that what it had claimed when it died
    /// is its own. A home is one process's at a time.
    pub(crate) fn of_home(home: &Path) -> Self {
        let file = home.join(NAME);
        let known = std::fs::read_to_string(&file).unwrap_or_default();
        let known = known.trim();
        if known.len() == 32 && known.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Self::named(format!("{}/{known}", host()));
        }
        let fresh = docket_coordinator::clock::new_id().simple().to_string();
        if let Err(error) = std::fs::write(&file, &fresh) {
            tracing::warn!(%error, "the deliverer's name cannot be kept; after a crash its claims have to lapse");
        }
        Self::named(format!("{}/{fresh}", host()))
    }

    /// Whether it is somebody else's, and has not stood there for its term since it was seen first.
    pub(crate) fn is_anothers(&self, task: TaskId, claim: &Claim) -> bool {
        if claim.claimed.deliverer == self.name {
            return false;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = seen.entry(task).or_insert((claim.seq, Instant::now()));
        if entry.0 != claim.seq {
            *entry = (claim.seq, Instant::now());
        }
        entry.1.elapsed() < Duration::from_millis(claim.claimed.term_ms)
    }

    fn forget(&self, task: TaskId) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(&task);
    }
}

fn host() -> String {
    let name = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    name.unwrap_or_else(|| "localhost".to_owned())
}

/// Which delivery a claim is of, and whose the claim is.
#[derive(Debug, Clone, Copy)]
struct Of<'a> {
    client: &'a Client,
    claims: &'a Claims,
    task: TaskId,
    run: RunId,
}

impl Under<'_> {
    const fn of_claim(&self) -> Of<'_> {
        Of { client: self.client, claims: self.claims, task: self.ask.task.id, run: self.ask.run }
    }

    /// Claims the delivery, unless that is done; and looks again at what the log says. `commit` is what is delivered,
    /// where something is. One that was written a while ago is written again: so it holds for some time from here on.
    pub(super) async fn claim(&mut self, commit: Option<&str>) -> Result<(), Undone> {
        if let Some(held) = &self.held {
            let at = Instant::now();
            if at.duration_since(held.since) >= self.claims.pace.renewed {
                let found = self.of_claim().renewed(held).await?;
                self.before.hooks = found.hooks;
                self.held = self.held.take().map(|held| Held { since: at, ..held });
            }
            return Ok(());
        }
        let failed = |failure| Undone::Failed(DeliveryBlockedWhy::Repository, failure);
        let task = self.ask.task.id;
        for _ in 0..LOOKS_MAX {
            let (found, seq) = deliveries_at(self.client, task).await.map_err(failed)?;
            self.before = found;
            if let Some(claim) =
                self.before.claim.as_ref().filter(|claim| self.claims.is_anothers(task, claim))
            {
                return Err(Undone::Elsewhere(claim.claimed.deliverer.clone()));
            }
            let (push, hook) = match commit {
                Some(commit) => (self.ask.push.is_some(), self.wants_hook(commit)),
                None => (false, false),
            };
            let since = Instant::now();
            match self.of_claim().write(seq, push, hook).await {
                Ok(()) => {
                    self.claims.forget(task);
                    self.held = Some(Held { push, hook, since });
                    return Ok(());
                }
                Err(error) if error.code() == Some(ProblemCode::WrongState) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
        let why = "others write to the task so often that its delivery cannot be claimed";
        Err(failed(Failure::new(Exit::Failed, why)))
    }

    /// Does `work` while the claim is written again and again; breaks it off where the claim is lost.
    pub(super) async fn guarded<T>(&self, work: impl Future<Output = T>) -> Result<T, Undone> {
        match &self.held {
            None => Ok(work.await),
            Some(held) => self.of_claim().guarded(held, work).await,
        }
    }
}

impl Of<'_> {
    async fn write(&self, expected: Seq, push: bool, hook: bool) -> Result<(), ClientError> {
        let term_ms = u64::try_from(self.claims.pace.term.as_millis()).unwrap_or(u64::MAX);
        self.write_for(term_ms, expected, (push, hook)).await
    }

    /// Lets the next one begin at once. Where that cannot be said the claim lapses by itself.
    async fn give_back(&self) {
        let Ok((found, seq)) = deliveries_at(self.client, self.task).await else { return };
        let Some(Claim { claimed, .. }) = found.claim else { return };
        if claimed.deliverer == self.claims.name
            && let Err(error) = self.write_for(0, seq, (claimed.push, claimed.hook)).await
        {
            tracing::debug!(%error, "the claim of a delivery lapses by itself");
        }
    }

    async fn write_for(
        &self,
        term_ms: u64,
        expected: Seq,
        (push, hook): (bool, bool),
    ) -> Result<(), ClientError> {
        let deliverer = self.claims.name.clone();
        let step = DeliveryStep::Claimed { deliverer, term_ms, expected, push, hook };
        self.client.delivery(self.task, self.run, step).await.map(drop)
    }

    async fn guarded<T>(&self, held: &Held, work: impl Future<Output = T>) -> Result<T, Undone> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            lost = self.keep(held) => Err(lost),
        }
    }

    /// Ends when the claim is lost, or may be: others count its term from when they saw it, which is no earlier.
    async fn keep(&self, held: &Held) -> Undone {
        let Pace { term, renewed, spare, look_again } = self.claims.pace;
        let mut last = held.since;
        let mut missed = None;
        loop {
            tokio::time::sleep(renewed.saturating_sub(last.elapsed()).max(look_again)).await;
            let at = Instant::now();
            // Broken off in time: what hangs must not outlive the claim.
            let left = term.saturating_sub(spare).saturating_sub(last.elapsed());
            match tokio::time::timeout(left, self.renewed(held)).await {
                Ok(Ok(_)) => last = at,
                Ok(Err(undone @ Undone::Elsewhere(_))) => return undone,
                // A coordinator that refuses at once never lets a time run out.
                Ok(Err(undone)) if left.is_zero() => return undone,
                Ok(Err(undone)) => missed = Some(undone),
                Err(_) => {
                    let late = "the coordinator did not answer in time to keep the claim of this delivery";
                    return missed.unwrap_or_else(|| {
                        Undone::Failed(DeliveryBlockedWhy::Repository, Failure::new(Exit::Unreachable, late))
                    });
                }
            }
        }
    }

    /// Writes the claim again; what the log says of the task's deliveries.
    async fn renewed(&self, held: &Held) -> Result<Deliveries, Undone> {
        let failed = |failure| Undone::Failed(DeliveryBlockedWhy::Repository, failure);
        loop {
            let (found, seq) = deliveries_at(self.client, self.task).await.map_err(failed)?;
            let own = |claim: &&Claim| claim.claimed.deliverer == self.claims.name;
            if let Some(other) = found.claim.as_ref().filter(|claim| !own(claim)) {
                return Err(Undone::Elsewhere(other.claimed.deliverer.clone()));
            }
            match self.write(seq, held.push, held.hook).await {
                Ok(()) => return Ok(found),
                // Somebody wrote to the task meanwhile.
                Err(error) if error.code() == Some(ProblemCode::WrongState) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
    }
}

/// Hands a result over for a command: waits where somebody else is at it.
pub(crate) async fn deliver_now(cx: &Context, client: &Client, ask: &Ask<'_>) -> Outcome<Done> {
    let (claims, began) = (Claims::once(), Instant::now());
    let mut told = String::new();
    loop {
        match Box::pin(deliver(cx, client, &claims, ask)).await {
            Ok(done) => return Ok(done),
            Err(Undone::Elsewhere(who)) if began.elapsed() < PATIENCE => {
                if told.is_empty() {
                    let _ = write!(told, "{who} is delivering it at this moment; waiting for that");
                    display::note(&display::line(&told));
                }
                tokio::time::sleep(LOOK_AGAIN).await;
            }
            Err(undone) => {
                // What failed is over: whoever tries again waits for nobody.
                let of = Of { client, claims: &claims, task: ask.task.id, run: ask.run };
                of.give_back().await;
                return Err(undone.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use docket_coordinator::{
        clock::{self, Clock},
        http::{ApiToken, Role},
        server::{self, ServerConfig},
        store::{Store, sqlite},
    };
    use docket_schema::{
        content::BlobRef,
        ids::IncarnationId,
        run::EngineRef,
        snapshot::Manifest,
        wire::{LeaseRequest, SubmitRequest},
    };
    use docket_worker::secret::Secret;
    use serde_json::json;

    use super::*;

    const TOKEN: &str = "dkt_0123456789abcdef0123456789abcdef";
    /// Shorter than [`PACE`], and long enough that a machine may stand still for a second meanwhile.
    const FAST: Pace = Pace {
        term: Duration::from_millis(3000),
        renewed: Duration::from_millis(250),
        spare: Duration::from_millis(500),
        look_again: Duration::from_millis(50),
    };

    /// A coordinator with a task that has a run.
    struct House {
        running: server::Running,
        store: std::sync::Arc<dyn Store>,
        client: Client,
        task: TaskId,
        run: RunId,
        _folder: tempfile::TempDir,
    }

    impl House {
        async fn open() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let store: std::sync::Arc<dyn Store> =
                std::sync::Arc::new(sqlite::open(&folder.path().join("docket.db")).await.expect("opens"));
            let config = ServerConfig::loopback(0, vec![ApiToken::of("tester", Role::Admin, TOKEN)]);
            let clock = std::sync::Arc::new(Clock::new());
            let running = server::start(std::sync::Arc::clone(&store), config, clock).await.expect("serves");
            let client = Client::new(&running.url(), Secret::new(TOKEN).expect("a token")).expect("a client");
            let task = submit(&client).await;
            let request = LeaseRequest {
                labels: docket_schema::task::Labels::default(),
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

        const fn of<'a>(&'a self, claims: &'a Claims) -> Of<'a> {
            Of { client: &self.client, claims, task: self.task, run: self.run }
        }

        async fn look(&self) -> (Deliveries, Seq) {
            deliveries_at(&self.client, self.task).await.expect("reads")
        }

        /// Claims it.
        async fn claim(&self, claims: &Claims) -> Held {
            let (_, seq) = self.look().await;
            self.of(claims).write(seq, false, true).await.expect("claims");
            Held { push: false, hook: true, since: Instant::now() }
        }

        async fn close(self) {
            self.running.shutdown().await;
            self.store.close().await;
        }
    }

    /// A task that no worker takes by itself.
    async fn submit(client: &Client) -> TaskId {
        let bytes = Manifest::default().encode();
        let base = json!({ "manifest": BlobRef::of(&bytes), "tree": Manifest::default().tree_hash() });
        client.put_blob(BlobRef::of(&bytes), bytes.into()).await.expect("stores");
        let model = json!({ "provider": "scripted", "name": "none" });
        let task = json!({ "title": "A task", "text": "Nothing is asked.", "base": base, "model": model });
        let tasks = vec![serde_json::from_value(task).expect("a task")];
        client.submit(&SubmitRequest { tasks, ids: None }).await.expect("submits").tasks[0].id
    }

    fn claims(name: &str) -> Claims {
        Claims { pace: FAST, ..Claims::named(name.to_owned()) }
    }

    #[tokio::test]
    async fn a_claim_is_written_again_while_what_it_guards_goes_on() {
        let house = House::open().await;
        let (own, other) = (claims("own"), claims("other"));
        let held = house.claim(&own).await;
        let first = house.look().await.0.claim.expect("a claim");
        assert!(other.is_anothers(house.task, &first));
        // Longer than its term, and looked at all the while by somebody who would take it over.
        let watched = async {
            let (began, mut seen) = (Instant::now(), std::collections::BTreeSet::new());
            while began.elapsed() < FAST.term * 2 {
                let claim = house.look().await.0.claim.expect("a claim");
                assert!(other.is_anothers(house.task, &claim), "it lapsed after {:?}", began.elapsed());
                seen.insert(claim.seq);
                tokio::time::sleep(FAST.look_again).await;
            }
            seen.len()
        };
        let times = house.of(&own).guarded(&held, watched).await.expect("keeps it");
        assert!(times > 3, "it was written {times} times");
        // Control: one that is not written again lapses for whoever looks.
        let last = house.look().await.0.claim.expect("a claim");
        assert!(other.is_anothers(house.task, &last));
        tokio::time::sleep(FAST.term + FAST.renewed).await;
        assert!(!other.is_anothers(house.task, &last));
        house.close().await;
    }

    #[tokio::test]
    async fn what_is_guarded_is_broken_off_where_the_claim_is_lost() {
        let house = House::open().await;
        let own = claims("own");
        let held = house.claim(&own).await;
        house.claim(&claims("other")).await;
        let hangs = std::future::pending::<()>();
        let lost = house.of(&own).guarded(&held, hangs).await;
        assert!(matches!(&lost, Err(Undone::Elsewhere(who)) if who == "other"), "{lost:?}");
        // Nor does it outlive a claim that cannot be written again: it ends before others count its term as over.
        let held = house.claim(&own).await;
        let House { running, store, client, task, run, _folder } = house;
        running.shutdown().await;
        store.close().await;
        let began = Instant::now();
        let of = Of { client: &client, claims: &own, task, run };
        let hangs = of.guarded(&held, std::future::pending::<()>());
        let lost = tokio::time::timeout(FAST.term * 4, hangs).await.expect("it ends");
        assert!(matches!(lost, Err(Undone::Failed(..))), "{lost:?}");
        assert!(began.elapsed() < FAST.term, "{:?}", began.elapsed());
    }
}

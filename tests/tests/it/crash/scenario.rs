//! One scenario: the story, and one kill at one place of its log.

use std::{collections::HashSet, sync::Arc};

use anyhow::{Context as _, Result, bail, ensure};
use docket_schema::{api::TaskView, ids::QueueName, task::TaskSpec};
use docket_tests::{
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, Signal, StoreLocation, WAIT_MAX, WorkerOptions, WorkerProcess,
        acquire_scenario_slot, fresh_database, print_notice, send_signal,
    },
};
use docket_worker::bootstrap::{Failpoint, FailpointTarget, FailpointTiming};
use tokio::task::JoinSet;

use super::reference_run::{
    ReferenceRun, WORDS, check_history, completed_history, reference_run, sleep_point, start_model_server,
    submit_reference_task, submit_template,
};

/// Epochs for which the words' place is told to the workers: one kill makes two, and a machine that
/// is so slow that a lease expires meanwhile makes another.
const EPOCHS_MAX: u64 = 4;

/// At most one in so many scenarios may lose a lease because the machine stood still: were it more,
/// leases would be lost for a reason.
const STALLS_PART: usize = 8;

/// Between two looks at a run that goes its way.
const LOOK: std::time::Duration = std::time::Duration::from_millis(25);

/// Who is killed with kill -9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The run process; its supervisor lives and gives the lease back.
    Run,
    /// The supervisor, and the run process with it; another worker comes.
    Supervisor,
    /// The coordinator; it is started again at once.
    Coordinator,
    /// The coordinator, by itself, after it committed the append and before it answers: a living driver sends
    /// it again to the one that is started next.
    Unanswered,
}

/// Where it happens: the n-th append of the undisturbed run, at one of its sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BoundaryCrash {
    pub(crate) victim: Victim,
    pub(crate) append: usize,
    pub(crate) when: FailpointTiming,
}

/// Every boundary of the story, for one victim.
pub(crate) fn all_crashes(story: &ReferenceRun, victim: Victim) -> Vec<BoundaryCrash> {
    let sides = [FailpointTiming::Before, FailpointTiming::After];
    let places =
        (0..story.appends.len()).flat_map(|append| sides.map(|when| BoundaryCrash { victim, append, when }));
    places.collect()
}

/// Between commit and answer of one append of each kind.
pub(crate) fn unanswered_crashes(story: &ReferenceRun) -> Vec<BoundaryCrash> {
    let mut seen = HashSet::new();
    let mut kind = |append: usize| {
        let mut kinds = story.appends[append].kinds.clone();
        kinds.dedup();
        seen.insert(kinds)
    };
    let appends = (0..story.appends.len()).filter(|append| kind(*append));
    appends
        .map(|append| BoundaryCrash { victim: Victim::Unanswered, append, when: FailpointTiming::After })
        .collect()
}

impl BoundaryCrash {
    fn crash_seq(self, story: &ReferenceRun) -> u64 {
        *story.appends[self.append].seqs.start()
    }

    /// Where words are said and where the victim dies. The sleeper comes first: where both are at one
    /// place, the words are in the log before the kill.
    fn failpoints(self, story: &ReferenceRun, coordinator: i32) -> Vec<Failpoint> {
        let whom = match self.victim {
            Victim::Run => FailpointTarget::Run,
            Victim::Supervisor => FailpointTarget::Supervisor,
            Victim::Coordinator => FailpointTarget::Process(coordinator),
            // It obeys a failpoint of its own.
            Victim::Unanswered => return self.sleep_points(story),
        };
        let crash = Failpoint { seq: self.crash_seq(story), when: self.when, epoch: 1, whom };
        self.sleep_points(story).into_iter().chain([crash]).collect()
    }

    /// A recovery is an event more before the words, but for a run that had not begun.
    fn sleep_points(self, story: &ReferenceRun) -> Vec<Failpoint> {
        let anew =
            self.append == 0 && self.when == FailpointTiming::Before && self.victim != Victim::Coordinator;
        let recoveries = |epoch: u64| epoch - 1 - u64::from(anew && epoch > 1);
        (1..=EPOCHS_MAX).map(|epoch| sleep_point(story.told_at + recoveries(epoch), epoch)).collect()
    }

    /// Whether the run is over when the victim dies.
    fn is_at_the_end(self, story: &ReferenceRun) -> bool {
        self.append + 1 == story.appends.len() && self.when == FailpointTiming::After
    }

    fn queue(self) -> Result<QueueName> {
        Ok(format!("{:?}-{}-{:?}", self.victim, self.append, self.when).parse()?)
    }
}

/// The coordinator of a scenario.
enum ScenarioHost {
    /// Shared with others.
    Shared(Arc<CoordinatorProcess>),
    /// Its own, to be killed.
    Own(Box<CoordinatorProcess>),
}

impl ScenarioHost {
    fn get(&self) -> &CoordinatorProcess {
        match self {
            Self::Shared(coordinator) => coordinator,
            Self::Own(coordinator) => coordinator,
        }
    }

    /// Starts a coordinator that died again; says whether one had.
    async fn revive(&mut self) -> Result<bool> {
        let Self::Own(coordinator) = self else { return Ok(false) };
        let died = coordinator.process().try_exit_status().is_some();
        if died {
            coordinator.restart().await?;
        }
        Ok(died)
    }
}

/// A run under way.
struct ScenarioRun {
    story: &'static ReferenceRun,
    crash: BoundaryCrash,
    host: ScenarioHost,
    worker: WorkerProcess,
    kills: usize,
    told: bool,
}

impl ScenarioRun {
    /// Waits for the task's end: says the words, replaces who died.
    async fn wait_for_end(&mut self, task: docket_schema::ids::TaskId) -> Result<TaskView> {
        let deadline = tokio::time::Instant::now() + WAIT_MAX;
        let sleepers = self.crash.sleep_points(self.story);
        loop {
            if tokio::time::Instant::now() > deadline {
                bail!("the run does not end");
            }
            self.kills += usize::from(self.host.revive().await?);
            if self.worker.process().try_exit_status().is_some() {
                self.kills += 1;
                let queue = Some(self.crash.queue()?);
                let options =
                    WorkerOptions { queue, failpoints: sleepers.clone(), ..WorkerOptions::default() };
                self.worker = WorkerProcess::start(self.host.get(), &options).await?;
            }
            // A coordinator that is being killed does not answer; the next look finds another.
            if let Ok(view) = self.host.get().client().get_task(task).await {
                if view.task.state.is_ended() {
                    return Ok(view);
                }
                self.send_message(&view, &sleepers).await?;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn send_message(&mut self, view: &TaskView, sleepers: &[Failpoint]) -> Result<()> {
        let Some(run) = view.runs.last() else { return Ok(()) };
        let next = run.head.seq.0 + 1;
        if !sleepers.iter().any(|point| point.seq == next) {
            return Ok(());
        }
        let Some(pid) = self.worker.suspended_run() else { return Ok(()) };
        if !self.told {
            self.host.get().client().send_message(run.id, WORDS).await?;
            self.told = true;
        }
        send_signal(pid, Signal::SIGCONT);
        Ok(())
    }
}

/// Plays one scenario on `host` and checks all that must hold after it. Gives the host back, and
/// whether a lease was lost that nobody's death explains.
async fn play_crash(
    story: &'static ReferenceRun,
    crash: BoundaryCrash,
    host: ScenarioHost,
    spec: &TaskSpec,
) -> Result<(ScenarioHost, bool)> {
    let server = start_model_server().await?;
    let queue = crash.queue()?;
    let failpoints = crash.failpoints(story, host.get().pid());
    let options = WorkerOptions { queue: Some(queue.clone()), failpoints, ..WorkerOptions::default() };
    let worker = WorkerProcess::start(host.get(), &options).await?;
    let task = submit_reference_task(host.get(), spec, &queue, &server).await?;
    let mut play = ScenarioRun { story, crash, host, worker, kills: 0, told: false };
    let view = play.wait_for_end(task).await;
    let logs = format!("{}\n{}", play.worker.process().log_tail(), play.host.get().log_tail());
    let coordinator = play.host.get();
    let done = async {
        let view = view?;
        let history = completed_history(coordinator, &view).await?;
        check_history(story, coordinator, &history, server.call_count()).await?;
        let epochs = view.task.epoch.0;
        match crash.victim {
            Victim::Run | Victim::Supervisor if crash.is_at_the_end(story) => {}
            Victim::Run | Victim::Supervisor => {
                ensure!(epochs > 1, "nobody died: {}", history.format_kinds())
            }
            Victim::Unanswered => ensure!(play.kills == 1, "nobody died"),
            Victim::Coordinator => ensure!(play.kills == 1 || crash.is_at_the_end(story), "nobody died"),
        }
        // A coordinator that is away for longer than the lease costs one too: that is its kill's.
        Ok(history.count_kind("RunRecovered") > 1)
    };
    let stalled = done.await.with_context(|| logs)?;
    Ok((play.host, stalled))
}

/// Plays all `crashes` on one store, some at a time, and names every one that failed.
pub(crate) async fn sweep(crashes: Vec<BoundaryCrash>, cluster: Option<&PostgresCluster>) -> Result<()> {
    let story = reference_run().await?;
    let mut scenarios = JoinSet::new();
    let shared = Arc::new(CoordinatorProcess::start(new_place(cluster).await?, LeaseDuration::Short).await?);
    let spec = submit_template(&shared).await?;
    for crash in crashes {
        let permit = acquire_scenario_slot().await;
        let own = match crash.victim {
            Victim::Coordinator | Victim::Unanswered => Some(new_place(cluster).await?),
            Victim::Run | Victim::Supervisor => None,
        };
        let (shared, spec) = (Arc::clone(&shared), spec.clone());
        scenarios.spawn(async move {
            let _permit = permit;
            let played = async {
                match own {
                    None => play_crash(story, crash, ScenarioHost::Shared(shared), &spec)
                        .await
                        .map(|(_, stalled)| stalled),
                    Some(place) => {
                        let lease = LeaseDuration::Short;
                        let coordinator = match crash.victim {
                            Victim::Unanswered => {
                                CoordinatorProcess::start_with_crash_before_reply(
                                    place,
                                    lease,
                                    crash.crash_seq(story),
                                )
                                .await?
                            }
                            Victim::Run | Victim::Supervisor | Victim::Coordinator => {
                                CoordinatorProcess::start(place, lease).await?
                            }
                        };
                        let coordinator = Box::new(coordinator);
                        let spec = submit_template(&coordinator).await?;
                        let (host, stalled) =
                            play_crash(story, crash, ScenarioHost::Own(coordinator), &spec).await?;
                        if let ScenarioHost::Own(coordinator) = host {
                            coordinator.end_and_check().await?;
                        }
                        Ok(stalled)
                    }
                }
            };
            (crash, played.await)
        });
    }
    let (mut failed, mut stalls, count) = (Vec::new(), 0, scenarios.len());
    while let Some(joined) = scenarios.join_next().await {
        match joined.context("a scenario panicked")? {
            (_, Ok(stalled)) => stalls += usize::from(stalled),
            (crash, Err(error)) => {
                failed.push(format!("{crash:?} at seq {}: {error:?}", crash.crash_seq(story)))
            }
        }
    }
    print_notice(&format!("{count} boundaries; {stalls} leases lost beside the kills"));
    ensure!(stalls * STALLS_PART <= count, "{stalls} of {count} leases were lost without a reason");
    ensure!(failed.is_empty(), "{} scenarios failed:\n{}", failed.len(), failed.join("\n\n"));
    let shared = Arc::into_inner(shared).context("all scenarios are over")?;
    shared.end_and_check().await
}

/// A place for a coordinator's log.
pub(crate) async fn new_place(cluster: Option<&PostgresCluster>) -> Result<StoreLocation> {
    match cluster {
        None => Ok(StoreLocation::HomeFolder),
        Some(cluster) => fresh_database(cluster).await,
    }
}

//! A run that gives work away, and one kill at one place of its log or of its children's: a `react` run with two children,
//! one of which writes, a `review` run whose executor has one that writes, and runs of `architect`, `team` and `sop` whose
//! roles have some. The team's tester has a file put back that is not its own to change.
//!
//! A failpoint names a place by seq and epoch, and every run process of the worker obeys it: so one scenario kills
//! whichever of the logs has an append there, parent and children alike, and each must come to the same end.
//!
//! Of the first family everybody dies at every boundary, on one of the stores by turns. Of the second each boundary is one store's for
//! the run process and the other's for its supervisor, by turns; the coordinator dies at one side of each place. Of each
//! other somebody dies at every boundary, on one of the stores: who and where goes by turns.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::{ChildView, TaskView},
    ids::{QueueName, Seq, StreamId, TaskId, TreeHash},
    run::RunEvent,
    task::{SettingsPatch, TaskSpec, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, RecordedAppend, RepeatedWork, RunHistory, SampleRepository,
        StoreLocation, WAIT_MAX, WorkerOptions, WorkerProcess, acquire_scenario_slot, print_notice,
    },
};
use docket_worker::{
    bootstrap::{Failpoint, FailpointTarget, FailpointTiming},
    model::{ModelProvider, ScriptedModel},
};
use tokio::task::JoinSet;

use super::scenario::{Victim, new_place};

const PARENT: &str = r#"
[[turns]]
calls = [
  { name = "run_command", args = { command = "echo one >> log.txt" } },
  { name = "create_file", args = { path = "own.txt", content = "own\n" } },
]
[[turns]]
calls = [
  { name = "delegate", args = { title = "Make", instructions = "make it", writes = true, model = "openai:makes" } },
  { name = "delegate", args = { title = "Look", instructions = "look at it", model = "openai:looks" } },
]
[[turns]]
calls = [{ name = "run_command", args = { command = "cat made.txt >> log.txt" } }]
[[turns]]
text = "Done."
"#;

const MAKES: &str = r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "echo child >> log.txt; cp own.txt made.txt" } }]
[[turns]]
text = "Made it."
"#;

const LOOKS: &str = r#"
[[turns]]
calls = [{ name = "read_file", args = { path = "log.txt" } }]
[[turns]]
text = "Saw it."
"#;

/// The executor's first answer is three batches, of which the second is given away.
const REVIEW_PARENT: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
text = '["Have it made"]'
[[talks]]
role = "executor"
[[talks.turns]]
calls = [
  { name = "run_command", args = { command = "echo one >> log.txt; echo own > own.txt" } },
  { name = "delegate", args = { title = "Make", instructions = "make it", writes = true, engine = "react", model = "openai:makes" } },
  { name = "run_command", args = { command = "cat made.txt >> log.txt" } },
]
[[talks.turns]]
text = '{"success": true, "output": "made"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "finish", "reason": "it is there"}'
"#;

/// Whoever plans has something looked up; what is to be done is a command.
const ARCHITECT_PARENT: &str = r#"
[[talks]]
role = "architect"
[[talks.turns]]
calls = [{ name = "delegate", args = { title = "Look", instructions = "look at it", model = "openai:looks" } }]
[[talks.turns]]
text = '{"actions": [{"kind": "command", "cmd": "echo three >> log.txt"}]}'
[[talks]]
role = "verifier"
[[talks.turns]]
text = '{"verdict": "accept", "reason": "it is there"}'
"#;

/// The coder gives its work away; the tester spoils what it may not write.
const TEAM_PARENT: &str = r#"
[[talks]]
role = "orchestrator"
opening_contains = "All roles have spoken"
[[talks.turns]]
text = '{"action": "finish", "summary": "made"}'
[[talks]]
role = "orchestrator"
[[talks.turns]]
text = '{"action": "hand_over", "brief": "Do your part.", "results": ["task"]}'
[[talks]]
role = "architect"
[[talks.turns]]
text = '{"design": "Make it.", "files": []}'
[[talks]]
role = "coder"
[[talks.turns]]
calls = [
  { name = "run_command", args = { command = "echo own > own.txt" } },
  { name = "delegate", args = { title = "Make", instructions = "make it", writes = true, engine = "react", model = "openai:makes" } },
  { name = "run_command", args = { command = "cat made.txt >> log.txt" } },
]
[[talks.turns]]
text = '{"done": true, "summary": "made"}'
[[talks]]
role = "tester"
[[talks.turns]]
calls = [
  { name = "run_command", args = { command = "mkdir -p tests; echo '# one' >> tests/test_log.py; echo spoiled >> log.txt; rm own.txt" } },
  { name = "run_command", args = { command = "cat own.txt && ! grep spoiled log.txt && echo '# seen' >> tests/test_log.py" } },
]
[[talks.turns]]
text = '{"outcome": "passed", "summary": "it is there"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "approve", "summary": "right"}'
"#;

/// The planner has something looked up, the builder has something made.
const SOP_PARENT: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
calls = [{ name = "delegate", args = { title = "Look", instructions = "look at it", model = "openai:looks" } }]
[[talks.turns]]
calls = [{ name = "plan_card", args = { summary = "two files", steps = ["make one"], files = ["made.txt", "own.txt", "log.txt"] } }]
[[talks]]
role = "builder"
[[talks.turns]]
calls = [
  { name = "run_command", args = { command = "echo own > own.txt" } },
  { name = "delegate", args = { title = "Make", instructions = "make it", writes = true, engine = "react", model = "openai:makes" } },
  { name = "run_command", args = { command = "cat made.txt >> log.txt" } },
  { name = "diff_card", args = { rationale = "both are wanted" } },
]
[[talks]]
role = "reviewer"
[[talks.turns]]
calls = [{ name = "review_report", args = { risks = ["none: a few words"], recommendations = [] } }]
[[talks.turns]]
calls = [{ name = "complete_task", args = { summary = "made" } }]
"#;

/// A parent and its children.
#[derive(Debug, Clone, Copy)]
struct DelegatingRun {
    engine: &'static str,
    parent: &'static str,
    children: usize,
    /// Results that say what of their call was put back.
    put_back: usize,
}

/// Two children of a `react` run.
const REACT: DelegatingRun = DelegatingRun { engine: "react", parent: PARENT, children: 2, put_back: 0 };

/// A child of the executor of a `review` run.
const REVIEW: DelegatingRun =
    DelegatingRun { engine: "review", parent: REVIEW_PARENT, children: 1, put_back: 0 };

/// Children of roles of the other engines that give work away.
const OTHERS: [DelegatingRun; 3] = [
    DelegatingRun { engine: "architect", parent: ARCHITECT_PARENT, children: 1, put_back: 0 },
    DelegatingRun { engine: "team", parent: TEAM_PARENT, children: 1, put_back: 1 },
    DelegatingRun { engine: "sop", parent: SOP_PARENT, children: 2, put_back: 0 },
];

/// Epochs under which failpoints are set: the parent rests once, a kill makes another, and so does a lease that is lost
/// because the machine stood still.
const EPOCHS: [u64; 3] = [1, 2, 3];

/// What the undisturbed run came to.
struct UndisturbedFamily {
    tree: TreeHash,
    /// Answers of the models of the parent and of each child.
    answered: Vec<usize>,
    /// Where appends of the three logs begin.
    seqs: BTreeSet<u64>,
    /// Where the parent's words of its children stand.
    delegated: BTreeSet<u64>,
    /// Of `seqs` those of appends that end a lease: who dies behind one has lost nothing.
    ends: BTreeSet<u64>,
}

async fn start_model_server(family: DelegatingRun) -> Result<ModelServer> {
    let scripts = [("parent", family.parent), ("makes", MAKES), ("looks", LOOKS)];
    let mut by_model = BTreeMap::new();
    for (name, script) in scripts {
        by_model.insert(name.to_owned(), ScriptedModel::parse(script.as_bytes())?);
    }
    Ok(ModelServer::start_by_model(by_model).await?)
}

async fn submit_template(coordinator: &CoordinatorProcess, family: DelegatingRun) -> Result<TaskSpec> {
    let sample = SampleRepository::new(&[("log.txt", "zero\n")])?;
    let args = ["--model", "openai:parent", "--queue", "template", "--engine", family.engine];
    let (task, spec) = sample.submit(coordinator, &args).await?;
    coordinator.client().cancel(task, "a template").await?;
    Ok(TaskSpec {
        settings: SettingsPatch { delegation_depth_max: Some(1), ..SettingsPatch::default() },
        tests: Some("true".to_owned()),
        ..spec
    })
}

async fn play_undisturbed(family: DelegatingRun) -> Result<UndisturbedFamily> {
    let coordinator = CoordinatorProcess::start(new_place(None).await?, LeaseDuration::Usual).await?;
    let (spec, server) = (submit_template(&coordinator, family).await?, start_model_server(family).await?);
    let queue: QueueName = "undisturbed".parse()?;
    let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let task =
        coordinator.submit_like(&spec, &queue, server.model_ref(ModelProvider::OpenAi, "parent")).await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    let histories = family_histories(&coordinator, &view, family).await?;
    // What children answered is written by the coordinator: no worker is there to die.
    let mut appends: Vec<RecordedAppend> = histories.iter().flat_map(RunHistory::appends).collect();
    appends.retain(|append| append.kinds != ["ChildAnswered"]);
    let seqs = appends.iter().map(|append| *append.seqs.start()).collect();
    let over = |kind: &String| matches!(kind.as_str(), "RunBlocked" | "RunEnded");
    let ends = appends.iter().filter(|append| append.kinds.iter().any(over));
    let ends = ends.map(|append| *append.seqs.start()).collect();
    let parent = histories.first().context("a parent")?;
    let words = parent.envelopes.iter().filter(|event| event.kind == "Delegated").map(|event| event.seq.0);
    let (tree, delegated) = (parent.final_tree().context("a tree at the end")?, words.collect());
    let answered = histories.iter().map(|history| history.count_kind("ModelAnswered")).collect();
    ensure!(count_restored_files(parent) == family.put_back, "what was put back: {}", parent.format_kinds());
    worker.drain().await?;
    coordinator.end_and_check().await?;
    Ok(UndisturbedFamily { tree, answered, seqs, delegated, ends })
}

/// The logs of the parent and of its children, each of which must have ended well by its first run.
async fn family_histories(
    coordinator: &CoordinatorProcess,
    view: &TaskView,
    family: DelegatingRun,
) -> Result<Vec<RunHistory>> {
    let run = view.task.last_run.context("a run")?;
    let children = coordinator.client().list_children(run).await?.children;
    let mut all = Vec::new();
    for task in std::iter::once(&view.task).chain(children.iter().map(|ChildView { view, .. }| &view.task)) {
        let history = coordinator.run_history(task.last_run.context("a run")?).await?;
        ensure!(
            task.state == TaskState::Completed && task.runs == 1 && task.failures == 0,
            "{} {:?} after {} runs: {:?}; {}",
            task.spec.title,
            task.state,
            task.runs,
            task.message,
            history.format_kinds()
        );
        all.push(history);
    }
    ensure!(all.len() == family.children + 1, "a parent and its children: {}", all.len());
    Ok(all)
}

/// How many results say that something of their call was put back.
fn count_restored_files(history: &RunHistory) -> usize {
    let ends = history.events.iter().filter_map(|event| match event {
        RunEvent::ToolFinished(end) => Some(&end.facts.put_back),
        _ => None,
    });
    ends.filter(|paths| !paths.is_empty()).count()
}

fn task_id(history: &RunHistory) -> Option<TaskId> {
    history.events.iter().find_map(|event| match event {
        RunEvent::RunStarted(started) => Some(started.task),
        _ => None,
    })
}

/// Nobody died, for a lease was lost before the place of the kill came: the machine stood still.
#[derive(Debug)]
struct StalledScenario;

impl std::fmt::Display for StalledScenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody died: a lease was lost before the place of the kill came")
    }
}

impl std::error::Error for StalledScenario {}

/// How often a kill is tried whose place a stall of the machine took away.
const TRIES_MAX: usize = 3;

/// One kill.
#[derive(Debug, Clone, Copy)]
struct FamilyCrash {
    victim: Victim,
    seq: u64,
    when: FailpointTiming,
}

impl FamilyCrash {
    fn failpoints(self, coordinator: i32) -> Vec<Failpoint> {
        let whom = match self.victim {
            Victim::Run => FailpointTarget::Run,
            Victim::Supervisor => FailpointTarget::Supervisor,
            Victim::Coordinator => FailpointTarget::Process(coordinator),
            Victim::Unanswered => return Vec::new(),
        };
        EPOCHS.map(|epoch| Failpoint { seq: self.seq, when: self.when, epoch, whom }).to_vec()
    }

    fn queue(self) -> Result<QueueName> {
        Ok(format!("{:?}-{}-{:?}", self.victim, self.seq, self.when).parse()?)
    }
}

/// Waits for the parent's end, and replaces who died; says how many did.
async fn wait_for_end(
    crash: FamilyCrash,
    host: &mut Arc<CoordinatorProcess>,
    worker: &mut WorkerProcess,
    task: TaskId,
) -> Result<(TaskView, usize)> {
    let deadline = tokio::time::Instant::now() + WAIT_MAX;
    let mut kills = 0;
    loop {
        ensure!(tokio::time::Instant::now() < deadline, "the run does not end\n{}", worker.log_tail());
        // Only one of its own may die.
        if let Some(own) = Arc::get_mut(host)
            && own.process().try_exit_status().is_some()
        {
            kills += 1;
            own.restart().await?;
        }
        if worker.process().try_exit_status().is_some() {
            kills += 1;
            let options = WorkerOptions { queue: Some(crash.queue()?), ..WorkerOptions::default() };
            *worker = WorkerProcess::start(host, &options).await?;
        }
        if let Ok(view) = host.client().get_task(task).await
            && view.task.state.is_ended()
        {
            return Ok((view, kills));
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
}

async fn play_crash(
    (whole, family): (&UndisturbedFamily, DelegatingRun),
    crash: FamilyCrash,
    mut host: Arc<CoordinatorProcess>,
    spec: &TaskSpec,
) -> Result<Arc<CoordinatorProcess>> {
    let (server, queue) = (start_model_server(family).await?, crash.queue()?);
    let failpoints = crash.failpoints(host.pid());
    let options = WorkerOptions { queue: Some(queue.clone()), failpoints, ..WorkerOptions::default() };
    let mut worker = WorkerProcess::start(&host, &options).await?;
    let task = host.submit_like(spec, &queue, server.model_ref(ModelProvider::OpenAi, "parent")).await?;
    let played = wait_for_end(crash, &mut host, &mut worker, task).await;
    let logs = format!("{}\n{}", worker.log_tail(), host.log_tail());
    let checked = async {
        let (view, kills) = played?;
        let all = family_histories(&host, &view, family).await?;
        let parent = all.first().context("a parent")?;
        ensure!(
            parent.final_tree() == Some(whole.tree),
            "another tree than undisturbed: {}",
            parent.format_kinds()
        );
        for (history, answered) in all.iter().zip(&whole.answered) {
            let kinds = || history.format_kinds();
            ensure!(history.count_kind("ModelAnswered") == *answered, "answers lost or doubled: {}", kinds());
            ensure!(
                history.count_kind("RunStarted") == 1 && history.count_kind("RunEnded") == 1,
                "{}",
                kinds()
            );
            let RepeatedWork { model_calls, batches } = history.repeated_work()?;
            let recoveries = history.count_kind("RunRecovered").max(1);
            ensure!(
                model_calls <= recoveries && batches <= recoveries,
                "{model_calls}, {batches}: {}",
                kinds()
            );
            history.verify(host.client()).await?;
        }
        for kind in ["Delegated", "ChildAnswered"] {
            ensure!(
                parent.count_kind(kind) + 1 == all.len(),
                "{kind} lost or doubled: {}",
                parent.format_kinds()
            );
        }
        let died = match crash.victim {
            _ if crash.when == FailpointTiming::After && whole.ends.contains(&crash.seq) => true,
            Victim::Run => {
                let ids = all.iter().filter_map(task_id);
                let mut crashed = 0;
                for task in ids {
                    let page = host.client().list_stream_events(&StreamId::Task(task), Seq(0), None).await?;
                    // On a machine that stands still its lease may be lost before its death is told.
                    let died = |kind: &str| matches!(kind, "TaskRunCrashed" | "TaskLeaseExpired");
                    crashed += page.events.iter().filter(|event| died(&event.kind)).count();
                }
                crashed > 0
            }
            Victim::Supervisor | Victim::Coordinator | Victim::Unanswered => kills > 0,
        };
        if !died && all.iter().any(|history| history.count_kind("RunRecovered") > 0) {
            return Err(StalledScenario.into());
        }
        ensure!(died, "nobody died: {}", parent.format_kinds());
        Ok(())
    };
    checked.await.with_context(|| logs)?;
    Ok(host)
}

/// The deaths of one store.
type CrashSelection = fn(&UndisturbedFamily, bool) -> Vec<FamilyCrash>;

const SIDES: [FailpointTiming; 2] = [FailpointTiming::Before, FailpointTiming::After];

/// Everybody, everywhere; each death on one of the stores.
fn all_crashes(whole: &UndisturbedFamily, is_postgres: bool) -> Vec<FamilyCrash> {
    let mut crashes = Vec::new();
    for victim in [Victim::Run, Victim::Supervisor, Victim::Coordinator, Victim::Unanswered] {
        let (seqs, sides) = match victim {
            Victim::Unanswered => (&whole.delegated, &[FailpointTiming::After][..]),
            Victim::Run | Victim::Supervisor | Victim::Coordinator => (&whole.seqs, &SIDES[..]),
        };
        let places = seqs.iter().flat_map(|seq| sides.iter().map(|when| (*seq, *when)));
        crashes.extend(places.map(|(seq, when)| FamilyCrash { victim, seq, when }));
    }
    // By pairs, so that either store has both sides of appends, and of each append somebody's death on both.
    let own = |nth: &usize| (nth / 2 + nth % 2) % 2 == usize::from(is_postgres);
    crashes.into_iter().enumerate().filter(|(nth, _)| own(nth)).map(|(_, crash)| crash).collect()
}

/// Shared out over the stores, as the module says.
fn alternating_crashes(whole: &UndisturbedFamily, is_postgres: bool) -> Vec<FamilyCrash> {
    let store = usize::from(is_postgres);
    let mut crashes = Vec::new();
    for (nth, seq) in whole.seqs.iter().copied().enumerate() {
        for (side, when) in SIDES.into_iter().enumerate() {
            let victim = if (nth + side) % 2 == store { Victim::Run } else { Victim::Supervisor };
            crashes.push(FamilyCrash { victim, seq, when });
        }
        if (nth / 2) % 2 == store {
            crashes.push(FamilyCrash { victim: Victim::Coordinator, seq, when: SIDES[nth % 2] });
        }
    }
    crashes
}

/// Somebody at each boundary, on one of the stores.
fn one_crash_per_boundary(whole: &UndisturbedFamily, is_postgres: bool) -> Vec<FamilyCrash> {
    const VICTIMS: [Victim; 3] = [Victim::Run, Victim::Supervisor, Victim::Coordinator];
    let places = whole.seqs.iter().flat_map(|seq| SIDES.map(|when| (*seq, when)));
    // By pairs: were the stores to alternate, each would have one side of all.
    let own = places.enumerate().filter(|(nth, _)| (nth / 2 + nth % 2) % 2 == usize::from(is_postgres));
    own.map(|(nth, (seq, when))| FamilyCrash { victim: VICTIMS[nth % VICTIMS.len()], seq, when }).collect()
}

/// Everybody dies at every boundary of the logs of the `react` family, shared out over the stores.
pub(crate) async fn sweep_react(cluster: Option<&PostgresCluster>) -> Result<()> {
    sweep_family(REACT, all_crashes, cluster).await
}

/// The same of the `review` family, shared out over the stores.
pub(crate) async fn sweep_review(cluster: Option<&PostgresCluster>) -> Result<()> {
    sweep_family(REVIEW, alternating_crashes, cluster).await
}

/// Of each other family somebody dies at each boundary, on one of the stores.
pub(crate) async fn sweep_other_engines(cluster: Option<&PostgresCluster>) -> Result<()> {
    for family in OTHERS {
        Box::pin(sweep_family(family, one_crash_per_boundary, cluster)).await?;
    }
    Ok(())
}

fn is_stall(error: &anyhow::Error) -> bool {
    error.downcast_ref::<StalledScenario>().is_some()
}

/// One scenario, at a coordinator that others share or at its own place.
async fn play_on_coordinator(
    (whole, family): (&UndisturbedFamily, DelegatingRun),
    crash: FamilyCrash,
    (shared, own): (Arc<CoordinatorProcess>, Option<StoreLocation>),
    spec: &TaskSpec,
) -> Result<()> {
    let Some(own) = own else { return play_crash((whole, family), crash, shared, spec).await.map(drop) };
    let lease = LeaseDuration::Short;
    let host = match crash.victim {
        Victim::Unanswered => {
            CoordinatorProcess::start_with_crash_before_reply(own, lease, crash.seq).await?
        }
        Victim::Run | Victim::Supervisor | Victim::Coordinator => {
            CoordinatorProcess::start(own, lease).await?
        }
    };
    let spec = submit_template(&host, family).await?;
    let host = play_crash((whole, family), crash, Arc::new(host), &spec).await?;
    Arc::into_inner(host).context("nobody else has it")?.end_and_check().await
}

async fn sweep_family(
    family: DelegatingRun,
    deaths: CrashSelection,
    cluster: Option<&PostgresCluster>,
) -> Result<()> {
    let whole = Arc::new(play_undisturbed(family).await?);
    ensure!(!whole.delegated.is_empty() && whole.seqs.len() > 8, "{:?}", whole.seqs);
    let shared = Arc::new(CoordinatorProcess::start(new_place(cluster).await?, LeaseDuration::Short).await?);
    let spec = submit_template(&shared, family).await?;
    let (mut scenarios, mut failed) = (JoinSet::new(), Vec::new());
    let mut due: VecDeque<(FamilyCrash, usize)> =
        deaths(&whole, cluster.is_some()).into_iter().map(|crash| (crash, 1)).collect();
    let (count, mut again) = (due.len(), 0);
    loop {
        let Some((crash, nth)) = due.pop_front() else {
            let Some(joined) = scenarios.join_next().await else { break };
            match joined.context("a scenario panicked")? {
                (_, _, Ok(())) => {}
                (crash, nth, Err(error)) if nth < TRIES_MAX && is_stall(&error) => {
                    again += 1;
                    due.push_back((crash, nth + 1));
                }
                (crash, _, Err(error)) => failed.push(format!("{crash:?}: {error:?}")),
            }
            continue;
        };
        let permit = acquire_scenario_slot().await;
        let own = match crash.victim {
            Victim::Coordinator | Victim::Unanswered => Some(new_place(cluster).await?),
            Victim::Run | Victim::Supervisor => None,
        };
        let (whole, shared, spec) = (Arc::clone(&whole), Arc::clone(&shared), spec.clone());
        scenarios.spawn(async move {
            let _permit = permit;
            let played = Box::pin(play_on_coordinator((&whole, family), crash, (shared, own), &spec)).await;
            (crash, nth, played)
        });
    }
    let engine = family.engine;
    print_notice(&format!(
        "{count} deaths at boundaries of a run of `{engine}` with children; {again} were played again"
    ));
    ensure!(failed.is_empty(), "{} scenarios failed:\n{}", failed.len(), failed.join("\n\n"));
    Arc::into_inner(shared).context("all scenarios are over")?.end_and_check().await
}

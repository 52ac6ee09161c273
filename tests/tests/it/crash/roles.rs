//! A run of each engine with roles, and one kill at one place of its log.
//!
//! The boundaries are shared out over two stores by a rule, so that each is met and the sweep stays short. Of
//! the n-th append the side before it is number 2n, the side behind it 2n + 1; where n plus the side is even, the run
//! process dies on SQLite and its supervisor on PostgreSQL, else the other way round; PostgreSQL has every third append. So at
//! every boundary of every engine one of both dies on SQLite, and at every third the other on PostgreSQL. The
//! coordinator knows no engines, only appends: it dies once at each append, at both sides in turns, two on one store and
//! two on the other; the turns begin elsewhere for each engine.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::{QueueName, TreeHash},
    task::{TaskSpec, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::PostgresCluster,
    scripted_talks::{idle_team_talks, role_talk},
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

/// The engines, in the order that begins their turns, each with a script.
fn engine_scripts() -> [(&'static str, &'static str); 5] {
    static TEAM: LazyLock<String> = LazyLock::new(team_script);
    [("plan", PLAN), ("review", REVIEW), ("architect", ARCHITECT), ("team", &TEAM), ("sop", SOP)]
}

/// A plan with a file that is made, one that is changed by a second try, and a command that adds to a file: run twice, it
/// would add twice.
const PLAN: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
text = '''{"steps": [{"kind": "edit", "path": "made.txt", "text": "make it"},
 {"kind": "command", "command": "echo once >> log.txt"},
 {"kind": "edit", "path": "log.txt", "text": "say two"}]}'''
[[talks]]
role = "executor"
opening_contains = "could not be applied"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: log.txt
-zero
+two
*** End Patch"""
[[talks]]
role = "executor"
opening_contains = "The file `log.txt`"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: log.txt
-nine
+two
*** End Patch"""
[[talks]]
role = "executor"
[[talks.turns]]
text = """
*** Begin Patch
*** Add File: made.txt
+made
*** End Patch"""
"#;

/// A step that fails after it wrote, another plan, a verdict, the end.
const REVIEW: &str = r#"
[[talks]]
role = "planner"
opening_contains = "asked again"
[[talks.turns]]
text = '["Make it", "Add to it"]'
[[talks]]
role = "planner"
[[talks.turns]]
text = '["Try it"]'
[[talks]]
role = "executor"
opening_contains = "of 1: Try it"
[[talks.turns]]
calls = [{ name = "run_command", args = { command = "echo tried >> log.txt" } }]
[[talks.turns]]
text = "It did not work."
[[talks]]
role = "executor"
opening_contains = "of 2: Make it"
[[talks.turns]]
calls = [{ name = "write_file", args = { path = "made.txt", content = "made\n" } }]
[[talks.turns]]
text = '{"success": true, "output": "made"}'
[[talks]]
role = "executor"
[[talks.turns]]
calls = [{ name = "run_command", args = { command = "cat made.txt >> log.txt" } }]
[[talks.turns]]
text = '{"success": true, "output": "added"}'
[[talks]]
role = "reviewer"
opening_contains = "Step 2 is done"
[[talks.turns]]
text = '{"verdict": "finish", "reason": "it is there"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "continue", "reason": "made"}'
"#;

/// A file that is made by a second try, a command that adds to a file, the difference, a verdict that rejects it; then a
/// second plan, and a verdict that accepts.
const ARCHITECT: &str = r#"
[[talks]]
role = "architect"
opening_contains = "asked again"
[[talks.turns]]
text = '''{"actions": [{"kind": "edit", "file": "made.txt", "description": "mend it"}]}'''
[[talks]]
role = "architect"
[[talks.turns]]
text = '''{"actions": [{"kind": "edit", "file": "made.txt", "description": "make it"},
 {"kind": "command", "cmd": "cat made.txt >> log.txt"}]}'''
[[talks]]
role = "coder"
opening_contains = "mend it"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: made.txt
-made
+mended
*** End Patch"""
[[talks]]
role = "coder"
opening_contains = "could not be applied"
[[talks.turns]]
text = """
*** Begin Patch
*** Add File: made.txt
+made
*** End Patch"""
[[talks]]
role = "coder"
[[talks.turns]]
text = """
*** Begin Patch
*** Update File: made.txt
-nothing
+made
*** End Patch"""
[[talks]]
role = "verifier"
opening_contains = "+mended"
[[talks.turns]]
text = '{"verdict": "accept", "reason": "it is there"}'
[[talks]]
role = "verifier"
[[talks.turns]]
text = '{"verdict": "reject", "reason": "it is made, and was to be mended"}'
"#;

/// A coder that says it is not done: a round that cannot be finished. Then a second from the coder on, and the end. Each round
/// has a command that adds to a file, a test of it, and checks of what the tester says.
fn team_script() -> String {
    let command = |line: &str| format!("!{{ name = \"run_command\", args = {{ command = \"{line}\" }} }}");
    let brief =
        |words: &str| format!(r#"{{"action": "hand_over", "brief": "{words}", "results": ["task"]}}"#);
    let again = r#"{"action": "again", "reason": "a half is lacking", "from": "coder"}"#;
    let passed = r#"{"outcome": "passed", "summary": "it is there once"}"#;
    let (half, whole) =
        (r#"{"done": false, "summary": "a half"}"#, r#"{"done": true, "summary": "the other half"}"#);
    [
        role_talk("orchestrator", "It cannot be finished", &[again]),
        role_talk("orchestrator", "All roles have spoken", &[r#"{"action": "finish", "summary": "added"}"#]),
        role_talk("orchestrator", "Round 2 of", &[&brief("Do the rest.")]),
        role_talk("orchestrator", "", &[&brief("Do your part.")]),
        role_talk("coder", "Do the rest.", &[&command("echo twice >> log.txt"), whole]),
        role_talk("coder", "", &[&command("echo once >> log.txt"), half]),
        role_talk("tester", "", &[&command("grep -c once log.txt"), passed]),
        idle_team_talks(),
    ]
    .concat()
}

/// A plan, a file that is made, a command that adds to another: two files, which a reviewer looks at, and sends back; then the
/// change of one, and a second look. The runtime's own calls, the checks and each card are boundaries as well.
const SOP: &str = r#"
[[talks]]
role = "builder"
opening_contains = "must be mended before the task may end"
[[talks.turns]]
calls = [
  { name = "read_file", args = { path = "made.txt" } },
  { name = "edit_file", args = { path = "made.txt", edits = [{ search = "made", replace = "mended" }] } },
  { name = "diff_card", args = { rationale = "the review wants it" } },
]
[[talks]]
role = "reviewer"
opening_contains = "+mended"
[[talks.turns]]
calls = [{ name = "review_report", args = { risks = ["none: two words"], recommendations = [] } }]
[[talks.turns]]
calls = [{ name = "complete_task", args = { summary = "mended" } }]
[[talks]]
role = "planner"
[[talks.turns]]
calls = [{ name = "plan_card", args = { summary = "two files", steps = ["make one"], files = ["made.txt", "log.txt"] } }]
[[talks]]
role = "builder"
[[talks.turns]]
calls = [
  { name = "create_file", args = { path = "made.txt", content = "made\n" } },
  { name = "run_command", args = { command = "cat made.txt >> log.txt" } },
  { name = "diff_card", args = { rationale = "both are wanted" } },
]
[[talks]]
role = "reviewer"
[[talks.turns]]
calls = [{ name = "review_report", args = { risks = ["none: two words"], recommendations = [], must_change = ["made.txt was to be mended"] } }]
"#;

/// Epochs under which a coordinator may die: one, and some for a machine that stands still.
const EPOCHS_MAX: u64 = 4;

/// How long after a run's end a coordinator that is to die there may live.
const DIES_WITHIN: std::time::Duration = std::time::Duration::from_secs(3);

/// What the undisturbed run came to.
struct UndisturbedRoleRun {
    tree: TreeHash,
    /// Where its appends begin.
    seqs: BTreeSet<u64>,
    answers: usize,
    concluded: usize,
}

/// Who dies, at which append, at which side of it.
type RoleCrash = (Victim, u64, FailpointTiming);

impl UndisturbedRoleRun {
    /// The part of one store, by the rule of this module; `turn` is the engine's.
    fn crashes(&self, cluster: Option<&PostgresCluster>, turn: usize) -> Vec<RoleCrash> {
        let sides = [FailpointTiming::Before, FailpointTiming::After];
        let store = usize::from(cluster.is_some());
        let mut crashes = Vec::new();
        for (nth, seq) in self.seqs.iter().enumerate() {
            // A kill on PostgreSQL takes three times as long: it has every third append.
            let left_out = cluster.is_some() && !(nth + turn).is_multiple_of(3);
            for (side, when) in sides.into_iter().enumerate().filter(|_| !left_out) {
                let victim = if (nth + side) % 2 == store { Victim::Run } else { Victim::Supervisor };
                crashes.push((victim, *seq, when));
            }
            let turn = nth + turn;
            if (turn / 2) % 2 == store {
                crashes.push((Victim::Coordinator, *seq, sides[turn % 2]));
            }
        }
        crashes
    }

    /// Whether the run is over when the victim dies.
    fn is_at_the_end(&self, (_, seq, when): RoleCrash) -> bool {
        self.seqs.last() == Some(&seq) && when == FailpointTiming::After
    }
}

async fn submit_template(coordinator: &CoordinatorProcess, engine: &str) -> Result<TaskSpec> {
    let sample = SampleRepository::new(&[("log.txt", "zero\n")])?;
    let args = ["--model", "openai:x", "--queue", "template", "--engine", engine, "--tests", "true"];
    let (task, spec) = sample.submit(coordinator, &args).await?;
    coordinator.client().cancel(task, "a template").await?;
    Ok(spec)
}

async fn start_model_server(script: &str) -> Result<ModelServer> {
    Ok(ModelServer::start(ScriptedModel::parse(script.as_bytes())?).await?)
}

async fn play_undisturbed(
    coordinator: &CoordinatorProcess,
    spec: &TaskSpec,
    script: &str,
) -> Result<UndisturbedRoleRun> {
    let (server, queue) =
        (start_model_server(script).await?, format!("{}-undisturbed", spec.engine).parse::<QueueName>()?);
    let options = WorkerOptions { queue: Some(queue.clone()), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(coordinator, &options).await?;
    let task = coordinator.submit_like(spec, &queue, server.model_ref(ModelProvider::OpenAi, "x")).await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    let appends: Vec<RecordedAppend> = history.appends();
    worker.drain().await?;
    Ok(UndisturbedRoleRun {
        tree: history.final_tree().context("a tree at the end")?,
        seqs: appends.iter().map(|append| *append.seqs.start()).collect(),
        answers: history.count_kind("ModelAnswered"),
        concluded: history.count_kind("Concluded"),
    })
}

/// The coordinator of a scenario.
enum RoleScenarioHost<'a> {
    /// Shared with others.
    Shared(&'a CoordinatorProcess),
    /// To be killed.
    Own(&'a mut CoordinatorProcess),
}

impl RoleScenarioHost<'_> {
    const fn get(&self) -> &CoordinatorProcess {
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

/// Plays one; says whether a lease was lost beside the kill.
async fn play_crash(
    whole: &UndisturbedRoleRun,
    crash: RoleCrash,
    mut host: RoleScenarioHost<'_>,
    (spec, script): (&TaskSpec, &str),
) -> Result<bool> {
    let (victim, seq, when) = crash;
    let server = start_model_server(script).await?;
    let queue: QueueName = format!("{}-{victim:?}-{seq}-{when:?}", spec.engine).parse()?;
    let whom = match victim {
        Victim::Supervisor => FailpointTarget::Supervisor,
        Victim::Coordinator => FailpointTarget::Process(host.get().pid()),
        Victim::Run | Victim::Unanswered => FailpointTarget::Run,
    };
    let options =
        |failpoints| WorkerOptions { queue: Some(queue.clone()), failpoints, ..WorkerOptions::default() };
    // A lease that is lost before the coordinator dies leaves its place to the next epoch; others leave a trace by it.
    let epochs = if victim == Victim::Coordinator { EPOCHS_MAX } else { 1 };
    let failpoints = (1..=epochs).map(|epoch| Failpoint { seq, when, epoch, whom }).collect();
    let mut worker = WorkerProcess::start(host.get(), &options(failpoints)).await?;
    let task = host.get().submit_like(spec, &queue, server.model_ref(ModelProvider::OpenAi, "x")).await?;
    let deadline = tokio::time::Instant::now() + WAIT_MAX;
    let (mut coordinator_died, mut ended_at) = (false, None);
    let view = loop {
        ensure!(tokio::time::Instant::now() < deadline, "the run does not end\n{}", worker.log_tail());
        coordinator_died |= host.revive().await?;
        if worker.process().try_exit_status().is_some() {
            worker = WorkerProcess::start(host.get(), &options(Vec::new())).await?;
        }
        match host.get().client().get_task(task).await {
            // One that is to die dies, if only behind the end: whoever comes next has another one. Not where a lease was
            // lost between the append and its side.
            Ok(view) if view.task.state.is_ended() => {
                let waits = ended_at.get_or_insert_with(tokio::time::Instant::now).elapsed() < DIES_WITHIN;
                let may_live = view.task.epoch.0 > 1 && !waits;
                if coordinator_died || victim != Victim::Coordinator || may_live {
                    break view;
                }
                tokio::time::sleep(std::time::Duration::from_millis(25)).await;
            }
            Ok(_) | Err(_) => tokio::time::sleep(std::time::Duration::from_millis(25)).await,
        }
    };
    let host = host.get();
    ensure!(view.task.state == TaskState::Completed, "{:?}\n{}", view.task.message, worker.log_tail());
    let history: RunHistory = host.run_history(view.task.last_run.context("a run")?).await?;
    let kinds = || history.format_kinds();
    ensure!(history.final_tree() == Some(whole.tree), "another tree than undisturbed: {}", kinds());
    ensure!(history.count_kind("ModelAnswered") == whole.answers, "answers lost or doubled: {}", kinds());
    ensure!(history.count_kind("Concluded") == whole.concluded, "conclusions lost or doubled: {}", kinds());
    let RepeatedWork { model_calls, batches } = history.repeated_work()?;
    // One of each for the kill; and for each lease that was lost because the machine stood still.
    let recoveries = history.count_kind("RunRecovered").max(1);
    ensure!(model_calls <= recoveries && batches <= recoveries, "{model_calls}, {batches}: {}", kinds());
    // Who dies behind the end leaves nothing to be leased again, and a coordinator's death need not cost a lease.
    let traceless = whole.is_at_the_end(crash) || coordinator_died;
    ensure!(traceless || view.task.epoch.0 > 1, "nobody died: {}", kinds());
    history.verify(host.client()).await?;
    Ok(recoveries > 1)
}

/// What came of scenarios: leases that were lost beside the kills, and what failed.
#[derive(Default)]
struct SweepResult {
    stalls: usize,
    failed: Vec<String>,
}

impl SweepResult {
    fn add(&mut self, name: String, played: Result<bool>) {
        match played {
            Ok(stalled) => self.stalls += usize::from(stalled),
            Err(error) => self.failed.push(format!("{name}: {error:?}")),
        }
    }
}

/// A coordinator that dies at one append after another, and comes again each time.
async fn sweep_lane(
    own: StoreLocation,
    whole: &UndisturbedRoleRun,
    crashes: &[RoleCrash],
    (engine, script): (&str, &str),
) -> Result<SweepResult> {
    let mut host = CoordinatorProcess::start(own, LeaseDuration::Short).await?;
    let spec = submit_template(&host, engine).await?;
    let mut all = SweepResult::default();
    for crash in crashes {
        let _permit = acquire_scenario_slot().await;
        let played =
            Box::pin(play_crash(whole, *crash, RoleScenarioHost::Own(&mut host), (&spec, script))).await;
        all.add(format!("{engine} {crash:?}"), played);
        if host.process().try_exit_status().is_some() {
            host.restart().await?;
        }
    }
    host.end_and_check().await?;
    Ok(all)
}

/// Kills at every boundary of a run of each engine, as far as they are one store's.
pub(crate) async fn sweep_roles(cluster: Option<&PostgresCluster>) -> Result<()> {
    let mut scenarios: JoinSet<Result<SweepResult>> = JoinSet::new();
    let mut hosts = Vec::new();
    for (turn, (engine, script)) in engine_scripts().into_iter().enumerate() {
        let host =
            Arc::new(CoordinatorProcess::start(new_place(cluster).await?, LeaseDuration::Short).await?);
        let spec = Arc::new(submit_template(&host, engine).await?);
        let whole = Arc::new(play_undisturbed(&host, &spec, script).await?);
        ensure!(whole.seqs.len() > 10 && whole.concluded > 3, "{engine}: {:?}", whole.seqs);
        let crashes = whole.crashes(cluster, turn);
        let count = |victim| crashes.iter().filter(|(who, ..)| *who == victim).count();
        let [run, supervisor, coordinator] =
            [Victim::Run, Victim::Supervisor, Victim::Coordinator].map(count);
        let boundaries = whole.seqs.len() * 2;
        print_notice(&format!(
            "{boundaries} boundaries of a run of `{engine}`: the run process dies at {run}, its supervisor at {supervisor}, \
             the coordinator at {coordinator}"
        ));
        let (of_coordinator, others): (Vec<RoleCrash>, Vec<RoleCrash>) =
            crashes.into_iter().partition(|(who, ..)| *who == Victim::Coordinator);
        let (own, of_lane) = (new_place(cluster).await?, Arc::clone(&whole));
        scenarios.spawn(async move {
            Box::pin(sweep_lane(own, &of_lane, &of_coordinator, (engine, script))).await
        });
        for crash in others {
            let permit = acquire_scenario_slot().await;
            let (whole, host, spec) = (Arc::clone(&whole), Arc::clone(&host), Arc::clone(&spec));
            scenarios.spawn(async move {
                let _permit = permit;
                let mut all = SweepResult::default();
                let played =
                    Box::pin(play_crash(&whole, crash, RoleScenarioHost::Shared(&host), (&spec, script)))
                        .await;
                all.add(format!("{engine} {crash:?}"), played);
                Ok(all)
            });
        }
        hosts.push(host);
    }
    let (mut stalls, mut failed) = (0, Vec::new());
    while let Some(joined) = scenarios.join_next().await {
        let all = joined.context("a scenario panicked")??;
        stalls += all.stalls;
        failed.extend(all.failed);
    }
    print_notice(&format!("{stalls} leases lost beside the kills"));
    ensure!(failed.is_empty(), "{} scenarios failed:\n{}", failed.len(), failed.join("\n\n"));
    for host in hosts {
        Arc::into_inner(host).context("all scenarios are over")?.end_and_check().await?;
    }
    Ok(())
}

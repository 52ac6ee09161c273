//! `docket compare`: the same tasks through several models or engines, side by side; or tasks that are there
//! already, so that nothing is paid for twice.

mod figures;
mod shown;

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use docket_schema::{
    content::WorkPath,
    ids::{BatchId, QueueName, TaskId},
    message::ModelRef,
    task::{TaskRecord, TaskSpec, TaskState},
    wire::{SubmitRequest, TaskQuery},
};
use docket_worker::client::{Client, Lineage};

use self::figures::{Spent, Tried, Variant, is_settled};
use crate::{
    access::{Access, Need},
    context::Context,
    display,
    fail::{Exit, FailWith as _, Failure, Outcome},
    resolve, run, show,
    signals::Stop,
    submit::{TaskArgs, check_address},
};

/// Tasks of one comparison at most: a page of them is looked at while they are waited for.
const COMPARED_MAX: usize = 1000;
/// Tasks that were not done of which is told why.
const REASONS_MAX: usize = 8;
/// How often they are looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each task is submitted once for each variant, and as often as --repeat says: a variant is a --model with an
--engine, each with each. They are one batch, start from the same commit, and are tried once. Workers
of the coordinator do them; where none works, the batch waits and `docket compare --of BATCH` shows it
later. Runs that are there already are compared with --of; that asks no model.

DONE counts tasks that ended well. INPUT, CACHED (the part of it that the provider had), OUTPUT and
COST are sums over all runs of the tasks; TURNS and TIME are medians, TIME from a run's first event to
its last. A price that is not known is `unknown`, and so is a sum with one in it. --json has all of it.

Exit codes: 0 all of them have ended, well or not; 1 some have not: blocked, or left under way.

Examples:
  docket compare task1.md task2.md --repo . --model anthropic:claude-opus-5-5 --model openai:gpt-5.1
  docket compare task.md --repo . --tests \"pytest -q\" --model openai:qwen2.5-coder:7b \\
      --base-url http://localhost:11434/v1 --model openai:gpt-5.1 --base-url \"\" --repeat 3
  docket compare --of 3f9c01ab,77aa0e12
  docket compare --of 0198f3c2-77aa-7e12-9c01-ab3f9c01ab12 --json | jq '.variants[] | {model, cost_usd}'"
)]
pub(crate) struct Args {
    /// The tasks, a file each; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present = "of", conflicts_with = "of")]
    files: Vec<PathBuf>,
    /// Compare what is there already: tasks, or a batch by its whole id
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    of: Vec<String>,
    /// A model; twice or more
    #[arg(long, short, value_name = "MODEL", value_parser = model, conflicts_with = "of")]
    model: Vec<ModelRef>,
    /// Where the models' API is: once for all, or once for each --model in their order, empty for its provider's
    #[arg(long, value_name = "URL", conflicts_with = "of")]
    base_url: Vec<String>,
    /// An engine; twice or more to compare engines [default: `task.engine` of docket.toml, react]
    #[arg(long, value_name = "ENGINE", conflicts_with = "of")]
    engine: Vec<String>,
    /// So many tries of each task by each variant
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
    /// The repository: this folder, or one that holds it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["empty", "of"])]
    repo: Option<PathBuf>,
    /// No repository: start from an empty folder
    #[arg(long, conflicts_with = "of")]
    empty: bool,
    /// Branch, tag or commit to start from [default: HEAD]
    #[arg(long, value_name = "REV", conflicts_with = "of")]
    commit: Option<String>,
    /// The shell line that tests the work; it must pass at the end [default: found by looking]
    #[arg(long, value_name = "CMD", conflicts_with = "of")]
    tests: Option<String>,
    /// A path that must exist at the end; may be given more than once
    #[arg(long, value_name = "PATH", value_parser = work_path, conflicts_with = "of")]
    require: Vec<WorkPath>,
    /// A shell line that makes a fresh workspace ready; may be given more than once
    #[arg(long, value_name = "CMD", conflicts_with = "of")]
    setup: Vec<String>,
    /// Turns before a run ends as failed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000), conflicts_with = "of")]
    turns: Option<u32>,
    /// Queue
    #[arg(long, default_value = "default", conflicts_with = "of")]
    queue: QueueName,
    /// Do not wait: say the batch's id and go
    #[arg(long, conflicts_with = "of")]
    no_wait: bool,
}

fn model(text: &str) -> Result<ModelRef, String> {
    text.parse().map_err(|error: docket_schema::ids::ParseIdError| error.to_string())
}

fn work_path(text: &str) -> Result<WorkPath, String> {
    WorkPath::new(text)
        .ok_or_else(|| "it must be relative and stay inside the repository, as src/lib.rs".to_owned())
}

impl Args {
    /// Each model with each engine.
    fn variants(&self, cx: &Context) -> Outcome<Vec<Variant>> {
        let usage = |message: String| Err(Failure::new(Exit::Usage, message));
        let urls = self.base_url.len();
        if urls > 1 && urls != self.model.len() {
            return usage(format!(
                "--base-url is given {urls} times for {} models: give it once for all, or once for each",
                self.model.len()
            ));
        }
        let engines =
            if self.engine.is_empty() { vec![cx.config.engine.clone()] } else { self.engine.clone() };
        let mut variants: Vec<Variant> = Vec::new();
        for (nth, model) in self.model.iter().enumerate() {
            let url = if urls == 1 { self.base_url.first() } else { self.base_url.get(nth) };
            let base_url = url.filter(|url| !url.is_empty()).cloned();
            let model = ModelRef { base_url, ..model.clone() };
            check_address(&model)?;
            if model.provider == "scripted" {
                return usage(format!("{model} has one script for one task; compare models that are asked"));
            }
            for engine in &engines {
                let variant = Variant { model: model.clone(), engine: engine.clone() };
                if variants.contains(&variant) {
                    return usage(format!(
                        "{model} with {engine} is given twice; --repeat tries it more often"
                    ));
                }
                variants.push(variant);
            }
        }
        if variants.len() < 2 {
            return usage("there is nothing to compare: give --model, or --engine, twice or more".to_owned());
        }
        Ok(variants)
    }

    fn task(&self, file: &std::path::Path, variant: &Variant) -> TaskArgs {
        TaskArgs {
            text: None,
            file: Some(file.to_owned()),
            repo: self.repo.clone(),
            empty: self.empty,
            commit: self.commit.clone(),
            include_dirty: false,
            model: Some(variant.model.clone()),
            base_url: None,
            script: None,
            engine: Some(variant.engine.clone()),
            queue: self.queue.clone(),
            priority: 0,
            at: None,
            dedup: None,
            tests: self.tests.clone(),
            branch: None,
            require: self.require.clone(),
            setup: self.setup.clone(),
            turns: self.turns,
            explore_model: None,
            fallback_model: None,
            complexity: None,
            effort: None,
            temperature: None,
            max_tokens: None,
            max_cost: None,
            max_time: None,
            // A second try would hide that the first failed.
            attempts: 1,
        }
    }

    /// Every task for every variant, as often as wanted; what can be wrong is told before anything is sent.
    async fn specs(&self, cx: &Context, client: &Client, variants: &[Variant]) -> Outcome<Vec<TaskSpec>> {
        let count = self.files.len() * variants.len() * self.repeat as usize;
        if count > COMPARED_MAX {
            let message =
                format!("that is {count} tasks, more than the {COMPARED_MAX} that are compared at once");
            return Err(Failure::new(Exit::Usage, message));
        }
        if self.repo.is_none() && !self.empty {
            return Err(Failure::new(Exit::Usage, "give --repo DIR, or --empty for none"));
        }
        // An engine that this build lacks is told here, of every variant.
        for variant in &variants[1..] {
            self.task(&self.files[0], variant).check_engine(cx)?;
        }
        let mut asked = Vec::new();
        for file in &self.files {
            asked.push(self.task(file, &variants[0]).check(cx)?);
        }
        let texts: Vec<(String, String)> =
            asked.iter().map(|asked| (asked.title.clone(), asked.text.clone())).collect();
        if texts.iter().collect::<BTreeSet<_>>().len() < texts.len() {
            return Err(Failure::new(
                Exit::Usage,
                "two files hold the same task; --repeat tries it more often",
            ));
        }
        let first = self.task(&self.files[0], &variants[0]);
        let one = first.spec(cx, client, asked.swap_remove(0), None).await?;
        let batch = Some(BatchId(docket_coordinator::clock::new_id()));
        let mut specs = Vec::with_capacity(count);
        // Variants take turns: what changes on the machine or at a provider meets all of them.
        for _ in 0..self.repeat {
            for (title, text) in &texts {
                specs.extend(variants.iter().map(|variant| TaskSpec {
                    title: title.clone(),
                    text: text.clone(),
                    model: variant.model.clone(),
                    // What is compared is this model, alone.
                    explore_model: None,
                    fallback_model: None,
                    engine: variant.engine.clone(),
                    batch,
                    ..one.clone()
                }));
            }
        }
        for spec in &specs {
            spec.check().fail_as(Exit::Usage)?;
        }
        Ok(specs)
    }
}

/// Compares.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    if !args.of.is_empty() {
        let access = Access::open(&cx, Need::Read).await?;
        let (batch, tasks) = named(&access.client, &args.of).await?;
        let exit = tell(&cx, &access.client, batch, &tasks).await;
        access.close().await?;
        return exit;
    }
    let variants = args.variants(&cx)?;
    let stop = Stop::listen()?;
    let access = Access::open(&cx, Need::Write).await?;
    let specs = args.specs(&cx, &access.client, &variants).await?;
    let batch = specs[0].batch.expect("every one of them has the batch's id");
    let ids = specs.iter().map(|_| TaskId(docket_coordinator::clock::new_id())).collect();
    let answer = access.client.submit(&SubmitRequest { tasks: specs, ids: Some(ids) }).await?;
    let tasks: Vec<TaskId> = answer.tasks.iter().map(|task| task.id).collect();
    let alone = access.is_alone();
    let waited = if args.no_wait || alone {
        false
    } else {
        tokio::select! {
            waited = wait(&access.client, batch) => waited.map(|()| true)?,
            () = stop.drain.cancelled() => false,
        }
    };
    let exit = if waited {
        tell(&cx, &access.client, Some(batch), &tasks).await
    } else {
        if cx.json() {
            display::say_json(&serde_json::json!({ "batch": batch, "tasks": tasks }));
        } else {
            display::say(&batch.to_string());
        }
        let workers = if alone { "; nobody works here now, `docket up` starts workers" } else { "" };
        display::note(&format!(
            "{} tasks are in queue {}{workers}; `docket compare --of {batch}` compares them",
            tasks.len(),
            args.queue
        ));
        Ok(if args.no_wait { Exit::Ok } else { Exit::Failed })
    };
    access.close().await?;
    exit
}

/// The tasks that were named, themselves, by a run, or as a batch.
async fn named(client: &Client, of: &[String]) -> Outcome<(Option<BatchId>, Vec<TaskId>)> {
    if let [one] = of
        && let Ok(batch) = one.parse::<BatchId>()
    {
        let tasks = batch_of(client, batch).await?;
        if !tasks.is_empty() {
            return Ok((Some(batch), tasks.iter().map(|task| task.id).collect()));
        }
    }
    let mut tasks = Vec::new();
    for text in of {
        let task = resolve::task(client, text).await?;
        if !tasks.contains(&task) {
            tasks.push(task);
        }
    }
    Ok((None, tasks))
}

/// A batch's tasks, in the order in which they were submitted.
async fn batch_of(client: &Client, batch: BatchId) -> Outcome<Vec<TaskRecord>> {
    let limit = u32::try_from(COMPARED_MAX).ok();
    let query = TaskQuery { batch: Some(batch), limit, ..TaskQuery::default() };
    let mut tasks = client.tasks(&query).await?.tasks;
    tasks.reverse();
    Ok(tasks)
}

/// Until every task of the batch has ended or waits for a person.
async fn wait(client: &Client, batch: BatchId) -> Outcome<()> {
    let bar = run::spinner();
    loop {
        let tasks = batch_of(client, batch).await?;
        let count = |is: &dyn Fn(TaskState) -> bool| tasks.iter().filter(|task| is(task.state)).count();
        let settled = count(&is_settled);
        bar.set_message(format!(
            "{settled} of {} done, {} running",
            tasks.len(),
            count(&|state| state == TaskState::Running)
        ));
        if settled == tasks.len() {
            bar.finish_and_clear();
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn tell(cx: &Context, client: &Client, batch: Option<BatchId>, tasks: &[TaskId]) -> Outcome {
    let mut tries = Vec::with_capacity(tasks.len());
    for task in tasks {
        tries.push(tried(client, *task).await?);
    }
    if cx.json() {
        display::say_json(&shown::json(batch.map(|batch| batch.to_string()), &tries));
    } else {
        shown::say(cx, &tries);
        if let Some(batch) = batch {
            display::note(&format!("batch {batch}"));
        }
    }
    let failed = || tries.iter().filter(|tried| tried.state != TaskState::Completed);
    for tried in failed().take(REASONS_MAX) {
        if let Some(message) = &tried.message {
            let text = format!("{} ({}): {message}", tried.task.short(), tried.variant.model);
            display::note(&display::line(&text));
        }
    }
    if let Some(more) = failed().count().checked_sub(REASONS_MAX).filter(|more| *more > 0) {
        display::note(&format!("{more} more were not done; `docket show ID` says why"));
    }
    let open: Vec<String> = tries
        .iter()
        .filter(|tried| !tried.state.is_ended())
        .map(|tried| format!("{} is {}", tried.task.short(), tried.state))
        .collect();
    if open.is_empty() {
        return Ok(Exit::Ok);
    }
    display::note(&format!("not all of them have ended: {}", open.join(", ")));
    Ok(Exit::Failed)
}

/// What became of a task, by the logs of its runs.
async fn tried(client: &Client, task: TaskId) -> Outcome<Tried> {
    let view = client.task(task).await?;
    let mut spent = Spent::default();
    let spec = &view.task.spec;
    let mut variant = Variant { model: spec.model.clone(), engine: spec.engine.clone() };
    for run in &view.runs {
        let state = show::fold(client, run.id).await?;
        let Some(pins) = state.pins.as_deref() else { continue };
        variant = Variant { model: pins.models.main.clone(), engine: pins.engine.name.clone() };
        let own = client.all_events(run.id, Lineage::Own).await?;
        spent.add(&own, pins.models.terms.priced);
    }
    spent.time(&view);
    Ok(Tried {
        task,
        asked: (spec.title.clone(), spec.text.clone()),
        variant,
        state: view.task.state,
        message: view.task.message.clone(),
        spent,
    })
}

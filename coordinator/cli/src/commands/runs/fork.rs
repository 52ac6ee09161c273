//! `docket fork`: creates tasks that continue from a turn of a run. `docket shell` and `docket
//! step` use its request builder as well.

use crate::history::blobs;
use crate::history::lineage;
use crate::tasks::task_args;
use std::path::PathBuf;

use docket_schema::{
    api::{FORK_SIBLINGS_MAX, ForkRequest, ForkResponse, ForkSibling, TELL_BYTES_MAX},
    content::BlobRef,
    ids::{RunId, TaskId},
    message::ModelRef,
    run::{EngineRef, RunModels},
};
use docket_worker::{
    client::CoordinatorClient,
    model::{PriceTable, unknown_price_message},
    workspace::BlobSink as _,
};

use crate::{
    config::values::check_base_url,
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
};

/// Command-line arguments of `docket fork`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "This is the *re-sample* kind of replay: it calls a model again, which may answer differently.
(`docket replay` only reads; `docket verify` derives the decisions again without a model.) Each
fork is a new task: it shares the run's history up to turn N, starts from the exact workspace at
the end of that turn, and runs the task's setup commands again. The original run is not changed. A
running run can be forked up to its last completed turn. Shared history is not copied, and a
provider's cache of it still applies. A fork gets one attempt: if it fails, fork again or resume
it.

Prices and limits of a new model are those that this docket knows (built in, or from docket.toml).

Examples:
  docket fork 3f9c01ab --turn 7 --hint \"The parser is fine; look at the lexer.\"
  docket fork 3f9c01ab --turn 7 --model anthropic:claude-opus-5-5
  docket fork 3f9c01ab --turn 7 --count 3
  docket fork 3f9c01ab --turn 7 --json | jq -r .run"
)]
pub(crate) struct ForkArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// Last turn to keep; 0 keeps only the setup before the first turn [default: the last completed
    /// turn]
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
    #[command(flatten)]
    change: ForkChangeArgs,
    /// Number of forks of the same turn, to compare their results
    #[arg(long, value_name = "K", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=FORK_SIBLINGS_MAX as i64))]
    count: u32,
}

/// What a fork changes.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct ForkChangeArgs {
    /// Model to use instead: anthropic:NAME, openai:NAME, openai-responses:NAME or scripted:NAME
    #[arg(long, short, value_name = "MODEL", value_parser = parse_model)]
    model: Option<ModelRef>,
    /// Base URL of the model's API, for Ollama, vLLM, llama.cpp and similar servers
    #[arg(long, value_name = "URL", requires = "model")]
    base_url: Option<String>,
    /// Script for scripted models, as TOML or JSON
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Engine to use instead
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Message to the model, sent as yours with its next request
    #[arg(long, value_name = "TEXT")]
    hint: Option<String>,
}

fn parse_model(text: &str) -> Result<ModelRef, String> {
    text.parse().map_err(|error: docket_schema::ids::ParseIdError| error.to_string())
}

/// A validated change. Validation reports errors before anything is done.
pub(crate) struct CheckedForkChange {
    engine: Option<EngineRef>,
    models: Option<RunModels>,
    script: Option<Vec<u8>>,
    hint: Option<String>,
}

impl ForkChangeArgs {
    /// Validates the change against what this build knows.
    pub(crate) fn check(&self, cx: &CliContext) -> CliResult<CheckedForkChange> {
        if self.hint.as_ref().is_some_and(|hint| hint.trim().is_empty() || hint.len() > TELL_BYTES_MAX) {
            let message = format!("--hint must be 1 to {TELL_BYTES_MAX} bytes of text");
            return Err(CliError::new(ExitKind::Usage, message));
        }
        let scripted = self.model.as_ref().is_some_and(|model| model.provider == "scripted");
        if scripted && self.script.is_none() {
            let message =
                "a scripted model needs its own script, the parent's is not used; specify --script FILE";
            return Err(CliError::new(ExitKind::Usage, message));
        }
        Ok(CheckedForkChange {
            engine: self.engine.as_deref().map(find_engine).transpose()?,
            models: self.resolve_models(cx)?,
            script: self.script.as_deref().map(task_args::read_script).transpose()?,
            hint: self.hint.clone(),
        })
    }

    /// Resolves models with this machine's price table, because the coordinator has none.
    fn resolve_models(&self, cx: &CliContext) -> CliResult<Option<RunModels>> {
        let Some(model) = &self.model else { return Ok(None) };
        let model = ModelRef { base_url: self.base_url.clone().or(model.base_url.clone()), ..model.clone() };
        check_base_url(&model)?;
        let table = PriceTable::load(cx.config.prices_toml.as_deref()).fail_as(ExitKind::Usage)?;
        Ok(Some(table.single_model(&model)))
    }
}

fn find_engine(name: &str) -> CliResult<EngineRef> {
    docket_worker::engine::newest_engine(name).map(|engine| engine.engine_ref()).ok_or_else(|| {
        let known = docket_worker::engine::engine_names();
        let message = format!("unknown engine `{name}`; this build has {}", known.join(", "));
        CliError::new(ExitKind::Usage, message)
    })
}

impl CheckedForkChange {
    /// Refuses a model with an unknown price if the forked run has a cost budget: the fork would end
    /// before its first call.
    pub(crate) async fn check_budget(&self, client: &CoordinatorClient, run: RunId) -> CliResult<()> {
        let Some(models) = self.models.as_ref().filter(|models| !models.terms.priced) else { return Ok(()) };
        let state = lineage::fold_run(client, run).await?;
        let has_budget = state.pins.as_ref().is_some_and(|pins| pins.settings.cost_max_nusd > 0);
        let message = || format!("--model: {}", unknown_price_message(&models.main));
        if has_budget { Err(CliError::new(ExitKind::Usage, message())) } else { Ok(()) }
    }

    /// Builds an idempotent request for `count` forks with new IDs. Stores the script.
    pub(crate) async fn build_request(
        self,
        client: &CoordinatorClient,
        turn: Option<u32>,
        count: u32,
    ) -> CliResult<ForkRequest> {
        let script = match self.script {
            None => None,
            Some(bytes) => {
                let blob = BlobRef::for_bytes(&bytes);
                let mut upload = blobs::BlobUpload::new(client);
                upload.put(blob, bytes).await.fail_as(ExitKind::Failed)?;
                upload.flush().await.fail_with(ExitKind::Failed, || "cannot store the script".to_owned())?;
                Some(blob)
            }
        };
        let id = docket_coordinator::clock::new_id;
        let siblings = (0..count).map(|_| ForkSibling { task: TaskId(id()), run: RunId(id()) }).collect();
        let Self { engine, models, hint, .. } = self;
        Ok(ForkRequest { turn, siblings, engine, models, script, hint, edit: None })
    }
}

/// A resumed or forked run in the output of `--json`; flat and stable, one line per fork.
#[derive(Debug, serde::Serialize)]
pub(crate) struct ForkRow {
    pub(crate) task: TaskId,
    pub(crate) run: RunId,
    pub(crate) parent: RunId,
    pub(crate) parent_seq: u64,
    pub(crate) turn: u32,
}

/// Returns the rows of the created forks.
pub(crate) fn fork_rows(made: &ForkResponse) -> impl Iterator<Item = ForkRow> {
    made.siblings.iter().map(|sibling| ForkRow {
        task: sibling.task,
        run: sibling.run,
        parent: made.parent.run,
        parent_seq: made.parent.seq.0,
        turn: made.turn,
    })
}

/// Prints the created forks.
pub(crate) fn print_forks(cx: &CliContext, made: &ForkResponse) {
    for row in fork_rows(made) {
        if cx.is_json() {
            display::print_json(&row);
        } else {
            display::print_line(&format!(
                "task {}: run {} continues from turn {} of run {}",
                row.task.short(),
                row.run.short(),
                row.turn,
                row.parent.short()
            ));
        }
    }
}

/// Creates the forks.
pub(crate) async fn run_fork(cx: CliContext, args: ForkArgs) -> CliResult {
    let change = args.change.check(&cx)?;
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    change.check_budget(&access.client, run).await?;
    let request = change.build_request(&access.client, args.turn, args.count).await?;
    let made = access.client.fork(run, &request).await?;
    print_forks(&cx, &made);
    if access.is_local() {
        display::print_note("no workers are running; start them with `docket up`");
    }
    access.close().await?;
    Ok(ExitKind::Ok)
}

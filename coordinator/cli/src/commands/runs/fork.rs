//! `docket fork`: new tasks that go on from a turn of a run. What a fork asks for is made here for
//! `docket shell` and `docket step` as well.

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

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "This is the *re-sample* kind of replay: a model is asked again, and may answer otherwise. (`docket replay`
only reads; `docket verify` derives the decisions again without a model.) Each fork is a new task: it
shares the run's history up to turn N, starts in the workspace as it was at the end of that turn, byte
for byte, and runs the task's setup commands again. The run itself is not touched, also while it runs:
it can be forked up to its last turn that has ended. Nothing of the shared history is copied, and a
provider's cache of it still hits. A fork is tried once: where it fails, fork again or resume it.

A new model's prices and limits are those that this docket knows (built in, or from docket.toml).

Examples:
  docket fork 3f9c01ab --turn 7 --hint \"The parser is fine; look at the lexer.\"
  docket fork 3f9c01ab --turn 7 --model anthropic:claude-opus-5-5
  docket fork 3f9c01ab --turn 7 --count 3
  docket fork 3f9c01ab --turn 7 --json | jq -r .run"
)]
pub(crate) struct ForkArgs {
    /// A run, or a task whose last run is meant
    id: String,
    /// The last turn that is kept; 0 keeps only what came before the first [default: the last one that ended]
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
    #[command(flatten)]
    change: ForkChangeArgs,
    /// So many forks of the same turn, to compare what they come to
    #[arg(long, value_name = "K", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=FORK_SIBLINGS_MAX as i64))]
    count: u32,
}

/// What a fork changes.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct ForkChangeArgs {
    /// Another model: anthropic:NAME, openai:NAME, openai-responses:NAME or scripted:NAME
    #[arg(long, short, value_name = "MODEL", value_parser = parse_model)]
    model: Option<ModelRef>,
    /// Where the model's API is, for Ollama, vLLM, llama.cpp and the like
    #[arg(long, value_name = "URL", requires = "model")]
    base_url: Option<String>,
    /// For scripted models: the script, TOML or JSON
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Another engine
    #[arg(long, value_name = "ENGINE")]
    engine: Option<String>,
    /// Words for the model, said with its next request as yours
    #[arg(long, value_name = "TEXT")]
    hint: Option<String>,
}

fn parse_model(text: &str) -> Result<ModelRef, String> {
    text.parse().map_err(|error: docket_schema::ids::ParseIdError| error.to_string())
}

/// A change that was checked: what is wrong with it is told before anything is done.
pub(crate) struct CheckedForkChange {
    engine: Option<EngineRef>,
    models: Option<RunModels>,
    script: Option<Vec<u8>>,
    hint: Option<String>,
}

impl ForkChangeArgs {
    /// Checks it against what this build knows.
    pub(crate) fn check(&self, cx: &CliContext) -> CliResult<CheckedForkChange> {
        if self.hint.as_ref().is_some_and(|hint| hint.trim().is_empty() || hint.len() > TELL_BYTES_MAX) {
            let message = format!("--hint must be 1 to {TELL_BYTES_MAX} bytes of text");
            return Err(CliError::new(ExitKind::Usage, message));
        }
        let scripted = self.model.as_ref().is_some_and(|model| model.provider == "scripted");
        if scripted && self.script.is_none() {
            let message =
                "a scripted model needs its script, the parent's is not taken for it; give --script FILE";
            return Err(CliError::new(ExitKind::Usage, message));
        }
        Ok(CheckedForkChange {
            engine: self.engine.as_deref().map(find_engine).transpose()?,
            models: self.resolve_models(cx)?,
            script: self.script.as_deref().map(task_args::read_script).transpose()?,
            hint: self.hint.clone(),
        })
    }

    /// The coordinator has no table of prices: the terms are pinned from this one's.
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
        let message = format!("there is no engine `{name}`; this build has {}", known.join(", "));
        CliError::new(ExitKind::Usage, message)
    })
}

impl CheckedForkChange {
    /// Refuses another model whose price is unknown where the run that is forked has a budget of money: the fork would
    /// end before its first call.
    pub(crate) async fn check_budget(&self, client: &CoordinatorClient, run: RunId) -> CliResult<()> {
        let Some(models) = self.models.as_ref().filter(|models| !models.terms.priced) else { return Ok(()) };
        let state = lineage::fold_run(client, run).await?;
        let has_budget = state.pins.as_ref().is_some_and(|pins| pins.settings.cost_max_nusd > 0);
        let message = || format!("--model: {}", unknown_price_message(&models.main));
        if has_budget { Err(CliError::new(ExitKind::Usage, message())) } else { Ok(()) }
    }

    /// The request for `count` forks, with ids of its own: it can be sent again. Stores the script.
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
                upload
                    .flush()
                    .await
                    .fail_with(ExitKind::Failed, || "the script could not be stored".to_owned())?;
                Some(blob)
            }
        };
        let id = docket_coordinator::clock::new_id;
        let siblings = (0..count).map(|_| ForkSibling { task: TaskId(id()), run: RunId(id()) }).collect();
        let Self { engine, models, hint, .. } = self;
        Ok(ForkRequest { turn, siblings, engine, models, script, hint, edit: None })
    }
}

/// A run that goes on, as `--json` shows it: flat, and stable; of `docket fork` a line each.
#[derive(Debug, serde::Serialize)]
pub(crate) struct ForkRow {
    pub(crate) task: TaskId,
    pub(crate) run: RunId,
    pub(crate) parent: RunId,
    pub(crate) parent_seq: u64,
    pub(crate) turn: u32,
}

/// The rows of what was made.
pub(crate) fn fork_rows(made: &ForkResponse) -> impl Iterator<Item = ForkRow> {
    made.siblings.iter().map(|sibling| ForkRow {
        task: sibling.task,
        run: sibling.run,
        parent: made.parent.run,
        parent_seq: made.parent.seq.0,
        turn: made.turn,
    })
}

/// Says what was made.
pub(crate) fn print_forks(cx: &CliContext, made: &ForkResponse) {
    for row in fork_rows(made) {
        if cx.is_json() {
            display::print_json(&row);
        } else {
            display::print_line(&format!(
                "task {}: run {} goes on from turn {} of run {}",
                row.task.short(),
                row.run.short(),
                row.turn,
                row.parent.short()
            ));
        }
    }
}

/// Forks it.
pub(crate) async fn run_fork(cx: CliContext, args: ForkArgs) -> CliResult {
    let change = args.change.check(&cx)?;
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    change.check_budget(&access.client, run).await?;
    let request = change.build_request(&access.client, args.turn, args.count).await?;
    let made = access.client.fork(run, &request).await?;
    print_forks(&cx, &made);
    if access.is_local() {
        display::print_note("nobody works here now; `docket up` starts workers");
    }
    access.close().await?;
    Ok(ExitKind::Ok)
}

//! The flags of a task, shared by every command that makes one, and the task that they ask for.

use crate::history::blobs;
use crate::tasks::policy_file;
use std::path::{Path, PathBuf};

use docket_schema::{
    api::SubmitRequest,
    content::{BlobRef, WorkspacePath},
    ids::{QueueName, TaskId, Timestamp},
    message::ModelRef,
    policy::Policy,
    run::{ReasoningEffort, TaskComplexity},
    snapshot::WorkspaceBase,
    task::{
        ATTEMPTS_MAX, Backoff, DELEGATION_DEPTH_MAX, DeliveryMode, PRIORITY_MAX, RoleOverride, SettingsPatch,
        TITLE_CHARS_MAX, TURNS_MAX, TaskSpec,
    },
    tool::ToolSet,
};
use docket_worker::{
    client::CoordinatorClient,
    engine::prompt::TASK_CHARS_MAX,
    model::{PriceTable, ScriptedModel, unknown_price_message},
    workspace::{BaseSource, BlobSink as _, DirtyTreePolicy},
};

use crate::{
    config::values::{
        check_base_url, parse_complexity, parse_dollars, parse_duration_ms, parse_effort, parse_model,
        parse_temperature, parse_tool_set, parse_workspace_path,
    },
    context::CliContext,
    history::blobs::BlobUpload,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    tasks::{
        backlog,
        conditions::ConditionArgs,
        pinning::{canonicalize_folder, pin_and_note},
        role_overrides::{self, RoleFlags, RoleModel},
    },
};

/// What is asked, for `submit` and `run`.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct TaskArgs {
    /// The task in your words; its first line is the title
    #[arg(required_unless_present = "file", conflicts_with = "file", value_name = "TASK")]
    pub(crate) text: Option<String>,
    /// The task from a file; `-` is standard input
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The repository: this folder, or one that holds it
    #[arg(long, value_name = "DIR", required_unless_present = "empty", conflicts_with = "empty")]
    pub(crate) repo: Option<PathBuf>,
    /// No repository: start from an empty folder
    #[arg(long)]
    pub(crate) empty: bool,
    /// Branch, tag or commit to start from [default: HEAD]
    #[arg(long, value_name = "REV", conflicts_with = "include_dirty")]
    pub(crate) commit: Option<String>,
    /// Start from the work tree as it is, with what is not committed
    #[arg(long)]
    pub(crate) include_dirty: bool,
    /// anthropic:NAME, openai:NAME (chat completions, as most servers speak it), openai-responses:NAME (for
    /// OpenAI's own reasoning models) or scripted:NAME [default: `task.model` of docket.toml]
    #[arg(long, short, value_name = "MODEL", value_parser = parse_model)]
    pub(crate) model: Option<ModelRef>,
    /// Where the model's API is, for Ollama, vLLM, llama.cpp and the like; also that of the task's other models
    /// of the same protocol. A worker sends its key only to servers of its `worker.base_urls`
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// A cheap model that looks around until something is to be changed; --model then takes over [default:
    /// `task.explore_model` of docket.toml]
    #[arg(long, value_name = "MODEL", value_parser = parse_model)]
    pub(crate) explore_model: Option<ModelRef>,
    /// A model that stands in where one stays overloaded [default: `task.fallback_model` of docket.toml]
    #[arg(long, value_name = "MODEL", value_parser = parse_model)]
    pub(crate) fallback_model: Option<ModelRef>,
    /// The model of one role of the engine, as coder=openai:gpt-4.1-mini; may be given more than once, and not beside
    /// --model, which is every role's [default: `roles.NAME.model` of docket.toml, else the task's model]
    #[arg(long, value_name = "NAME=MODEL", value_parser = role_overrides::parse_role_model)]
    pub(crate) role: Vec<RoleModel>,
    /// For scripted models: the script, TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Engine [default: `task.engine` of docket.toml, react]
    #[arg(long)]
    pub(crate) engine: Option<String>,
    /// Queue
    #[arg(long, default_value = "default")]
    pub(crate) queue: QueueName,
    /// Higher goes first: a point is worth a minute of waiting, so that nothing waits for ever
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "N",
          value_parser = clap::value_parser!(i16).range(-i64::from(PRIORITY_MAX)..=i64::from(PRIORITY_MAX)))]
    pub(crate) priority: i16,
    /// Not before this instant, as 2026-01-31T02:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<Timestamp>,
    /// While a task with this key is not ended, another is not accepted
    #[arg(long, value_name = "KEY")]
    pub(crate) dedup: Option<String>,
    /// The shell line that tests the work; it must pass at the end [default: found by looking]
    #[arg(long, value_name = "CMD")]
    pub(crate) tests: Option<String>,
    /// Branch for the result
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,
    /// Push the result as that branch [default: docket/ID] to the repository's remote, from the machine that has it
    #[arg(long)]
    pub(crate) push: bool,
    /// A path that must exist at the end; may be given more than once
    #[arg(long, value_name = "PATH", value_parser = parse_workspace_path)]
    pub(crate) require: Vec<WorkspacePath>,
    /// A shell line that makes a fresh workspace ready; may be given more than once
    #[arg(long, value_name = "CMD")]
    pub(crate) setup: Vec<String>,
    /// What the model may do, from a file; a worker's own policy stays in force beside it (`docket policy check`)
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Which tools the model has: core, the seven, or wide, 26 for files, git, commands, Python environments and
    /// memory [default: `run.tool_set` of docket.toml, core]
    #[arg(long, value_name = "SET", value_parser = parse_tool_set)]
    pub(crate) tools: Option<ToolSet>,
    /// Turns before the run ends as failed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(TURNS_MAX)))]
    pub(crate) turns: Option<u32>,
    /// How large the task is: whether none, a brief or a detailed intent preview comes before the first change
    /// (low, medium, high) [default: judged by its words]
    #[arg(long, value_name = "SIZE", value_parser = parse_complexity)]
    pub(crate) complexity: Option<TaskComplexity>,
    /// Let the run give pieces of its work to child tasks, so deep [default: `run.delegation_depth_max` of docket.toml]
    #[arg(long, value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(0..=i64::from(DELEGATION_DEPTH_MAX)))]
    pub(crate) delegate: Option<u32>,
    /// How hard the main model thinks (low, medium, high) [default: `run.effort` of docket.toml, else the provider's]
    #[arg(long, value_name = "EFFORT", value_parser = parse_effort)]
    pub(crate) effort: Option<ReasoningEffort>,
    /// Sampling temperature of the main model, from 0 to 2; not sent to one of Anthropic's that is to think
    /// [default: `run.temperature` of docket.toml, else the provider's]
    #[arg(long, value_name = "T", value_parser = parse_temperature)]
    pub(crate) temperature: Option<u32>,
    /// Tokens that a run may use, of requests and answers; it ends as failed before the call that would break this
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,
    /// Dollars that a run may cost, as 2.50; likewise
    #[arg(long, value_name = "DOLLARS", value_parser = parse_dollars)]
    pub(crate) max_cost: Option<u64>,
    /// Time that a run may work, as 90s, 30m or 2h; likewise. Waiting for a person does not count
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ms)]
    pub(crate) max_time: Option<u64>,
    #[command(flatten)]
    pub(crate) conditions: ConditionArgs,
    /// Runs that may fail before the task is given up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(ATTEMPTS_MAX)))]
    pub(crate) attempts: u32,
}

/// A task that is ready but for its blobs.
pub(crate) struct PreparedTask {
    pub(crate) title: String,
    pub(crate) text: String,
    pub(crate) model: ModelRef,
    pub(crate) explore_model: Option<ModelRef>,
    pub(crate) fallback_model: Option<ModelRef>,
    pub(crate) roles: Vec<RoleOverride>,
    pub(crate) script: Option<Vec<u8>>,
    pub(crate) policy: Option<Policy>,
}

impl TaskArgs {
    /// The part of [`TaskArgs::check`] that is the same for all tasks with the same models, engine, script and policy.
    pub(crate) fn check_shared(&self, cx: &CliContext) -> CliResult<PreparedTask> {
        let text = self.read_text()?;
        let title = title_from_text(&text)?;
        let model = self.model.clone().or_else(|| cx.config.model.clone()).ok_or_else(|| {
            CliError::new(
                ExitKind::Usage,
                "no model: give --model anthropic:NAME, openai:NAME or openai-responses:NAME, or set `task.model` in docket.toml",
            )
        })?;
        let model = ModelRef { base_url: self.base_url.clone().or(model.base_url), ..model };
        check_base_url(&model)?;
        let or = |flag: &Option<ModelRef>, configured: &Option<ModelRef>| {
            role_overrides::secondary_model(&model, flag.clone().or_else(|| configured.clone()))
        };
        let explore = or(&self.explore_model, &cx.config.explore_model)?;
        let fallback = or(&self.fallback_model, &cx.config.fallback_model)?;
        self.check_engine(cx)?;
        let roles = self.resolve_roles(cx, &model)?;
        let of_roles = || roles.iter().filter_map(|role| role.model.as_ref());
        let all =
            || [Some(&model), explore.as_ref(), fallback.as_ref()].into_iter().flatten().chain(of_roles());
        self.check_prices(cx, all())?;
        let script = self.read_script(all().any(|one| one.provider == "scripted"))?;
        let policy = self.policy.as_deref().map(policy_file::read_policy_file).transpose()?;
        let chars = text.chars().count();
        if chars > TASK_CHARS_MAX {
            display::print_note(&format!(
                "the model is shown the first {TASK_CHARS_MAX} of the task's {chars} characters; put long requirements into a file of \
                 the repository and name it in the task"
            ));
        }
        Ok(PreparedTask {
            title,
            text,
            model,
            explore_model: explore,
            fallback_model: fallback,
            roles,
            script,
            policy,
        })
    }

    /// A budget of money is kept by prices: told here, not by a run that ends before it began. Workers of a
    /// coordinator elsewhere have tables of their own, which this cannot see.
    pub(crate) fn check_prices<'a>(
        &self,
        cx: &CliContext,
        mut models: impl Iterator<Item = &'a ModelRef>,
    ) -> CliResult<()> {
        let table = PriceTable::load(cx.config.prices_toml.as_deref()).fail_as(ExitKind::Usage)?;
        let costs = self.max_cost.unwrap_or(cx.config.run_defaults.cost_max_nusd) > 0;
        let Some(model) = models.find(|model| costs && !table.entry_for(model).is_known) else {
            return Ok(());
        };
        let message = unknown_price_message(model);
        if cx.url.is_none() {
            return Err(CliError::new(ExitKind::Usage, message));
        }
        display::print_note(&format!("unless its worker knows better, {message}"));
        Ok(())
    }

    /// No worker would ever ask for a task of an engine that there is not.
    pub(crate) fn check_engine(&self, cx: &CliContext) -> CliResult<()> {
        let engine = self.engine_name(cx);
        if docket_worker::engine::newest_engine(engine).is_none() {
            let known = docket_worker::engine::engine_names();
            let message = format!("there is no engine `{engine}`; this build has {}", known.join(", "));
            return Err(CliError::new(ExitKind::Usage, message));
        }
        Ok(())
    }

    pub(crate) fn engine_name<'a>(&'a self, cx: &'a CliContext) -> &'a str {
        self.engine.as_deref().unwrap_or(&cx.config.engine)
    }

    /// What is asked of the engine's roles.
    pub(crate) fn resolve_roles(&self, cx: &CliContext, main: &ModelRef) -> CliResult<Vec<RoleOverride>> {
        let flags = RoleFlags { model: self.model.as_ref(), roles: &self.role };
        let asked = role_overrides::resolve_role_overrides(cx, self.engine_name(cx), main, flags)?;
        match role_overrides::delegation_unavailable_reason(self.engine_name(cx), &asked)
            .filter(|_| self.delegate.is_some_and(|depth| depth > 0))
        {
            Some(why) => Err(CliError::new(ExitKind::Usage, format!("--delegate: {why}"))),
            None => Ok(asked),
        }
    }

    fn read_text(&self) -> CliResult<String> {
        let text = match (&self.text, &self.file) {
            (Some(text), _) => text.clone(),
            (None, Some(file)) if file.as_os_str() == "-" => std::io::read_to_string(std::io::stdin().lock())
                .fail_with(ExitKind::Usage, || {
                    "cannot read the task from standard input; is it UTF-8?".to_owned()
                })?,
            (None, Some(file)) if backlog::is_backlog(file) => {
                let message = format!(
                    "{} is a backlog of several tasks, and this takes one; `docket import` takes it",
                    file.display()
                );
                return Err(CliError::new(ExitKind::Usage, message));
            }
            (None, Some(file)) => std::fs::read_to_string(file).fail_with(ExitKind::Usage, || {
                format!("cannot read the task from {}; is it UTF-8 text?", file.display())
            })?,
            (None, None) => String::new(),
        };
        Ok(text.trim().to_owned())
    }

    fn read_script(&self, scripted: bool) -> CliResult<Option<Vec<u8>>> {
        let Some(file) = &self.script else {
            if scripted {
                return Err(CliError::new(
                    ExitKind::Usage,
                    "a scripted model needs its script; give --script FILE",
                ));
            }
            return Ok(None);
        };
        if !scripted {
            return Err(CliError::new(ExitKind::Usage, "--script goes with --model scripted:NAME only"));
        }
        read_script(file).map(Some)
    }

    /// Pins the repository and stores what the task names. `queue` goes over the flag.
    pub(crate) async fn build_spec(
        &self,
        cx: &CliContext,
        client: &CoordinatorClient,
        asked: PreparedTask,
        queue: Option<QueueName>,
    ) -> CliResult<TaskSpec> {
        let mut upload = blobs::BlobUpload::new(client);
        let base = self.pin_base(cx, &mut upload).await?;
        let script = asked.script.as_ref().map(|bytes| (BlobRef::for_bytes(bytes), bytes.clone()));
        if let Some((blob, bytes)) = &script {
            upload.put(*blob, bytes.clone()).await.fail_as(ExitKind::Failed)?;
        }
        upload
            .flush()
            .await
            .fail_with(ExitKind::Failed, || "the repository could not be stored".to_owned())?;
        let mut spec = self.build_spec_on(cx, &asked, base, script.map(|(blob, _)| blob));
        spec.queue = queue.unwrap_or(spec.queue);
        spec.conditions = self.conditions.resolve_conditions(client).await?;
        spec.check().fail_as(ExitKind::Usage)?;
        Ok(spec)
    }

    /// The task on a base that is pinned, with a script that is stored. It is not checked.
    pub(crate) fn build_spec_on(
        &self,
        cx: &CliContext,
        asked: &PreparedTask,
        base: WorkspaceBase,
        script: Option<BlobRef>,
    ) -> TaskSpec {
        TaskSpec {
            title: asked.title.clone(),
            text: asked.text.clone(),
            queue: self.queue.clone(),
            priority: self.priority,
            run_at: self.at,
            dedup_key: self.dedup.clone(),
            attempts_max: self.attempts,
            crashes_max: 5,
            backoff: Backoff::default(),
            base,
            engine: self.engine_name(cx).to_owned(),
            model: asked.model.clone(),
            explore_model: asked.explore_model.clone(),
            fallback_model: asked.fallback_model.clone(),
            roles: asked.roles.clone(),
            script,
            settings: SettingsPatch {
                turns_max: self.turns,
                complexity: self.complexity,
                effort: self.effort,
                temperature_milli: self.temperature,
                tool_set: self.tools,
                tokens_max: self.max_tokens,
                cost_max_nusd: self.max_cost,
                time_max_ms: self.max_time,
                delegation_depth_max: self.delegate,
                ..SettingsPatch::default()
            },
            tests: self.tests.clone(),
            requires: self.require.clone(),
            setup: self.setup.clone(),
            policy: asked.policy.clone(),
            branch: self.branch.clone(),
            delivery: self.push.then_some(DeliveryMode::Push),
            batch: None,
            batch_name: None,
            conditions: docket_schema::task::LeaseConditions::default(),
        }
    }

    /// Pins the repository and submits. `id` makes it safe to send again.
    /// `queue` goes over the flag.
    pub(crate) async fn submit(
        &self,
        cx: &CliContext,
        client: &CoordinatorClient,
        asked: PreparedTask,
        queue: Option<QueueName>,
        id: TaskId,
    ) -> CliResult<TaskId> {
        let spec = self.build_spec(cx, client, asked, queue).await?;
        let answer = client.submit(&SubmitRequest { tasks: vec![spec], ids: Some(vec![id]) }).await?;
        let submitted = answer.tasks.first().ok_or_else(|| {
            CliError::new(
                ExitKind::Failed,
                "the coordinator answered without a task; check that its version is the same",
            )
        })?;
        if submitted.duplicate {
            display::print_note(&format!(
                "task {} with this key is not ended yet; nothing was added",
                submitted.id.short()
            ));
        }
        Ok(submitted.id)
    }

    async fn pin_base(&self, cx: &CliContext, upload: &mut BlobUpload<'_>) -> CliResult<WorkspaceBase> {
        let source = match &self.repo {
            None => BaseSource::Empty,
            Some(repo) => BaseSource::Local(canonicalize_folder(repo)?),
        };
        let dirty = if self.include_dirty { DirtyTreePolicy::Include } else { DirtyTreePolicy::Refuse };
        pin_and_note(cx, upload, source, self.commit.clone(), dirty).await
    }
}

/// The script of a scripted model.
///
/// # Errors
/// It cannot be read, or is no script; with the reason.
pub(crate) fn read_script(file: &Path) -> CliResult<Vec<u8>> {
    let bytes = std::fs::read(file)
        .fail_with(ExitKind::Usage, || format!("cannot read the script {}", file.display()))?;
    match ScriptedModel::parse(&bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(CliError::new(ExitKind::Usage, format!("{}: {error}", file.display()))),
    }
}

/// The first line, cut to what a list can show.
pub(crate) fn title_from_text(text: &str) -> CliResult<String> {
    let first = text.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty());
    let first =
        first.ok_or_else(|| CliError::new(ExitKind::Usage, "the task is empty; say what is to be done"))?;
    let clean: String = first.chars().filter(|c| !c.is_control()).collect();
    let is_long = clean.chars().count() > TITLE_CHARS_MAX;
    Ok(if is_long { clean.chars().take(TITLE_CHARS_MAX - 1).chain(['…']).collect() } else { clean })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_is_the_first_non_empty_line() {
        for (text, title) in [("Mend it", "Mend it"), ("\n# Mend it \nnow", "Mend it"), ("a\u{1b}b", "ab")] {
            assert_eq!(title_from_text(text).expect("a title"), title);
        }
        assert_eq!(title_from_text(&"x".repeat(300)).expect("a title").chars().count(), TITLE_CHARS_MAX);
        assert_eq!(title_from_text("#\n \n").expect_err("empty").exit, ExitKind::Usage);
    }
}

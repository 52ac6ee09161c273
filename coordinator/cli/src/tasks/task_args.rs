//! Flags of a task, shared by every command that creates one, and the task built from them.

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

/// The task flags of `submit` and `run`.
#[derive(Debug, clap::Args)]
#[group(skip)]
pub(crate) struct TaskArgs {
    /// The task in your own words; the first line is the title
    #[arg(required_unless_present = "file", conflicts_with = "file", value_name = "TASK")]
    pub(crate) text: Option<String>,
    /// Read the task from a file; `-` for standard input
    #[arg(long, short = 'f', value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The repository: this folder, or one that contains it
    #[arg(long, value_name = "DIR", required_unless_present = "empty", conflicts_with = "empty")]
    pub(crate) repo: Option<PathBuf>,
    /// Start from an empty folder, without a repository
    #[arg(long)]
    pub(crate) empty: bool,
    /// Branch, tag or commit to start from [default: HEAD]
    #[arg(long, value_name = "REV", conflicts_with = "include_dirty")]
    pub(crate) commit: Option<String>,
    /// Include uncommitted changes of the work tree
    #[arg(long)]
    pub(crate) include_dirty: bool,
    /// anthropic:NAME, openai:NAME (chat completions, which most servers support), openai-responses:NAME (for
    /// OpenAI's own reasoning models) or scripted:NAME [default: `task.model` of docket.toml]
    #[arg(long, short, value_name = "MODEL", value_parser = parse_model)]
    pub(crate) model: Option<ModelRef>,
    /// Base URL of the model's API, for Ollama, vLLM, llama.cpp and similar servers; also used for the task's
    /// other models of the same protocol. A worker sends its API key only to servers in its `worker.base_urls`
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// A cheap model that explores until something is to be changed; then --model takes over [default:
    /// `task.explore_model` of docket.toml]
    #[arg(long, value_name = "MODEL", value_parser = parse_model)]
    pub(crate) explore_model: Option<ModelRef>,
    /// Model to use while another stays overloaded [default: `task.fallback_model` of docket.toml]
    #[arg(long, value_name = "MODEL", value_parser = parse_model)]
    pub(crate) fallback_model: Option<ModelRef>,
    /// Model of one role of the engine, e.g. coder=openai:gpt-4.1-mini; can be repeated. Cannot be combined
    /// with --model, which applies to every role [default: `roles.NAME.model` of docket.toml, else the task's
    /// model]
    #[arg(long, value_name = "NAME=MODEL", value_parser = role_overrides::parse_role_model)]
    pub(crate) role: Vec<RoleModel>,
    /// Script of a scripted model, TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) script: Option<PathBuf>,
    /// Engine [default: `task.engine` of docket.toml, react]
    #[arg(long)]
    pub(crate) engine: Option<String>,
    /// Queue to submit to
    #[arg(long, default_value = "default")]
    pub(crate) queue: QueueName,
    /// Priority; higher runs first. One point is worth a minute of waiting, so no task waits forever
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "N",
          value_parser = clap::value_parser!(i16).range(-i64::from(PRIORITY_MAX)..=i64::from(PRIORITY_MAX)))]
    pub(crate) priority: i16,
    /// Do not run before this time, e.g. 2026-01-31T02:00:00Z
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<Timestamp>,
    /// Deduplication key: reject the task while another one with this key has not ended
    #[arg(long, value_name = "KEY")]
    pub(crate) dedup: Option<String>,
    /// Shell command that tests the work; it must pass at the end [default: detected]
    #[arg(long, value_name = "CMD")]
    pub(crate) tests: Option<String>,
    /// Branch for the result
    #[arg(long, value_name = "NAME")]
    pub(crate) branch: Option<String>,
    /// Push the result to the repository's remote as that branch [default: docket/ID], from the machine that
    /// has the repository
    #[arg(long)]
    pub(crate) push: bool,
    /// Path that must exist at the end; can be repeated
    #[arg(long, value_name = "PATH", value_parser = parse_workspace_path)]
    pub(crate) require: Vec<WorkspacePath>,
    /// Shell command that prepares a fresh workspace; can be repeated
    #[arg(long, value_name = "CMD")]
    pub(crate) setup: Vec<String>,
    /// Policy file: what the model may do, in addition to the worker's own policy (`docket policy check`)
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Tools of the model: core (seven) or wide (26 for files, git, commands, Python environments and memory)
    /// [default: `run.tool_set` of docket.toml, core]
    #[arg(long, value_name = "SET", value_parser = parse_tool_set)]
    pub(crate) tools: Option<ToolSet>,
    /// Maximum number of turns before the run fails
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(TURNS_MAX)))]
    pub(crate) turns: Option<u32>,
    /// Size of the task: whether no, a brief or a detailed intent preview precedes the first change (low,
    /// medium, high) [default: judged from its text]
    #[arg(long, value_name = "SIZE", value_parser = parse_complexity)]
    pub(crate) complexity: Option<TaskComplexity>,
    /// Allow delegation to child tasks, up to this depth [default: `run.delegation_depth_max` of docket.toml]
    #[arg(long, value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(0..=i64::from(DELEGATION_DEPTH_MAX)))]
    pub(crate) delegate: Option<u32>,
    /// Reasoning effort of the main model (low, medium, high) [default: `run.effort` of docket.toml, else the
    /// provider's]
    #[arg(long, value_name = "EFFORT", value_parser = parse_effort)]
    pub(crate) effort: Option<ReasoningEffort>,
    /// Sampling temperature of the main model, from 0 to 2; not sent to an Anthropic model with reasoning
    /// effort [default: `run.temperature` of docket.toml, else the provider's]
    #[arg(long, value_name = "T", value_parser = parse_temperature)]
    pub(crate) temperature: Option<u32>,
    /// Token budget of a run, requests and replies; the run fails before the call that would exceed it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tokens: Option<u64>,
    /// Cost budget of a run in dollars, e.g. 2.50; the run fails before the call that would exceed it
    #[arg(long, value_name = "DOLLARS", value_parser = parse_dollars)]
    pub(crate) max_cost: Option<u64>,
    /// Time budget of a run, e.g. 90s, 30m or 2h, without the time it waits for a person
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ms)]
    pub(crate) max_time: Option<u64>,
    #[command(flatten)]
    pub(crate) conditions: ConditionArgs,
    /// Number of runs that may fail before the task is given up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(ATTEMPTS_MAX)))]
    pub(crate) attempts: u32,
}

/// A validated task whose blobs are not stored yet.
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
    /// The part of the checks that is the same for all tasks with the same models, engine, script and policy.
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
                "the model is shown only the first {TASK_CHARS_MAX} of the task's {chars} characters; put long requirements into a file of \
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

    /// Checks that prices are known, because a cost budget needs them: reported here, not by a run that fails
    /// at its start. Workers of a remote coordinator have their own price tables, which are unknown here.
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
        display::print_note(&format!("unless the worker knows the price, {message}"));
        Ok(())
    }

    /// Rejects an unknown engine: no worker would ever lease the task.
    pub(crate) fn check_engine(&self, cx: &CliContext) -> CliResult<()> {
        let engine = self.engine_name(cx);
        if docket_worker::engine::newest_engine(engine).is_none() {
            let known = docket_worker::engine::engine_names();
            let message = format!("unknown engine `{engine}`; this build has {}", known.join(", "));
            return Err(CliError::new(ExitKind::Usage, message));
        }
        Ok(())
    }

    pub(crate) fn engine_name<'a>(&'a self, cx: &'a CliContext) -> &'a str {
        self.engine.as_deref().unwrap_or(&cx.config.engine)
    }

    /// Resolves the role overrides of the task.
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
                    "{} is a backlog of several tasks, and this command takes one; use `docket import`",
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
                    "a scripted model needs a script; give --script FILE",
                ));
            }
            return Ok(None);
        };
        if !scripted {
            return Err(CliError::new(ExitKind::Usage, "--script only works with --model scripted:NAME"));
        }
        read_script(file).map(Some)
    }

    /// Pins the repository and stores the blobs of the task. `queue` takes precedence over the flag.
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
        upload.flush().await.fail_with(ExitKind::Failed, || "cannot store the repository".to_owned())?;
        let mut spec = self.build_spec_on(cx, &asked, base, script.map(|(blob, _)| blob));
        spec.queue = queue.unwrap_or(spec.queue);
        spec.conditions = self.conditions.resolve_conditions(client).await?;
        spec.check().fail_as(ExitKind::Usage)?;
        Ok(spec)
    }

    /// Builds the task on a pinned base with a stored script, without further checks.
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

    /// Pins the repository and submits the task. `id` makes the submission safe to repeat; `queue` takes
    /// precedence over the flag.
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
                "the coordinator replied without a task; check that its version is the same",
            )
        })?;
        if submitted.duplicate {
            display::print_note(&format!(
                "task {} with this key has not ended yet; nothing was added",
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

/// Reads the script of a scripted model.
///
/// # Errors
/// Fails when the file cannot be read or is not a script.
pub(crate) fn read_script(file: &Path) -> CliResult<Vec<u8>> {
    let bytes = std::fs::read(file)
        .fail_with(ExitKind::Usage, || format!("cannot read the script {}", file.display()))?;
    match ScriptedModel::parse(&bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(CliError::new(ExitKind::Usage, format!("{}: {error}", file.display()))),
    }
}

/// Returns the first line, shortened for lists.
pub(crate) fn title_from_text(text: &str) -> CliResult<String> {
    let first = text.lines().map(|line| line.trim_start_matches('#').trim()).find(|line| !line.is_empty());
    let first =
        first.ok_or_else(|| CliError::new(ExitKind::Usage, "the task is empty; describe the work to do"))?;
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

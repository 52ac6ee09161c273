//! Flags of a backlog import: how to read it, and the defaults of its tasks.

use docket_schema::task::DELEGATION_DEPTH_MAX;
use std::path::{Path, PathBuf};

use docket_schema::{
    content::WorkspacePath,
    ids::{QueueName, Timestamp},
    message::ModelRef,
    run::{ReasoningEffort, TaskComplexity},
    system::Budget,
    task::{ATTEMPTS_MAX, PRIORITY_MAX, TURNS_MAX},
    tool::ToolSet,
};

use crate::{
    config::values::{
        parse_complexity, parse_dollars, parse_duration_ms, parse_effort, parse_model, parse_temperature,
        parse_tool_set, parse_workspace_path,
    },
    tasks::{
        backlog::{BacklogFormat, BacklogLine, LabelPriority, parse_label_priority},
        role_overrides::{self, RoleModel},
        task_args::TaskArgs,
    },
};

#[derive(Debug, clap::Args)]
pub(crate) struct BacklogImportArgs {
    /// Format of the backlog [default: detected from the file's name and content]
    #[arg(long = "format", value_enum, value_name = "FORM")]
    pub(super) form: Option<BacklogFormat>,
    /// Check everything and show what would be submitted, without submitting it
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Skip invalid tasks and submit the rest; an invalid budget is never skipped
    #[arg(long)]
    pub(super) skip_bad: bool,
    /// Resubmit tasks of this batch that have ended; failed tasks that others wait for are retried
    /// instead
    #[arg(long)]
    pub(super) again: bool,
    /// Name of the batch [default: from the repository and the file]
    #[arg(long, value_name = "NAME")]
    pub(super) batch: Option<String>,
    /// Cost limit for all runs of the batch together, in dollars, e.g. 20 or 2.50
    #[arg(long, value_name = "DOLLARS", value_parser = parse_dollars)]
    batch_usd: Option<u64>,
    /// Token limit for all runs of the batch together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    batch_tokens: Option<u64>,
    /// Repository of the tasks, or any folder inside one
    #[arg(long, value_name = "DIR", conflicts_with = "empty")]
    pub(super) repo: Option<PathBuf>,
    /// Start from an empty folder, without a repository
    #[arg(long)]
    pub(super) empty: bool,
    /// Branch, tag or commit to start from [default: HEAD]
    #[arg(long, value_name = "REV")]
    pub(super) commit: Option<String>,
    /// For SWE-bench: folder with the clones, as OWNER/NAME or OWNER__NAME
    #[arg(long, value_name = "DIR")]
    pub(super) repos: Option<PathBuf>,
    /// For SWE-bench: include the hints in the tasks
    #[arg(long)]
    pub(super) hints: bool,
    /// For issues: priority of issues with a label, e.g. bug=10; repeatable
    #[arg(long, value_name = "LABEL=N", value_parser = parse_label_priority)]
    pub(super) label_priority: Vec<LabelPriority>,
    /// Model, as for `docket submit` [default: `task.model` of docket.toml]
    #[arg(long, short, value_name = "MODEL", value_parser = parse_model)]
    model: Option<ModelRef>,
    /// Base URL of the model's API
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// Cheaper model that explores the repository first
    #[arg(long, value_name = "MODEL", value_parser = parse_model)]
    explore_model: Option<ModelRef>,
    /// Fallback model to use while the main model stays overloaded
    #[arg(long, value_name = "MODEL", value_parser = parse_model)]
    fallback_model: Option<ModelRef>,
    /// Model for one engine role, e.g. coder=openai:gpt-4.1-mini; repeatable. Cannot be combined with
    /// --model or a line's `model`, which apply to every role
    #[arg(long, value_name = "NAME=MODEL", value_parser = role_overrides::parse_role_model)]
    role: Vec<RoleModel>,
    /// Script for scripted models, as TOML or JSON
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Engine [default: `task.engine` of docket.toml, react]
    #[arg(long)]
    engine: Option<String>,
    /// Queue to submit to
    #[arg(long, default_value = "default")]
    queue: QueueName,
    /// Priority; higher runs first. A point is worth a minute of waiting, so that no task waits forever
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "N",
          value_parser = clap::value_parser!(i16).range(-i64::from(PRIORITY_MAX)..=i64::from(PRIORITY_MAX)))]
    priority: i16,
    /// Earliest start, e.g. 2026-01-31T02:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// Shell command that tests the result
    #[arg(long, value_name = "CMD")]
    tests: Option<String>,
    /// Path that must exist when the run finishes; repeatable
    #[arg(long, value_name = "PATH", value_parser = parse_workspace_path)]
    require: Vec<WorkspacePath>,
    /// Shell command that prepares a fresh workspace; repeatable
    #[arg(long, value_name = "CMD")]
    setup: Vec<String>,
    /// Policy file that limits what the model may do
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Tool set for the model: core or wide
    #[arg(long, value_name = "SET", value_parser = parse_tool_set)]
    tools: Option<ToolSet>,
    /// Maximum number of turns; a run that reaches it fails
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(TURNS_MAX)))]
    turns: Option<u32>,
    /// Task complexity: low, medium or high
    #[arg(long, value_name = "SIZE", value_parser = parse_complexity)]
    complexity: Option<TaskComplexity>,
    /// Allow delegation to child tasks, up to this depth [default: `run.delegation_depth_max` of
    /// docket.toml]
    #[arg(long, value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(0..=i64::from(DELEGATION_DEPTH_MAX)))]
    delegate: Option<u32>,
    /// Reasoning effort of the main model: low, medium or high
    #[arg(long, value_name = "EFFORT", value_parser = parse_effort)]
    effort: Option<ReasoningEffort>,
    /// Sampling temperature of the main model, from 0 to 2
    #[arg(long, value_name = "T", value_parser = parse_temperature)]
    temperature: Option<u32>,
    /// Token limit per run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: Option<u64>,
    /// Cost limit per run in dollars, e.g. 2.50
    #[arg(long, value_name = "DOLLARS", value_parser = parse_dollars)]
    max_cost: Option<u64>,
    /// Working-time limit per run, e.g. 90s, 30m or 2h
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ms)]
    max_time: Option<u64>,
    /// Push each result's branch to the repository's remote (`[delivery] remote`)
    #[arg(long)]
    push: bool,
    /// Failed runs allowed before the task is discarded
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(ATTEMPTS_MAX)))]
    attempts: u32,
}

impl BacklogImportArgs {
    /// Returns the batch budget given by flags; `None` if none was given.
    pub(super) fn budget(&self) -> Option<Budget> {
        let budget = Budget { tokens: self.batch_tokens, cost_nusd: self.batch_usd };
        (!budget.is_none()).then_some(budget)
    }

    /// Returns the `docket submit` flags for this line; files it names are relative to `folder`.
    pub(super) fn to_task_args(&self, line: &BacklogLine, folder: &Path) -> TaskArgs {
        let in_folder = |file: &PathBuf| folder.join(file);
        let both = |flags: &[WorkspacePath], own: &[WorkspacePath]| {
            let more = own.iter().filter(|path| !flags.contains(path));
            flags.iter().chain(more).cloned().collect()
        };
        TaskArgs {
            text: Some(line.text.clone()),
            file: None,
            repo: line.repo.as_ref().map(in_folder).or_else(|| self.repo.clone()),
            empty: self.empty,
            commit: line.commit.clone().or_else(|| self.commit.clone()),
            include_dirty: false,
            model: line.model.clone().or_else(|| self.model.clone()),
            base_url: line.base_url.clone().or_else(|| self.base_url.clone()),
            explore_model: line.explore_model.clone().or_else(|| self.explore_model.clone()),
            fallback_model: line.fallback_model.clone().or_else(|| self.fallback_model.clone()),
            role: if line.model.is_none() { self.role.clone() } else { Vec::new() },
            // A script given for all lines is ignored by lines whose model needs none.
            script: line.script.as_ref().map(in_folder).or_else(|| {
                let own = line.model.as_ref().is_none_or(|model| model.provider == "scripted");
                self.script.clone().filter(|_| own)
            }),
            engine: line.engine.clone().or_else(|| self.engine.clone()),
            queue: line.queue.clone().unwrap_or_else(|| self.queue.clone()),
            priority: line.priority.unwrap_or(self.priority),
            at: line.at.or(self.at),
            dedup: line.dedup.clone(),
            tests: line.tests.clone().or_else(|| self.tests.clone()),
            branch: line.branch.clone(),
            push: line.push.unwrap_or(self.push),
            require: both(&self.require, &line.requires),
            setup: self.setup.iter().chain(&line.setup).cloned().collect(),
            policy: self.policy.clone().filter(|_| line.rules.is_none()),
            tools: line.tools.or(self.tools),
            turns: line.turns.or(self.turns),
            complexity: line.complexity.or(self.complexity),
            delegate: line.delegate.or(self.delegate),
            effort: line.effort.or(self.effort),
            temperature: line.temperature.or(self.temperature),
            max_tokens: line.max_tokens.or(self.max_tokens),
            max_cost: line.max_cost.or(self.max_cost),
            max_time: line.max_time.or(self.max_time),
            attempts: line.attempts.unwrap_or(self.attempts),
            conditions: crate::tasks::conditions::ConditionArgs::default(),
        }
    }
}

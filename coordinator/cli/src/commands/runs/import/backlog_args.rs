//! Flags of a backlog's import: how it is read, and what its tasks are where their lines leave it open.

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

/// See the module.
#[derive(Debug, clap::Args)]
pub(crate) struct BacklogImportArgs {
    /// The form of the backlog [default: told by the file's name and content]
    #[arg(long = "format", value_enum, value_name = "FORM")]
    pub(super) form: Option<BacklogFormat>,
    /// Check everything and show what would be submitted; submit nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Leave out tasks that are wrong, and submit the rest; a budget that is wrong is never left out
    #[arg(long)]
    pub(super) skip_bad: bool,
    /// Submit what was imported into this batch before and has ended since; what failed and others wait for is
    /// retried in its place
    #[arg(long)]
    pub(super) again: bool,
    /// The batch's name [default: the repository's and the file's]
    #[arg(long, value_name = "NAME")]
    pub(super) batch: Option<String>,
    /// Dollars that all runs of the batch may cost together, as 20 or 2.50
    #[arg(long, value_name = "DOLLARS", value_parser = parse_dollars)]
    batch_usd: Option<u64>,
    /// Tokens that all runs of the batch may use together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    batch_tokens: Option<u64>,
    /// The repository of the tasks: this folder, or one that holds it
    #[arg(long, value_name = "DIR", conflicts_with = "empty")]
    pub(super) repo: Option<PathBuf>,
    /// No repository: start from an empty folder
    #[arg(long)]
    pub(super) empty: bool,
    /// Branch, tag or commit to start from [default: HEAD]
    #[arg(long, value_name = "REV")]
    pub(super) commit: Option<String>,
    /// For SWE-bench: the folder of the clones, as OWNER/NAME or OWNER__NAME
    #[arg(long, value_name = "DIR")]
    pub(super) repos: Option<PathBuf>,
    /// For SWE-bench: hints are part of the tasks
    #[arg(long)]
    pub(super) hints: bool,
    /// For issues: the priority of those with a label, as bug=10; may be given more than once
    #[arg(long, value_name = "LABEL=N", value_parser = parse_label_priority)]
    pub(super) label_priority: Vec<LabelPriority>,
    /// Model, as for `docket submit` [default: `task.model` of docket.toml]
    #[arg(long, short, value_name = "MODEL", value_parser = parse_model)]
    model: Option<ModelRef>,
    /// Where the model's API is
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// A cheap model that looks around first
    #[arg(long, value_name = "MODEL", value_parser = parse_model)]
    explore_model: Option<ModelRef>,
    /// A model that stands in where one stays overloaded
    #[arg(long, value_name = "MODEL", value_parser = parse_model)]
    fallback_model: Option<ModelRef>,
    /// The model of one role of the engine, as coder=openai:gpt-4.1-mini; may be given more than once, and not beside
    /// --model, which is every role's, as is one that a line names
    #[arg(long, value_name = "NAME=MODEL", value_parser = role_overrides::parse_role_model)]
    role: Vec<RoleModel>,
    /// For scripted models: the script, TOML or JSON
    #[arg(long, value_name = "FILE")]
    script: Option<PathBuf>,
    /// Engine [default: `task.engine` of docket.toml, react]
    #[arg(long)]
    engine: Option<String>,
    /// Queue
    #[arg(long, default_value = "default")]
    queue: QueueName,
    /// Higher goes first: a point is worth a minute of waiting, so that nothing waits for ever
    #[arg(long, default_value_t = 0, allow_negative_numbers = true, value_name = "N",
          value_parser = clap::value_parser!(i16).range(-i64::from(PRIORITY_MAX)..=i64::from(PRIORITY_MAX)))]
    priority: i16,
    /// Not before this instant, as 2026-01-31T02:00:00Z
    #[arg(long, value_name = "TIME")]
    at: Option<Timestamp>,
    /// The shell line that tests the work
    #[arg(long, value_name = "CMD")]
    tests: Option<String>,
    /// A path that must exist at the end; may be given more than once
    #[arg(long, value_name = "PATH", value_parser = parse_workspace_path)]
    require: Vec<WorkspacePath>,
    /// A shell line that makes a fresh workspace ready; may be given more than once
    #[arg(long, value_name = "CMD")]
    setup: Vec<String>,
    /// What the model may do, from a file
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Which tools the model has: core or wide
    #[arg(long, value_name = "SET", value_parser = parse_tool_set)]
    tools: Option<ToolSet>,
    /// Turns before a run ends as failed
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(TURNS_MAX)))]
    turns: Option<u32>,
    /// How large the tasks are (low, medium, high)
    #[arg(long, value_name = "SIZE", value_parser = parse_complexity)]
    complexity: Option<TaskComplexity>,
    /// Let runs give pieces of their work to child tasks, so deep [default: `run.delegation_depth_max` of docket.toml]
    #[arg(long, value_name = "DEPTH", value_parser = clap::value_parser!(u32).range(0..=i64::from(DELEGATION_DEPTH_MAX)))]
    delegate: Option<u32>,
    /// How hard the main model thinks (low, medium, high)
    #[arg(long, value_name = "EFFORT", value_parser = parse_effort)]
    effort: Option<ReasoningEffort>,
    /// Sampling temperature of the main model, from 0 to 2
    #[arg(long, value_name = "T", value_parser = parse_temperature)]
    temperature: Option<u32>,
    /// Tokens that a run may use
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_tokens: Option<u64>,
    /// Dollars that a run may cost, as 2.50
    #[arg(long, value_name = "DOLLARS", value_parser = parse_dollars)]
    max_cost: Option<u64>,
    /// Time that a run may work, as 90s, 30m or 2h
    #[arg(long, value_name = "TIME", value_parser = parse_duration_ms)]
    max_time: Option<u64>,
    /// Push each result's branch to the repository's remote (`[delivery] remote`)
    #[arg(long)]
    push: bool,
    /// Runs that may fail before a task is given up
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=i64::from(ATTEMPTS_MAX)))]
    attempts: u32,
}

impl BacklogImportArgs {
    /// What the batch may use, by what is said here; `None` = nothing is said.
    pub(super) fn budget(&self) -> Option<Budget> {
        let budget = Budget { tokens: self.batch_tokens, cost_nusd: self.batch_usd };
        (!budget.is_none()).then_some(budget)
    }

    /// The flags of `docket submit` that ask for this line; files that it names are in `folder`.
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
            // One that is given for all is no fault of lines that name a model which needs none.
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

//! The configuration pinned at the start of a run: everything a later decision depends on, so that no
//! decision depends on the binary, the configuration or the machine that makes it.

use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{sampling::ReasoningEffort, unverified_policy::UnverifiedPolicy};
use crate::{
    content::{BlobRef, WorkspacePath},
    event::is_zero,
    message::{ModelRef, TokenPrices},
    tool::ToolSet,
};

/// An engine and the version of its rules. A change that alters a decision in any golden log becomes a new
/// version in addition to the old one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct EngineRef {
    /// `react`, `plan`, `review`, `architect`, `team`, `sop`.
    pub name: String,
    /// Version of its rules, starting at 1.
    pub version: u16,
}

impl std::fmt::Display for EngineRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.name, self.version)
    }
}

/// Settings of a run (A25). Product defaults are overridden by file, environment and task before the run
/// starts, and the result is pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunSettings {
    /// Maximum number of model decisions before the run fails.
    pub turns_max: u32,
    /// Maximum number of correction rounds after failed final checks.
    pub corrections_max: u32,
    /// Additional turns beyond `turns_max` for each correction round.
    pub correction_turns: u32,
    /// Fill level of the context window, in percent, at which compaction starts.
    pub compaction_percent: u32,
    /// Runs linters after each batch of edits.
    pub auto_lint: bool,
    /// Refuses an edit that adds syntax errors instead of reporting them in its result.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refuse_syntax_errors: bool,
    /// Adds a final check that changed files still parse. Absent in older logs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub syntax_check: bool,
    /// Time limit of a linter after a batch of edits, in milliseconds.
    pub lint_timeout_ms: u64,
    /// Number of consecutive batches of edits with findings after which findings are no longer listed: a
    /// model that fixes one finding by causing another should reconsider the whole change.
    pub self_corrections_max: u32,
    /// Maximum number of characters of a command's output shown to the model.
    pub output_chars_max: u32,
    /// Default time limit of a command, in milliseconds.
    pub command_timeout_ms: u64,
    /// Maximum time limit that a command may request, in milliseconds.
    pub command_timeout_ms_max: u64,
    /// Maximum size of a model's reply, in tokens.
    pub output_tokens_max: u32,
    /// Does not show unchanged file contents again. Absent in older logs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_cache: bool,
    /// Maximum number of attempts of one model call before the run fails.
    pub model_attempts_max: u32,
    /// Maximum number of consecutive empty replies before the run fails.
    pub empty_answers_max: u32,
    /// Turns with the same error after which a person is asked; 0, the default in older logs, means never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub same_error_max: u32,
    /// Turns in which a command was killed for excessive resource use, after which the run fails; 0, the
    /// default in older logs, means never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub exceeded_max: u32,
    /// Turns with only failed writes to the same file after which a person is asked; 0, the default in older
    /// logs, means never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_edits_max: u32,
    /// Unresolved failures beyond which a person is asked; 0, the default in older logs, means never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures_max: u32,
    /// Overload errors of a model within one turn after which its fallback model is called; 0, the default in
    /// older logs, means never.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fallback_after: u32,
    /// Turns for which a fallback model is used before the original model is tried again; 0, the default in
    /// older logs, means the next turn.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fallback_turns: u32,
    /// Version of the rules for model failures. 0, the default in older logs: the original rules. From 1: any
    /// lasting outage uses the fallback model, a permanently refused model is no longer used if there is
    /// another one, and failures that no other run could avoid end as a configuration error.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub model_rules: u32,
    /// Reasoning effort of the main model; if absent, the provider's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// Sampling temperature of the main model in thousandths; if absent, the provider's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// Token budget of the run, requests and replies; 0, the default in older logs, means no budget.
    #[serde(default, skip_serializing_if = "is_none")]
    pub tokens_max: u64,
    /// Cost budget of the run in nano-dollars; 0, the default in older logs, means no budget.
    #[serde(default, skip_serializing_if = "is_none")]
    pub cost_max_nusd: u64,
    /// Budget for the total time of model calls, tools and checks, in milliseconds; 0, the default in older
    /// logs, means no budget.
    #[serde(default, skip_serializing_if = "is_none")]
    pub time_max_ms: u64,
    /// Treats a truncated reply or a refusal as such and not as the end of the work. Absent in older logs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heed_stops: bool,
    /// Asks a person about an error that only a person can fix: missing access, an unresponsive service.
    /// Absent in older logs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ask_at_blockers: bool,
    /// Version of the rules for blockers and repeated errors. 0, the default in older logs: the original
    /// rules. From 1: missing secrets are recognized, and reads of different things are never the same error.
    /// From 2: the output of a command or test alone is never a blocker.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trouble_rules: u32,
    /// Version of the rules for final checks. 0, the default in older logs: the original rules. From 1: a run
    /// that fails because of checks lists them, and tests the run wrote are found outside of packages as
    /// well.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub check_rules: u32,
    /// Number of requests, from the second on, with a reminder for a model that gave no plan; 0 means none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub plan_asks_max: u32,
    /// Ends the run without another model call once all required paths exist and its tests pass. Absent in
    /// older logs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub early_end: bool,
    /// Version of the rules for fixing failed checks. 0, the default in older logs: the original rules. From
    /// 1: a check that timed out is not run again to fix it, a round of fixes without changes is not followed
    /// by another round of checks, and missing imports found by any linter are fixed for failing tests.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mend_rules: u32,
    /// Version of the rules for engines with roles. 0, the default in older logs: the original rules. From 1:
    /// fixes for trivial changes, earlier checks, summaries, caps, last attempts, unverified ends, and the
    /// list of a plan's commands. From 2: also for file names, refused last patches, `expect` of a plan, and
    /// policy on folders.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub role_rules: u32,
    /// Waits for an unavailable provider, keeping the paid work, instead of failing. Absent in older logs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rest_at_outage: bool,
    /// Runs the final checks once before the run changes anything, so that existing failures are known.
    /// Absent in older logs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base_checks: bool,
    /// How a run ends whose work is done but whose final checks did not run.
    #[serde(default, skip_serializing_if = "UnverifiedPolicy::is_ask")]
    pub unverified: UnverifiedPolicy,
    /// How much planning is requested before the first change; if absent, it is derived from the task's text.
    /// In the log of a run that pinned one, the run has a planning phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complexity: Option<TaskComplexity>,
    /// The tools of its model; the original seven in older logs.
    #[serde(default, skip_serializing_if = "ToolSet::is_core")]
    pub tool_set: ToolSet,
    /// Maximum depth of delegation to child tasks: 1 means that children cannot delegate; 0, the default in
    /// older logs, means no delegation.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delegation_depth_max: u32,
    /// Maximum number of children in total, if delegation is allowed; 0 means [`CHILDREN_MAX`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub children_max: u32,
}

/// Default maximum number of children. Each is a separate run with its own costs.
pub const CHILDREN_MAX: u32 = 8;

impl RunSettings {
    /// Returns the maximum number of children in total.
    pub const fn allowed_children(&self) -> u32 {
        match (self.delegation_depth_max, self.children_max) {
            (0, _) => 0,
            (_, 0) => CHILDREN_MAX,
            (_, max) => max,
        }
    }
}

/// Expected size of a task (A15): determines whether the model is asked for no, a brief or a detailed plan
/// first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskComplexity {
    /// No plan.
    #[default]
    Low,
    /// A plan of a few sentences.
    Medium,
    /// A detailed plan.
    High,
}

impl FromStr for TaskComplexity {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "low" => Ok(Self::Low),
            "medium" => Ok(Self::Medium),
            "high" => Ok(Self::High),
            _ => Err("it must be low, medium or high"),
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
const fn is_none(number: &u64) -> bool {
    *number == 0
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            turns_max: 30,
            corrections_max: 3,
            correction_turns: 5,
            compaction_percent: 85,
            auto_lint: true,
            refuse_syntax_errors: false,
            syntax_check: true,
            lint_timeout_ms: 10_000,
            self_corrections_max: 5,
            output_chars_max: 4000,
            command_timeout_ms: 60_000,
            command_timeout_ms_max: 300_000,
            output_tokens_max: 8192,
            read_cache: true,
            model_attempts_max: 6,
            empty_answers_max: 3,
            same_error_max: 3,
            exceeded_max: 3,
            failed_edits_max: 3,
            failures_max: 5,
            fallback_after: 3,
            fallback_turns: 5,
            model_rules: 1,
            effort: None,
            temperature_milli: None,
            tokens_max: 0,
            cost_max_nusd: 0,
            time_max_ms: 0,
            heed_stops: true,
            ask_at_blockers: true,
            trouble_rules: 2,
            check_rules: 1,
            plan_asks_max: 3,
            early_end: true,
            mend_rules: 1,
            role_rules: 2,
            rest_at_outage: true,
            base_checks: false,
            unverified: UnverifiedPolicy::Ask,
            complexity: None,
            tool_set: ToolSet::Core,
            delegation_depth_max: 0,
            children_max: 0,
        }
    }
}

/// A final check that must pass before a run can succeed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateSpec {
    /// The check's name: `tests`.
    pub name: String,
    /// The shell command, run in the workspace; exit status 0 means passed.
    pub command: String,
    /// What to try before asking the model if the check fails, for findings that can be fixed automatically.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mend: Option<CheckFix>,
}

impl GateSpec {
    /// Whether the check is a linter.
    #[must_use]
    pub fn is_linter(&self) -> bool {
        self.mend.as_ref().is_some_and(|mend| mend.imports.is_none())
    }
}

/// Fixes a failed check without a model: with the linter's own fix, then by patterns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckFix {
    /// The linter's fix command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Files that this run changed; pattern fixes are applied to no others.
    pub files: Vec<WorkspacePath>,
    /// If the check is not a linter: the command of linters that find missing imports. Only these are fixed
    /// then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imports: Option<String>,
}

/// A linter, configured or detected at the start of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinterSpec {
    /// The linter's name: `ruff`.
    pub name: String,
    /// File name extensions it handles, without the dot.
    pub extensions: Vec<String>,
    /// The check command; `{files}` is replaced with the quoted paths. Exit status 0 means no findings, 127
    /// means not installed.
    pub check: String,
    /// The command that checks the project at the end; if absent, `check` over the files that the run
    /// changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The fix command; `{files}` as in `check`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Whether the linter must have no findings at the end. False for a project that has files of the
    /// language and never configured this linter, because its existing findings are not the run's to fix.
    #[serde(default)]
    pub gates: bool,
}

/// Limits and prices of a model, as known when the run started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelTerms {
    /// Size of the context window in tokens; 0 means unknown.
    pub context_tokens: u64,
    /// Maximum size of a reply in tokens; 0 means unknown.
    pub output_tokens_max: u64,
    /// Prices; all 0 if unknown.
    pub prices: TokenPrices,
    /// Whether the price table contained the model: an unknown price is shown as unknown, not as free.
    pub priced: bool,
    /// Reasoning effort; if absent, the provider's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// Sampling temperature in thousandths; if absent, the provider's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// Sends the reply limit of Chat Completions as `max_completion_tokens` to any server. Absent in older
    /// logs: only at OpenAI's own address.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub completion_tokens: bool,
}

/// Texts and schemas in every request of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunPrompts {
    /// System prompt: base and project layers.
    pub system: BlobRef,
    /// Tool specifications, as a JSON array.
    pub tools: BlobRef,
    /// First user message: the task layer.
    pub task: BlobRef,
}

/// The sandbox layers that were actually active for a run's commands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SandboxLayers {
    /// `bubblewrap`, `namespaces` or `none`.
    pub backend: String,
    /// Active layers.
    pub active: Vec<String>,
    /// Layers that this host does not support, each with the reason.
    pub missing: Vec<String>,
    /// Shared resource limits of commands; `None` if they were not enforced, and in older logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<SandboxLimits>,
}

/// Resource limits that a run's commands share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxLimits {
    /// Memory of all processes and of the private folders (`/tmp`, `/dev/shm`), in bytes.
    pub memory_bytes: u64,
    /// Number of processes and threads.
    pub processes: u64,
    /// Size of the workspace, in bytes.
    pub disk_bytes: u64,
    /// Number of files and folders in the workspace.
    pub disk_files: u64,
    /// Output of one command, in bytes; far more than is recorded.
    pub output_bytes: u64,
}

/// The models of a run. The main one plays every role that has no model of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunModels {
    /// The main model.
    pub main: ModelRef,
    /// The main model's terms.
    pub terms: ModelTerms,
    /// The model that explores until something is to be changed; if absent, the main model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explore: Option<Box<OtherModel>>,
    /// The fallback for a model that stays overloaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Box<OtherModel>>,
    /// Additional models for roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<OtherModel>,
}

/// A model other than the main one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherModel {
    /// The model.
    pub model: ModelRef,
    /// The model's terms.
    pub terms: ModelTerms,
}

impl RunModels {
    /// Uses one model for everything.
    pub const fn single_model(main: ModelRef, terms: ModelTerms) -> Self {
        Self { main, terms, explore: None, fallback: None, roles: Vec::new() }
    }

    /// Returns all models, the main one first.
    pub fn all(&self) -> impl Iterator<Item = (&ModelRef, &ModelTerms)> {
        let others = [&self.explore, &self.fallback].into_iter().flatten().map(|other| &**other);
        let others = others.chain(&self.roles).map(|other| (&other.model, &other.terms));
        std::iter::once((&self.main, &self.terms)).chain(others)
    }

    /// Whether one conversation can involve more than one model.
    pub const fn has_multiple(&self) -> bool {
        self.explore.is_some() || self.fallback.is_some()
    }

    /// Returns the terms of one of the models; for an unknown model, those of the main one.
    pub fn terms_for(&self, model: &ModelRef) -> &ModelTerms {
        self.all().find(|(one, _)| *one == model).map_or(&self.terms, |(_, terms)| terms)
    }

    /// Whether the prices of all models are known.
    pub fn has_all_prices(&self) -> bool {
        self.all().all(|(_, terms)| terms.priced)
    }
}

impl std::fmt::Display for RunModels {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.main)?;
        if let Some(explore) = &self.explore {
            write!(f, ", {} explores", explore.model)?;
        }
        if let Some(fallback) = &self.fallback {
            write!(f, ", {} is the fallback", fallback.model)?;
        }
        Ok(())
    }
}

//! What a run pins at its start: everything a later decision depends on, so that no decision ever
//! depends on the binary, the configuration or the machine that happens to make it.

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

/// An engine and the version of its rules. A change that alters a decision on any golden log is a
/// new version beside the old one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct EngineRef {
    /// `react`, `plan`, `review`, `architect`, `team`, `sop`.
    pub name: String,
    /// Version of its rules, from 1.
    pub version: u16,
}

impl std::fmt::Display for EngineRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.name, self.version)
    }
}

/// Settings of a run (A25). Defaults are the product's; file, environment and task override them
/// before the run starts, and the result is pinned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RunSettings {
    /// Model decisions before the run ends as failed.
    pub turns_max: u32,
    /// Rounds of correction after failed gates.
    pub corrections_max: u32,
    /// Turns that each round of correction may use beyond `turns_max`.
    pub correction_turns: u32,
    /// Share of the context window, in percent, at which compaction begins.
    pub compaction_percent: u32,
    /// Lint after each batch of edits.
    pub auto_lint: bool,
    /// Refuse an edit that adds syntax errors, in place of saying so in its result.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refuse_syntax_errors: bool,
    /// At the end, files that the run changed and that no longer parse fail a check. Not in logs that lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub syntax_check: bool,
    /// Time limit of a linter after a batch of edits.
    pub lint_timeout_ms: u64,
    /// Batches of edits in a row that leave findings, after which they are no longer listed: who
    /// mends one finding with another has to look at the whole.
    pub self_corrections_max: u32,
    /// Characters of a command's output that the model sees.
    pub output_chars_max: u32,
    /// Time limit of a command that names none.
    pub command_timeout_ms: u64,
    /// Longest time limit a command may name.
    pub command_timeout_ms_max: u64,
    /// Largest answer asked of the model.
    pub output_tokens_max: u32,
    /// What was shown of a file and has not changed is not shown again. Not in logs that lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub read_cache: bool,
    /// Attempts at one model call before the run ends as failed.
    pub model_attempts_max: u32,
    /// Empty answers in a row before the run ends as failed.
    pub empty_answers_max: u32,
    /// Turns with the same error after which a person is asked; 0 = never, and so in logs that lack it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub same_error_max: u32,
    /// Turns in which a command was ended for using too much, after which the run ends as failed; 0 = never, and so in
    /// logs that lack it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub exceeded_max: u32,
    /// Turns in which a write to the same file failed, none succeeding, after which a person is asked; 0 =
    /// never, and so in logs that lack it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed_edits_max: u32,
    /// Failures that were not made good, beyond which a person is asked; 0 = never, and so in logs that lack it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failures_max: u32,
    /// Overloads of a model in one turn after which the model that stands in for it is asked; 0 = never, and so
    /// in logs that lack it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fallback_after: u32,
    /// Turns that a model which stands in keeps before the other is tried again; 0 = tried at the next turn, and so
    /// in logs that lack it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub fallback_turns: u32,
    /// By which rules failures of models are met: 0, the first ones, and so in logs that lack it; from 1 on every
    /// lasting outage is stood in for, a model that is refused for good is done without where there is another, and
    /// what no other run could mend ends as a fault of configuration.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub model_rules: u32,
    /// How hard the main model thinks; none = as its provider has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// Sampling temperature of the main model in thousandths; none = as its provider has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// Tokens that the run may use, of requests and answers; 0 = no budget, and so in logs that lack it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub tokens_max: u64,
    /// Nano-dollars that the run may cost; 0 = no budget, and so in logs that lack it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub cost_max_nusd: u64,
    /// Time that its model calls, tools and checks may take together; 0 = no budget, and so in logs that lack it.
    #[serde(default, skip_serializing_if = "is_none")]
    pub time_max_ms: u64,
    /// Take an answer that was cut, or that refuses, for what it is, and not for the end of the work. Not in logs
    /// that lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heed_stops: bool,
    /// Ask a person at an error that only a person can mend: missing access, a service that does not answer.
    /// Not in logs that lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ask_at_blockers: bool,
    /// By which rules blockers and repeated errors are told: 0, the first ones, and so in logs that lack it; from 1 on
    /// missing secrets are known as well, and looks at different things are never the same error; from 2 on what a
    /// command shows or tests is never a blocker of its own.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub trouble_rules: u32,
    /// By which rules the final checks are told: 0, the first ones, and so in logs that lack it; from 1 on a run that
    /// fails by them names them, and tests that it wrote are found outside of packages as well.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub check_rules: u32,
    /// Requests, from the second on, that remind a model which gave no plan; 0 = none, and so in logs that lack it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub plan_asks_max: u32,
    /// Stop once all paths that the task requires are there and its tests pass, without asking the model again.
    /// Not in logs that lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub early_end: bool,
    /// By which rules failed checks are mended: 0, the first ones, and so in logs that lack it; from 1 on a check that
    /// its time limit ended is not run again to mend it, a round of mending that changed nothing is not followed by
    /// another round of checks, and tests that fail have missing imports mended that any linter finds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mend_rules: u32,
    /// By which rules engines with roles work: 0, the first ones, and so in logs that lack it; from 1 on as they were mended:
    /// trivial changes, earlier checks, summaries, caps, last tries, unverified ends, the list of a plan's commands; from 2
    /// on also names of files, refused last patches, `expect` of a plan, and what policy says of folders.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub role_rules: u32,
    /// Where a provider stays away, wait for it with all that was paid for, in place of failing. Not in logs that
    /// lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rest_at_outage: bool,
    /// Run the final checks once before the run changes anything, so that what fails then is known. Not in logs that
    /// lack it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub base_checks: bool,
    /// What becomes of a run whose work is done and whose final checks did not run.
    #[serde(default, skip_serializing_if = "UnverifiedPolicy::is_ask")]
    pub unverified: UnverifiedPolicy,
    /// How much is asked for before the first change; none = as the task's words let one expect. A log of a run
    /// that pinned one has its phase of planning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complexity: Option<TaskComplexity>,
    /// Which tools its model has; the seven in logs that lack it.
    #[serde(default, skip_serializing_if = "ToolSet::is_core")]
    pub tool_set: ToolSet,
    /// How deep the run may give work away to child tasks: 1 = its children give nothing away themselves; 0 = it gives
    /// nothing away, and so in logs that lack it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delegation_depth_max: u32,
    /// Children that the run may have in all, where it may have any; 0 = [`CHILDREN_MAX`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub children_max: u32,
}

/// Children of a run where nothing else is said: each is a run of its own, to be paid for.
pub const CHILDREN_MAX: u32 = 8;

impl RunSettings {
    /// Children that the run may have in all.
    pub const fn allowed_children(&self) -> u32 {
        match (self.delegation_depth_max, self.children_max) {
            (0, _) => 0,
            (_, 0) => CHILDREN_MAX,
            (_, max) => max,
        }
    }
}

/// How large a task is thought to be (A15): whether nothing, a brief or a detailed intent preview is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskComplexity {
    /// It is done at once.
    #[default]
    Low,
    /// A few sentences first.
    Medium,
    /// A detailed preview first.
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

/// A check that must pass before a run may end well.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GateSpec {
    /// What it is called: `tests`.
    pub name: String,
    /// The shell line that is run in the workspace; exit status 0 passes.
    pub command: String,
    /// What can be tried before the model is asked, where it does not pass: a linter's findings can be
    /// mended without thought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mend: Option<CheckFix>,
}

impl GateSpec {
    /// Whether it is a linter's check.
    #[must_use]
    pub fn is_linter(&self) -> bool {
        self.mend.as_ref().is_some_and(|mend| mend.imports.is_none())
    }
}

/// How a failed check is mended without a model: by the linter's own fix, then by patterns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckFix {
    /// The linter's own fix, a shell line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Files that this run changed: no other is touched by a pattern.
    pub files: Vec<WorkspacePath>,
    /// Where the check is no linter's: the shell line of linters that find missing imports, which are all that is
    /// mended then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imports: Option<String>,
}

/// A linter, as configured or found when the run started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinterSpec {
    /// What it is called: `ruff`.
    pub name: String,
    /// Endings of the names of its files, without the dot.
    pub extensions: Vec<String>,
    /// The shell line that checks; `{files}` stands for the quoted paths. Exit status 0 = nothing found,
    /// 127 = it is not installed.
    pub check: String,
    /// The shell line that checks the project at the end; none = `check`, over the files that the run changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The shell line that mends what it can by itself; `{files}` as in `check`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    /// Whether a run must leave nothing for it to find. Not where the project has files of the language
    /// and never asked for this linter: old findings are not the run's to mend.
    #[serde(default)]
    pub gates: bool,
}

/// What a model can take and costs, as known when the run started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelTerms {
    /// Context window in tokens; 0 = unknown.
    pub context_tokens: u64,
    /// Largest answer in tokens; 0 = unknown.
    pub output_tokens_max: u64,
    /// Prices; all 0 where unknown.
    pub prices: TokenPrices,
    /// Whether the price table knew the model: an unknown price is shown as unknown, not as free.
    pub priced: bool,
    /// How hard it thinks; none = as its provider has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// Sampling temperature in thousandths; none = as its provider has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// In Chat Completions the limit of an answer is `max_completion_tokens`, wherever the model is. Not in logs
    /// that lack it: only at OpenAI's own address.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub completion_tokens: bool,
}

/// The texts and schemas of every request of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunPrompts {
    /// System prompt: base and project layers.
    pub system: BlobRef,
    /// Tool specifications, as a JSON array.
    pub tools: BlobRef,
    /// First user message: the task layer.
    pub task: BlobRef,
}

/// Which walls really stood around a run's commands.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SandboxLayers {
    /// `bubblewrap`, `namespaces` or `none`.
    pub backend: String,
    /// Active layers.
    pub active: Vec<String>,
    /// Layers this host did not give, each with the reason.
    pub missing: Vec<String>,
    /// What commands may use together; `None` where nothing held them to it, and in older logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limits: Option<SandboxLimits>,
}

/// What the commands of a run may use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SandboxLimits {
    /// Memory of all processes and of what lies in the private folders (`/tmp`, `/dev/shm`), in bytes.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub processes: u64,
    /// What the workspace may hold, in bytes.
    pub disk_bytes: u64,
    /// Files and folders in the workspace.
    pub disk_files: u64,
    /// What one command may write to its outputs, in bytes; far more than is kept of it.
    pub output_bytes: u64,
}

/// Which model does what; the main one plays every role that names no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunModels {
    /// The main model.
    pub main: ModelRef,
    /// Its terms.
    pub terms: ModelTerms,
    /// Looks around until something is to be changed; none = the main one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explore: Option<Box<OtherModel>>,
    /// Stands in for a model that stays overloaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Box<OtherModel>>,
    /// Models that play roles, beside those.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<OtherModel>,
}

/// A model beside the main one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OtherModel {
    /// The model.
    pub model: ModelRef,
    /// Its terms.
    pub terms: ModelTerms,
}

impl RunModels {
    /// One model that does everything.
    pub const fn single_model(main: ModelRef, terms: ModelTerms) -> Self {
        Self { main, terms, explore: None, fallback: None, roles: Vec::new() }
    }

    /// All of them, the main one first.
    pub fn all(&self) -> impl Iterator<Item = (&ModelRef, &ModelTerms)> {
        let others = [&self.explore, &self.fallback].into_iter().flatten().map(|other| &**other);
        let others = others.chain(&self.roles).map(|other| (&other.model, &other.terms));
        std::iter::once((&self.main, &self.terms)).chain(others)
    }

    /// Whether one conversation may be with more than one.
    pub const fn has_multiple(&self) -> bool {
        self.explore.is_some() || self.fallback.is_some()
    }

    /// The terms of one of them; the main one's for any other.
    pub fn terms_for(&self, model: &ModelRef) -> &ModelTerms {
        self.all().find(|(one, _)| *one == model).map_or(&self.terms, |(_, terms)| terms)
    }

    /// Whether the prices of all are known.
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
            write!(f, ", {} stands in", fallback.model)?;
        }
        Ok(())
    }
}

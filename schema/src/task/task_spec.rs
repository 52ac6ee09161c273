//! Task specifications, and the rules that the types do not express.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use super::delivery_events::DeliveryMode;
use super::field_error::FieldError;
use super::lease_conditions::LeaseConditions;
use super::priority::{PRIORITY_MAX, read_priority};
use super::role_override::{RoleOverride, check_role_overrides};
use crate::{
    content::{BlobRef, WorkspacePath},
    ids::{BatchId, QueueName, TaskId, Timestamp},
    message::ModelRef,
    policy::Policy,
    run::{ReasoningEffort, TaskComplexity},
    snapshot::WorkspaceBase,
    tool::ToolSet,
};

/// Maximum length of a title, in characters: what a list can show.
pub const TITLE_CHARS_MAX: usize = 200;
/// Maximum length of a task's text, in bytes.
pub const TEXT_BYTES_MAX: usize = 128 * 1024;
/// Maximum length of a deduplication key, in bytes; it is part of an index.
pub const DEDUP_KEY_BYTES_MAX: usize = 256;
/// Maximum length of an engine's name, in bytes.
pub const ENGINE_BYTES_MAX: usize = 64;
/// Maximum length of a branch name, in bytes; its components are file names.
const BRANCH_BYTES_MAX: usize = 240;
/// Maximum number of setup lines; more belong in a script in the repository.
pub const SETUP_LINES_MAX: usize = 100;
/// Maximum length of a setup or test command, in bytes: the same as for a model's commands.
pub const SHELL_LINE_BYTES_MAX: usize = 32 * 1024;
/// Maximum number of required paths.
pub const REQUIRES_MAX: usize = 1000;
/// Maximum number of parts of a base's pack; one event lists all of them. At about 2 MiB each, this is a
/// commit of 20 GiB.
pub const PACK_PARTS_MAX: usize = 10_000;
/// Maximum number of submodules of a base.
pub const SUBMODULES_MAX: usize = 10_000;
/// Maximum number of failed runs of a task.
pub const ATTEMPTS_MAX: u32 = 100;
/// Maximum number of turns that a task or a worker's settings may allow a run.
pub const TURNS_MAX: u32 = 1000;
/// Maximum depth of delegation.
pub const DELEGATION_DEPTH_MAX: u32 = 8;
/// Maximum backoff between two runs, in milliseconds: 30 days. Bounded so that the resulting time can be
/// represented in a log.
pub const BACKOFF_MS_MAX: u64 = 30 * 86_400_000;
/// Maximum working time of a run, in milliseconds: 366 days.
pub const WORK_MS_MAX: u64 = 366 * 86_400_000;

/// Specification of a task: one piece of work for docket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskSpec {
    /// One line for lists. At most [`TITLE_CHARS_MAX`] characters.
    pub title: String,
    /// The task's text for the model. At most [`TEXT_BYTES_MAX`] bytes.
    pub text: String,
    /// The queue.
    #[serde(default)]
    pub queue: QueueName,
    /// The priority; higher goes first. Within ± [`PRIORITY_MAX`].
    #[serde(default, deserialize_with = "read_priority")]
    #[schemars(range(min = -1000, max = 1000))]
    pub priority: i16,
    /// Earliest start time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Timestamp>,
    /// Deduplication key: while a task with this key has not ended, no other is accepted, and a submit
    /// returns the existing one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedup_key: Option<String>,
    /// Number of runs that may fail before the task is discarded.
    #[serde(default = "TaskSpec::default_attempts_max")]
    pub attempts_max: u32,
    /// Number of run-process crashes before the task is discarded as poison.
    #[serde(default = "TaskSpec::default_crashes_max")]
    pub crashes_max: u32,
    /// Backoff between runs.
    #[serde(default)]
    pub backoff: Backoff,
    /// The tree it starts from.
    pub base: WorkspaceBase,
    /// The engine.
    #[serde(default = "TaskSpec::default_engine")]
    pub engine: String,
    /// The model.
    pub model: ModelRef,
    /// The model that explores until something is to be changed; none means [`Self::model`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explore_model: Option<ModelRef>,
    /// The fallback for a model that stays overloaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_model: Option<ModelRef>,
    /// Overrides of the engine's roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleOverride>,
    /// The script, for `scripted` models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<BlobRef>,
    /// Settings that differ from the worker's.
    #[serde(default)]
    pub settings: SettingsPatch,
    /// The shell command that tests the work; if absent, it is detected from the tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tests: Option<String>,
    /// Paths that must exist at the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<WorkspacePath>,
    /// Shell commands that prepare a fresh workspace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<String>,
    /// The policy for the model, in addition to the worker's; the strictest verdict wins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Policy>,
    /// The branch to deliver the result to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// How the result is delivered automatically; if absent, to that branch, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryMode>,
    /// The batch of tasks it was submitted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The batch's name: one line, at most [`TITLE_CHARS_MAX`] characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch_name: Option<String>,
    /// Conditions for leasing it.
    #[serde(default, skip_serializing_if = "LeaseConditions::is_none")]
    pub conditions: LeaseConditions,
}

impl TaskSpec {
    const fn default_attempts_max() -> u32 {
        3
    }

    const fn default_crashes_max() -> u32 {
        5
    }

    fn default_engine() -> String {
        "react".to_owned()
    }

    /// Returns how the result is delivered automatically.
    pub const fn delivery_mode(&self) -> DeliveryMode {
        match (self.delivery, &self.branch) {
            (Some(delivery), _) => delivery,
            (None, Some(_)) => DeliveryMode::Branch,
            (None, None) => DeliveryMode::Patch,
        }
    }

    /// Returns the branch for its result if no other is given.
    pub fn result_branch(&self, task: TaskId) -> String {
        self.branch.clone().unwrap_or_else(|| format!("docket/{}", task.short()))
    }

    /// Validates what the types do not express.
    ///
    /// # Errors
    ///
    /// [`FieldError`] with the invalid field and its requirement.
    pub fn check(&self) -> Result<(), FieldError> {
        let fail = |field, must| Err(FieldError { field, must });
        if self.title.trim().is_empty() || self.title.chars().count() > TITLE_CHARS_MAX {
            return fail("title", "1 to 200 characters");
        }
        if self.title.contains(['\n', '\r']) {
            return fail("title", "one line");
        }
        let named = |name: &String| {
            !name.trim().is_empty() && name.chars().count() <= TITLE_CHARS_MAX && !name.contains(['\n', '\r'])
        };
        if !self.batch_name.as_ref().is_none_or(named) {
            return fail("batch_name", "one line of 1 to 200 characters");
        }
        if self.text.len() > TEXT_BYTES_MAX {
            return fail("text", "at most 131072 bytes");
        }
        check_priority(self.priority)?;
        // PostgreSQL text cannot contain NUL.
        let illegal = |key: &String| key.is_empty() || key.len() > DEDUP_KEY_BYTES_MAX || key.contains('\0');
        if self.dedup_key.as_ref().is_some_and(illegal) {
            return fail("dedup_key", "1 to 256 bytes without NUL");
        }
        if self.engine.len() > ENGINE_BYTES_MAX || self.engine.contains('\0') {
            return fail("engine", "an engine's name");
        }
        self.check_retries()?;
        if self.branch.as_ref().is_some_and(|branch| !is_branch_name(branch)) {
            return fail("branch", "a valid git branch name, such as fix/rounding");
        }
        if self.policy.as_ref().is_some_and(|policy| policy.check().is_err()) {
            return fail("policy", "a valid policy; `docket policy check FILE` reports the faults");
        }
        self.settings.check()?;
        self.check_lists()?;
        check_role_overrides(&self.roles)?;
        self.conditions.check()
    }

    fn check_retries(&self) -> Result<(), FieldError> {
        let fail = |field, must| Err(FieldError { field, must });
        if !(1..=ATTEMPTS_MAX).contains(&self.attempts_max) {
            return fail("attempts_max", "within 1 and 100");
        }
        if self.crashes_max == 0 {
            return fail("crashes_max", "at least 1");
        }
        if self.backoff.base_ms > BACKOFF_MS_MAX {
            return fail("backoff.base_ms", "at most 2592000000 (30 days)");
        }
        if self.backoff.max_ms > BACKOFF_MS_MAX {
            return fail("backoff.max_ms", "at most 2592000000 (30 days)");
        }
        if self.backoff.base_ms > self.backoff.max_ms {
            return fail("backoff.base_ms", "at most `backoff.max_ms`");
        }
        Ok(())
    }

    /// Every list is bounded, because it is recorded, sent to workers and displayed.
    fn check_lists(&self) -> Result<(), FieldError> {
        let fail = |field, must| Err(FieldError { field, must });
        if self.setup.len() > SETUP_LINES_MAX {
            return fail("setup", "at most 100 lines; put more into a script in the repository");
        }
        // An empty command always passes, and a command cannot contain NUL.
        let is_wrong = |line: &String| {
            line.len() > SHELL_LINE_BYTES_MAX || line.trim().is_empty() || line.contains('\0')
        };
        if self.setup.iter().any(is_wrong) {
            return fail("setup", "non-empty shell commands of at most 32768 bytes without NUL");
        }
        if self.tests.as_ref().is_some_and(is_wrong) {
            return fail("tests", "a non-empty shell command of at most 32768 bytes without NUL");
        }
        if self.requires.len() > REQUIRES_MAX {
            return fail("requires", "at most 1000 paths");
        }
        let Some(git) = &self.base.git else { return Ok(()) };
        if git.pack.len() > PACK_PARTS_MAX {
            return fail("base.git.pack", "at most 10000 parts");
        }
        if git.submodules.len() > SUBMODULES_MAX {
            return fail("base.git.submodules", "at most 10000 submodules");
        }
        if !git.submodules.is_sorted_by(|a, b| a.path < b.path) {
            return fail("base.git.submodules", "in byte order of their paths, each once");
        }
        Ok(())
    }
}

/// Checks the priority of a new task, or a changed one.
///
/// # Errors
///
/// [`FieldError`] if it is out of range.
pub fn check_priority(priority: i16) -> Result<(), FieldError> {
    // Not by absolute value, which the type's lowest number does not have.
    if (-PRIORITY_MAX..=PRIORITY_MAX).contains(&priority) {
        return Ok(());
    }
    Err(FieldError { field: "priority", must: "within -1000 and 1000" })
}

/// Whether git accepts the name for a branch: the rules of `git check-ref-format --branch`.
pub fn is_branch_name(name: &str) -> bool {
    let illegal = |c: char| c.is_ascii_control() || " ~^:?*[\\".contains(c);
    let part = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    name.len() <= BRANCH_BYTES_MAX
        && name != "@"
        && name != "HEAD"
        && !name.starts_with('-')
        && !name.ends_with('.')
        && !name.contains("..")
        && !name.contains("@{")
        && !name.contains(illegal)
        && name.split('/').all(part)
}

/// Checks the models of a task.
///
/// # Errors
///
/// As for [`check_model`].
pub fn check_models(spec: &TaskSpec) -> Result<(), FieldError> {
    let all = [Some(&spec.model), spec.explore_model.as_ref(), spec.fallback_model.as_ref()];
    let of_roles = spec.roles.iter().filter_map(|role| role.model.as_ref());
    all.into_iter().flatten().chain(of_roles).try_for_each(check_model)
}

/// Checks a model: its provider must be supported, and its address must be usable by a run and safe to record
/// permanently. Recorded models are not checked again.
///
/// # Errors
///
/// [`FieldError`] with the invalid field and its requirement.
pub fn check_model(model: &ModelRef) -> Result<(), FieldError> {
    if !ModelRef::PROVIDERS.contains(&model.provider.as_str()) {
        let must = "one of anthropic, openai, openai-responses and scripted";
        return Err(FieldError { field: "model.provider", must });
    }
    let Some(text) = &model.base_url else { return Ok(()) };
    let good = text.trim() == text
        && Url::parse(text).is_ok_and(|url| {
            matches!(url.scheme(), "http" | "https")
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.query().is_none()
                && url.fragment().is_none()
        });
    let must = "an http or https address without user, password, query or fragment, as http://localhost:11434/v1; \
                a key comes in the worker's environment";
    if good { Ok(()) } else { Err(FieldError { field: "model.base_url", must }) }
}

/// Exponential backoff: the n-th retry waits base × 2^(n−1), at most max, ± a quarter of jitter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Backoff {
    /// Wait before the first retry, in milliseconds.
    pub base_ms: u64,
    /// Maximum wait, in milliseconds.
    pub max_ms: u64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { base_ms: 10_000, max_ms: 3_600_000 }
    }
}

impl Backoff {
    /// Returns the wait before the retry after `failures` failed runs. The caller draws `jitter`, which is
    /// taken modulo its range, so that the function remains pure.
    pub const fn delay_ms(&self, failures: u32, jitter: u64) -> u64 {
        let doublings = if failures == 0 { 0 } else { failures - 1 };
        let factor = if doublings >= 63 { u64::MAX } else { 1 << doublings };
        let wanted = self.base_ms.saturating_mul(factor);
        let wait = if wanted > self.max_ms { self.max_ms } else { wanted };
        let span = wait / 2;
        // wait × [3/4, 5/4)
        (wait - wait / 4).saturating_add(if span == 0 { 0 } else { jitter % span })
    }

    /// Returns the longest wait that [`Self::delay_ms`] can return, in milliseconds.
    pub const fn max_delay_ms(&self) -> u64 {
        self.max_ms.saturating_add(self.max_ms / 4)
    }
}

/// Settings that a task overrides; absent ones are the worker's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SettingsPatch {
    /// See [`crate::run::RunSettings::turns_max`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns_max: Option<u32>,
    /// See [`crate::run::RunSettings::corrections_max`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrections_max: Option<u32>,
    /// See [`crate::run::RunSettings::tokens_max`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_max: Option<u64>,
    /// See [`crate::run::RunSettings::cost_max_nusd`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_max_nusd: Option<u64>,
    /// See [`crate::run::RunSettings::time_max_ms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_max_ms: Option<u64>,
    /// See [`crate::run::RunSettings::command_timeout_ms`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_timeout_ms: Option<u64>,
    /// See [`crate::run::RunSettings::auto_lint`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto_lint: Option<bool>,
    /// See [`crate::run::RunSettings::refuse_syntax_errors`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refuse_syntax_errors: Option<bool>,
    /// See [`crate::run::RunSettings::complexity`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub complexity: Option<TaskComplexity>,
    /// See [`crate::run::RunSettings::effort`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// See [`crate::run::RunSettings::temperature_milli`]; at most 2000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// See [`crate::run::RunSettings::tool_set`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_set: Option<ToolSet>,
    /// See [`crate::run::RunSettings::delegation_depth_max`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delegation_depth_max: Option<u32>,
    /// See [`crate::run::RunSettings::children_max`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub children_max: Option<u32>,
}

impl SettingsPatch {
    /// Validates the ranges, which are those of the worker's own settings and of the command line. A zero
    /// that means "no limit" there is not allowed here: a task sets a limit or omits it.
    fn check(&self) -> Result<(), FieldError> {
        let small = |n: Option<u32>, low: u32, high: u32| n.is_none_or(|n| (low..=high).contains(&n));
        let large = |n: Option<u64>, low: u64, high: u64| n.is_none_or(|n| (low..=high).contains(&n));
        let rules = [
            (small(self.turns_max, 1, TURNS_MAX), "settings.turns_max", "within 1 and 1000"),
            (small(self.corrections_max, 0, 100), "settings.corrections_max", "within 0 and 100"),
            (large(self.tokens_max, 1, u64::MAX), "settings.tokens_max", "at least 1"),
            (large(self.cost_max_nusd, 1, u64::MAX), "settings.cost_max_nusd", "at least 1"),
            (
                large(self.time_max_ms, 1, WORK_MS_MAX),
                "settings.time_max_ms",
                "within 1 and 31622400000 (366 days)",
            ),
            (
                large(self.command_timeout_ms, 100, 3_600_000),
                "settings.command_timeout_ms",
                "within 100 and 3600000",
            ),
            (small(self.temperature_milli, 0, 2000), "settings.temperature_milli", "from 0 to 2000"),
            (
                small(self.delegation_depth_max, 0, DELEGATION_DEPTH_MAX),
                "settings.delegation_depth_max",
                "within 0 and 8",
            ),
            (small(self.children_max, 0, 64), "settings.children_max", "within 0 and 64"),
        ];
        match rules.into_iter().find(|(is_met, ..)| !is_met) {
            Some((_, field, must)) => Err(FieldError { field, must }),
            None => Ok(()),
        }
    }

    /// Returns this patch with missing fields taken from another.
    pub fn with_defaults(self, under: Self) -> Self {
        let Self {
            turns_max,
            corrections_max,
            tokens_max,
            cost_max_nusd,
            time_max_ms,
            command_timeout_ms,
            auto_lint,
            refuse_syntax_errors,
            complexity,
            effort,
            temperature_milli,
            tool_set,
            delegation_depth_max,
            children_max,
        } = self;
        Self {
            turns_max: turns_max.or(under.turns_max),
            corrections_max: corrections_max.or(under.corrections_max),
            tokens_max: tokens_max.or(under.tokens_max),
            cost_max_nusd: cost_max_nusd.or(under.cost_max_nusd),
            time_max_ms: time_max_ms.or(under.time_max_ms),
            command_timeout_ms: command_timeout_ms.or(under.command_timeout_ms),
            auto_lint: auto_lint.or(under.auto_lint),
            refuse_syntax_errors: refuse_syntax_errors.or(under.refuse_syntax_errors),
            complexity: complexity.or(under.complexity),
            effort: effort.or(under.effort),
            temperature_milli: temperature_milli.or(under.temperature_milli),
            tool_set: tool_set.or(under.tool_set),
            delegation_depth_max: delegation_depth_max.or(under.delegation_depth_max),
            children_max: children_max.or(under.children_max),
        }
    }
}

//! Every setting: its name in the file and in the environment, what is allowed, and where it goes.

use docket_schema::{run::temperature_milli, task::DELEGATION_DEPTH_MAX};
use docket_worker::model::can_be_listed;

use super::{
    Config,
    amounts::{DOLLARS, SIZE, TEMPERATURE, dollars, sandbox, size},
};

const MIB: u64 = 1024 * 1024;

/// What a model's name may be.
pub(super) const MODEL: &str = "anthropic:NAME, openai:NAME, openai-responses:NAME or scripted:NAME";

/// One setting.
pub(super) struct Key {
    /// Section and name in the file.
    pub(super) name: &'static str,
    /// Name in the environment.
    pub(super) env: &'static str,
    /// What is allowed, for people.
    pub(super) allowed: &'static str,
    /// Takes a value's text; `None` = not allowed.
    pub(super) set: fn(&mut Config, &str) -> Option<()>,
}

/// Reads a number within a range into a place.
pub(super) fn number<T: TryFrom<u64>>(
    text: &str,
    range: std::ops::RangeInclusive<u64>,
    place: &mut T,
) -> Option<()> {
    let number: u64 = text.replace('_', "").parse().ok()?;
    *place = range.contains(&number).then_some(number).and_then(|number| T::try_from(number).ok())?;
    Some(())
}

/// A size within a range.
fn within(text: &str, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
    size(text).ok().filter(|bytes| range.contains(bytes))
}

/// See the module.
pub(super) static KEYS: [Key; 56] = [
    Key {
        name: "run.turns_max",
        env: "DOCKET_TURNS_MAX",
        allowed: "a whole number from 1 to 1000",
        set: |c, t| number(t, 1..=1000, &mut c.run.turns_max),
    },
    Key {
        name: "run.corrections_max",
        env: "DOCKET_CORRECTIONS_MAX",
        allowed: "a whole number from 0 to 100",
        set: |c, t| number(t, 0..=100, &mut c.run.corrections_max),
    },
    Key {
        name: "run.correction_turns",
        env: "DOCKET_CORRECTION_TURNS",
        allowed: "a whole number from 0 to 100",
        set: |c, t| number(t, 0..=100, &mut c.run.correction_turns),
    },
    Key {
        name: "run.compaction_percent",
        env: "DOCKET_COMPACTION_PERCENT",
        allowed: "a whole number from 10 to 100",
        set: |c, t| number(t, 10..=100, &mut c.run.compaction_percent),
    },
    Key {
        name: "run.auto_lint",
        env: "DOCKET_AUTO_LINT",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run.auto_lint = on),
    },
    Key {
        name: "run.refuse_syntax_errors",
        env: "DOCKET_REFUSE_SYNTAX_ERRORS",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run.refuse_syntax_errors = on),
    },
    Key {
        name: "run.syntax_check",
        env: "DOCKET_SYNTAX_CHECK",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run.syntax_check = on),
    },
    Key {
        name: "run.read_cache",
        env: "DOCKET_READ_CACHE",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run.read_cache = on),
    },
    Key {
        name: "run.lint_timeout_ms",
        env: "DOCKET_LINT_TIMEOUT_MS",
        allowed: "milliseconds from 100 to 600000",
        set: |c, t| number(t, 100..=600_000, &mut c.run.lint_timeout_ms),
    },
    Key {
        name: "run.self_corrections_max",
        env: "DOCKET_SELF_CORRECTIONS_MAX",
        allowed: "a whole number from 0 to 1000",
        set: |c, t| number(t, 0..=1000, &mut c.run.self_corrections_max),
    },
    Key {
        name: "run.output_chars_max",
        env: "DOCKET_OUTPUT_CHARS_MAX",
        allowed: "a whole number from 200 to 1000000",
        set: |c, t| number(t, 200..=1_000_000, &mut c.run.output_chars_max),
    },
    Key {
        name: "run.command_timeout_ms",
        env: "DOCKET_COMMAND_TIMEOUT_MS",
        allowed: "milliseconds from 100 to 3600000",
        set: |c, t| number(t, 100..=3_600_000, &mut c.run.command_timeout_ms),
    },
    Key {
        name: "run.command_timeout_ms_max",
        env: "DOCKET_COMMAND_TIMEOUT_MS_MAX",
        allowed: "milliseconds from 100 to 3600000",
        set: |c, t| number(t, 100..=3_600_000, &mut c.run.command_timeout_ms_max),
    },
    Key {
        name: "run.output_tokens_max",
        env: "DOCKET_OUTPUT_TOKENS_MAX",
        allowed: "a whole number from 256 to 1000000",
        set: |c, t| number(t, 256..=1_000_000, &mut c.run.output_tokens_max),
    },
    Key {
        name: "run.model_attempts_max",
        env: "DOCKET_MODEL_ATTEMPTS_MAX",
        allowed: "a whole number from 1 to 100",
        set: |c, t| number(t, 1..=100, &mut c.run.model_attempts_max),
    },
    Key {
        name: "run.empty_answers_max",
        env: "DOCKET_EMPTY_ANSWERS_MAX",
        allowed: "a whole number from 1 to 100",
        set: |c, t| number(t, 1..=100, &mut c.run.empty_answers_max),
    },
    Key {
        name: "run.exceeded_max",
        env: "DOCKET_EXCEEDED_MAX",
        allowed: "a whole number from 0 to 1000; 0 = never",
        set: |c, t| number(t, 0..=1000, &mut c.run.exceeded_max),
    },
    Key {
        name: "run.same_error_max",
        env: "DOCKET_SAME_ERROR_MAX",
        allowed: "a whole number from 0 to 1000; 0 = never",
        set: |c, t| number(t, 0..=1000, &mut c.run.same_error_max),
    },
    Key {
        name: "run.failed_edits_max",
        env: "DOCKET_FAILED_EDITS_MAX",
        allowed: "a whole number from 0 to 1000; 0 = never",
        set: |c, t| number(t, 0..=1000, &mut c.run.failed_edits_max),
    },
    Key {
        name: "run.failures_max",
        env: "DOCKET_FAILURES_MAX",
        allowed: "a whole number from 0 to 1000; 0 = never",
        set: |c, t| number(t, 0..=1000, &mut c.run.failures_max),
    },
    Key {
        name: "run.fallback_after",
        env: "DOCKET_FALLBACK_AFTER",
        allowed: "a whole number from 0 to 100; 0 = never",
        set: |c, t| number(t, 0..=100, &mut c.run.fallback_after),
    },
    Key {
        name: "run.fallback_turns",
        env: "DOCKET_FALLBACK_TURNS",
        allowed: "a whole number from 0 to 1000; 0 = the next turn tries the model itself again",
        set: |c, t| number(t, 0..=1000, &mut c.run.fallback_turns),
    },
    Key {
        name: "run.effort",
        env: "DOCKET_EFFORT",
        allowed: "low, medium, high; without, the provider decides",
        set: |c, t| t.parse().ok().map(|effort| c.run.effort = Some(effort)),
    },
    Key {
        name: "run.tool_set",
        env: "DOCKET_TOOL_SET",
        allowed: "core, wide",
        set: |c, t| t.parse().ok().map(|set| c.run.tool_set = set),
    },
    Key {
        name: "run.temperature",
        env: "DOCKET_TEMPERATURE",
        allowed: TEMPERATURE,
        set: |c, t| temperature_milli(t).map(|milli| c.run.temperature_milli = Some(milli)),
    },
    Key {
        name: "run.tokens_max",
        env: "DOCKET_TOKENS_MAX",
        allowed: "a whole number from 0; 0 = no budget",
        set: |c, t| number(t, 0..=u64::MAX, &mut c.run.tokens_max),
    },
    Key {
        name: "run.cost_max",
        env: "DOCKET_COST_MAX",
        allowed: DOLLARS,
        set: |c, t| dollars(t).map(|nusd| c.run.cost_max_nusd = nusd),
    },
    Key {
        name: "run.time_max_ms",
        env: "DOCKET_TIME_MAX_MS",
        allowed: "milliseconds from 0; 0 = no budget",
        set: |c, t| number(t, 0..=u64::MAX, &mut c.run.time_max_ms),
    },
    Key {
        name: "run.ask_at_blockers",
        env: "DOCKET_ASK_AT_BLOCKERS",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run.ask_at_blockers = on),
    },
    Key {
        name: "run.plan_asks_max",
        env: "DOCKET_PLAN_ASKS_MAX",
        allowed: "a whole number from 0 to 1000; 0 = never",
        set: |c, t| number(t, 0..=1000, &mut c.run.plan_asks_max),
    },
    Key {
        name: "run.early_end",
        env: "DOCKET_EARLY_END",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run.early_end = on),
    },
    Key {
        name: "run.rest_at_outage",
        env: "DOCKET_REST_AT_OUTAGE",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run.rest_at_outage = on),
    },
    Key {
        name: "run.base_checks",
        env: "DOCKET_BASE_CHECKS",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run.base_checks = on),
    },
    Key {
        name: "run.unverified",
        env: "DOCKET_UNVERIFIED",
        allowed: "ask, complete or fail",
        set: |c, t| t.parse().ok().map(|policy| c.run.unverified = policy),
    },
    Key {
        name: "run.complexity",
        env: "DOCKET_COMPLEXITY",
        allowed: "low, medium, high; without, each task is judged by its words",
        set: |c, t| t.parse().ok().map(|size| c.run.complexity = Some(size)),
    },
    Key {
        name: "run.delegation_depth_max",
        env: "DOCKET_DELEGATION_DEPTH_MAX",
        allowed: "a whole number from 0 to 8; 0 = runs give nothing away",
        set: |c, t| number(t, 0..=u64::from(DELEGATION_DEPTH_MAX), &mut c.run.delegation_depth_max),
    },
    Key {
        name: "run.children_max",
        env: "DOCKET_CHILDREN_MAX",
        allowed: "a whole number from 0 to 64; 0 = 8",
        set: |c, t| number(t, 0..=64, &mut c.run.children_max),
    },
    Key {
        name: "task.model",
        env: "DOCKET_MODEL",
        allowed: MODEL,
        set: |c, t| t.parse().ok().map(|model| c.model = Some(model)),
    },
    Key {
        name: "task.explore_model",
        env: "DOCKET_EXPLORE_MODEL",
        allowed: MODEL,
        set: |c, t| t.parse().ok().map(|model| c.explore_model = Some(model)),
    },
    Key {
        name: "task.fallback_model",
        env: "DOCKET_FALLBACK_MODEL",
        allowed: MODEL,
        set: |c, t| t.parse().ok().map(|model| c.fallback_model = Some(model)),
    },
    Key {
        name: "task.engine",
        env: "DOCKET_ENGINE",
        allowed: "an engine's name, such as react",
        set: |c, t| {
            (!t.is_empty() && t.bytes().all(|b| b.is_ascii_lowercase())).then(|| t.clone_into(&mut c.engine))
        },
    },
    Key {
        name: "worker.slots",
        env: "DOCKET_SLOTS",
        allowed: "a whole number from 1 to 1000",
        set: |c, t| number(t, 1..=1000, &mut c.slots),
    },
    Key {
        name: "worker.hang_ms",
        env: "DOCKET_HANG_MS",
        allowed: "milliseconds from 1000 to 86400000",
        set: |c, t| number(t, 1000..=86_400_000, c.hang_ms.get_or_insert_default()),
    },
    Key {
        name: "worker.queues",
        env: "DOCKET_QUEUES",
        allowed: "queue names (letters, digits, . _ -), in the environment separated by commas",
        set: |c, t| {
            let names = t.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse);
            names.collect::<Result<_, _>>().ok().map(|queues| c.queues = queues)
        },
    },
    Key {
        name: "worker.labels",
        env: "DOCKET_LABELS",
        allowed: "labels as gpu=a100,arch=arm64, at most 32",
        set: |c, t| t.parse().ok().map(|labels| c.labels = labels),
    },
    Key {
        name: "worker.sandbox",
        env: "DOCKET_SANDBOX",
        allowed: "auto, bubblewrap, namespaces or none",
        set: |c, t| sandbox(t).map(|choice| c.sandbox = choice),
    },
    Key {
        name: "worker.memory",
        env: "DOCKET_MEMORY",
        allowed: SIZE,
        set: |c, t| within(t, 16 * MIB..=u64::MAX >> 1).map(|bytes| c.limits.memory_bytes = bytes),
    },
    Key {
        name: "worker.processes",
        env: "DOCKET_PROCESSES",
        allowed: "a whole number from 8 to 1000000",
        set: |c, t| number(t, 8..=1_000_000, &mut c.limits.processes),
    },
    Key {
        name: "worker.disk",
        env: "DOCKET_DISK",
        allowed: SIZE,
        set: |c, t| within(t, 16 * MIB..=u64::MAX >> 1).map(|bytes| c.limits.disk_bytes = bytes),
    },
    Key {
        name: "worker.files",
        env: "DOCKET_FILES",
        allowed: "a whole number from 1000 to 1000000000",
        set: |c, t| number(t, 1000..=1_000_000_000, &mut c.limits.disk_files),
    },
    Key {
        name: "worker.output",
        env: "DOCKET_OUTPUT",
        allowed: SIZE,
        set: |c, t| within(t, 16 * MIB..=u64::MAX >> 1).map(|bytes| c.limits.output_bytes = bytes),
    },
    Key {
        name: "worker.redact",
        env: "DOCKET_REDACT",
        allowed: "names of environment variables, in the environment separated by commas",
        set: |c, t| {
            let names: Vec<&str> = t.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
            let legal = |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            names.iter().all(legal).then(|| c.redact = names.iter().map(ToString::to_string).collect())
        },
    },
    Key {
        name: "worker.base_urls",
        env: "DOCKET_BASE_URLS",
        allowed: "addresses like http://127.0.0.1:11434 (`:*` for any port), in the environment separated by commas",
        set: |c, t| {
            let urls: Vec<&str> = t.split(',').map(str::trim).filter(|url| !url.is_empty()).collect();
            let legal = urls.iter().all(|url| can_be_listed(url));
            legal.then(|| c.base_urls = urls.iter().map(ToString::to_string).collect())
        },
    },
    Key {
        name: "delivery.remote",
        env: "DOCKET_DELIVERY_REMOTE",
        allowed: "the name of a remote, as origin",
        set: |c, t| {
            let legal = !t.is_empty() && !t.starts_with('-') && !t.contains(char::is_whitespace);
            legal.then(|| c.delivery.remote = t.to_owned())
        },
    },
    Key {
        name: "delivery.hook",
        env: "DOCKET_DELIVERY_HOOK",
        allowed: "a shell line",
        set: |c, t| {
            c.delivery.hook = Some(t.to_owned());
            Some(())
        },
    },
    Key {
        name: "delivery.hook_timeout_ms",
        env: "DOCKET_DELIVERY_HOOK_TIMEOUT_MS",
        allowed: "milliseconds from 100 to 3600000",
        set: |c, t| number(t, 100..=3_600_000, &mut c.delivery.hook_timeout_ms),
    },
];

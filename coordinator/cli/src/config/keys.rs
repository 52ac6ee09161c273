//! The table of all settings: name in the file and environment, allowed values, and the field each one sets.

use docket_schema::{run::parse_temperature_milli, task::DELEGATION_DEPTH_MAX};
use docket_worker::model::is_valid_allowlist_entry;

use super::{
    Config,
    amounts::{
        ALLOWED_DOLLARS, ALLOWED_SIZE, ALLOWED_TEMPERATURE, parse_nano_dollars, parse_sandbox_choice,
        parse_size,
    },
};

const MIB: u64 = 1024 * 1024;

/// Describes a model name.
pub(super) const ALLOWED_MODEL: &str = "anthropic:NAME, openai:NAME, openai-responses:NAME or scripted:NAME";

/// One setting.
pub(super) struct SettingKey {
    /// Section and name in the file.
    pub(super) name: &'static str,
    /// Environment variable.
    pub(super) env: &'static str,
    /// Describes the allowed values.
    pub(super) allowed: &'static str,
    /// Stores a value given as text; `None` = not allowed.
    pub(super) set: fn(&mut Config, &str) -> Option<()>,
}

/// Parses a number within a range into `target`.
pub(super) fn parse_number_into<T: TryFrom<u64>>(
    text: &str,
    range: std::ops::RangeInclusive<u64>,
    place: &mut T,
) -> Option<()> {
    let number: u64 = text.replace('_', "").parse().ok()?;
    *place = range.contains(&number).then_some(number).and_then(|number| T::try_from(number).ok())?;
    Some(())
}

/// Parses a size within a range.
fn parse_size_within(text: &str, range: std::ops::RangeInclusive<u64>) -> Option<u64> {
    parse_size(text).ok().filter(|bytes| range.contains(bytes))
}

/// All settings.
pub(super) static KEYS: [SettingKey; 56] = [
    SettingKey {
        name: "run.turns_max",
        env: "DOCKET_TURNS_MAX",
        allowed: "a whole number from 1 to 1000",
        set: |c, t| parse_number_into(t, 1..=1000, &mut c.run_defaults.turns_max),
    },
    SettingKey {
        name: "run.corrections_max",
        env: "DOCKET_CORRECTIONS_MAX",
        allowed: "a whole number from 0 to 100",
        set: |c, t| parse_number_into(t, 0..=100, &mut c.run_defaults.corrections_max),
    },
    SettingKey {
        name: "run.correction_turns",
        env: "DOCKET_CORRECTION_TURNS",
        allowed: "a whole number from 0 to 100",
        set: |c, t| parse_number_into(t, 0..=100, &mut c.run_defaults.correction_turns),
    },
    SettingKey {
        name: "run.compaction_percent",
        env: "DOCKET_COMPACTION_PERCENT",
        allowed: "a whole number from 10 to 100",
        set: |c, t| parse_number_into(t, 10..=100, &mut c.run_defaults.compaction_percent),
    },
    SettingKey {
        name: "run.auto_lint",
        env: "DOCKET_AUTO_LINT",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run_defaults.auto_lint = on),
    },
    SettingKey {
        name: "run.refuse_syntax_errors",
        env: "DOCKET_REFUSE_SYNTAX_ERRORS",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run_defaults.refuse_syntax_errors = on),
    },
    SettingKey {
        name: "run.syntax_check",
        env: "DOCKET_SYNTAX_CHECK",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run_defaults.syntax_check = on),
    },
    SettingKey {
        name: "run.read_cache",
        env: "DOCKET_READ_CACHE",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run_defaults.read_cache = on),
    },
    SettingKey {
        name: "run.lint_timeout_ms",
        env: "DOCKET_LINT_TIMEOUT_MS",
        allowed: "milliseconds from 100 to 600000",
        set: |c, t| parse_number_into(t, 100..=600_000, &mut c.run_defaults.lint_timeout_ms),
    },
    SettingKey {
        name: "run.self_corrections_max",
        env: "DOCKET_SELF_CORRECTIONS_MAX",
        allowed: "a whole number from 0 to 1000",
        set: |c, t| parse_number_into(t, 0..=1000, &mut c.run_defaults.self_corrections_max),
    },
    SettingKey {
        name: "run.output_chars_max",
        env: "DOCKET_OUTPUT_CHARS_MAX",
        allowed: "a whole number from 200 to 1000000",
        set: |c, t| parse_number_into(t, 200..=1_000_000, &mut c.run_defaults.output_chars_max),
    },
    SettingKey {
        name: "run.command_timeout_ms",
        env: "DOCKET_COMMAND_TIMEOUT_MS",
        allowed: "milliseconds from 100 to 3600000",
        set: |c, t| parse_number_into(t, 100..=3_600_000, &mut c.run_defaults.command_timeout_ms),
    },
    SettingKey {
        name: "run.command_timeout_ms_max",
        env: "DOCKET_COMMAND_TIMEOUT_MS_MAX",
        allowed: "milliseconds from 100 to 3600000",
        set: |c, t| parse_number_into(t, 100..=3_600_000, &mut c.run_defaults.command_timeout_ms_max),
    },
    SettingKey {
        name: "run.output_tokens_max",
        env: "DOCKET_OUTPUT_TOKENS_MAX",
        allowed: "a whole number from 256 to 1000000",
        set: |c, t| parse_number_into(t, 256..=1_000_000, &mut c.run_defaults.output_tokens_max),
    },
    SettingKey {
        name: "run.model_attempts_max",
        env: "DOCKET_MODEL_ATTEMPTS_MAX",
        allowed: "a whole number from 1 to 100",
        set: |c, t| parse_number_into(t, 1..=100, &mut c.run_defaults.model_attempts_max),
    },
    SettingKey {
        name: "run.empty_answers_max",
        env: "DOCKET_EMPTY_ANSWERS_MAX",
        allowed: "a whole number from 1 to 100",
        set: |c, t| parse_number_into(t, 1..=100, &mut c.run_defaults.empty_answers_max),
    },
    SettingKey {
        name: "run.exceeded_max",
        env: "DOCKET_EXCEEDED_MAX",
        allowed: "a whole number from 0 to 1000; 0 = never",
        set: |c, t| parse_number_into(t, 0..=1000, &mut c.run_defaults.exceeded_max),
    },
    SettingKey {
        name: "run.same_error_max",
        env: "DOCKET_SAME_ERROR_MAX",
        allowed: "a whole number from 0 to 1000; 0 = never",
        set: |c, t| parse_number_into(t, 0..=1000, &mut c.run_defaults.same_error_max),
    },
    SettingKey {
        name: "run.failed_edits_max",
        env: "DOCKET_FAILED_EDITS_MAX",
        allowed: "a whole number from 0 to 1000; 0 = never",
        set: |c, t| parse_number_into(t, 0..=1000, &mut c.run_defaults.failed_edits_max),
    },
    SettingKey {
        name: "run.failures_max",
        env: "DOCKET_FAILURES_MAX",
        allowed: "a whole number from 0 to 1000; 0 = never",
        set: |c, t| parse_number_into(t, 0..=1000, &mut c.run_defaults.failures_max),
    },
    SettingKey {
        name: "run.fallback_after",
        env: "DOCKET_FALLBACK_AFTER",
        allowed: "a whole number from 0 to 100; 0 = never",
        set: |c, t| parse_number_into(t, 0..=100, &mut c.run_defaults.fallback_after),
    },
    SettingKey {
        name: "run.fallback_turns",
        env: "DOCKET_FALLBACK_TURNS",
        allowed: "a whole number from 0 to 1000; 0 = the next turn tries the original model again",
        set: |c, t| parse_number_into(t, 0..=1000, &mut c.run_defaults.fallback_turns),
    },
    SettingKey {
        name: "run.effort",
        env: "DOCKET_EFFORT",
        allowed: "low, medium, high; if unset, the provider decides",
        set: |c, t| t.parse().ok().map(|effort| c.run_defaults.effort = Some(effort)),
    },
    SettingKey {
        name: "run.tool_set",
        env: "DOCKET_TOOL_SET",
        allowed: "core, wide",
        set: |c, t| t.parse().ok().map(|set| c.run_defaults.tool_set = set),
    },
    SettingKey {
        name: "run.temperature",
        env: "DOCKET_TEMPERATURE",
        allowed: ALLOWED_TEMPERATURE,
        set: |c, t| parse_temperature_milli(t).map(|milli| c.run_defaults.temperature_milli = Some(milli)),
    },
    SettingKey {
        name: "run.tokens_max",
        env: "DOCKET_TOKENS_MAX",
        allowed: "a whole number from 0; 0 = no budget",
        set: |c, t| parse_number_into(t, 0..=u64::MAX, &mut c.run_defaults.tokens_max),
    },
    SettingKey {
        name: "run.cost_max",
        env: "DOCKET_COST_MAX",
        allowed: ALLOWED_DOLLARS,
        set: |c, t| parse_nano_dollars(t).map(|nusd| c.run_defaults.cost_max_nusd = nusd),
    },
    SettingKey {
        name: "run.time_max_ms",
        env: "DOCKET_TIME_MAX_MS",
        allowed: "milliseconds from 0; 0 = no budget",
        set: |c, t| parse_number_into(t, 0..=u64::MAX, &mut c.run_defaults.time_max_ms),
    },
    SettingKey {
        name: "run.ask_at_blockers",
        env: "DOCKET_ASK_AT_BLOCKERS",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run_defaults.ask_at_blockers = on),
    },
    SettingKey {
        name: "run.plan_asks_max",
        env: "DOCKET_PLAN_ASKS_MAX",
        allowed: "a whole number from 0 to 1000; 0 = never",
        set: |c, t| parse_number_into(t, 0..=1000, &mut c.run_defaults.plan_asks_max),
    },
    SettingKey {
        name: "run.early_end",
        env: "DOCKET_EARLY_END",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run_defaults.early_end = on),
    },
    SettingKey {
        name: "run.rest_at_outage",
        env: "DOCKET_REST_AT_OUTAGE",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run_defaults.rest_at_outage = on),
    },
    SettingKey {
        name: "run.base_checks",
        env: "DOCKET_BASE_CHECKS",
        allowed: "true or false",
        set: |c, t| t.parse().ok().map(|on| c.run_defaults.base_checks = on),
    },
    SettingKey {
        name: "run.unverified",
        env: "DOCKET_UNVERIFIED",
        allowed: "ask, complete or fail",
        set: |c, t| t.parse().ok().map(|policy| c.run_defaults.unverified = policy),
    },
    SettingKey {
        name: "run.complexity",
        env: "DOCKET_COMPLEXITY",
        allowed: "low, medium, high; if unset, judged from the text of each task",
        set: |c, t| t.parse().ok().map(|size| c.run_defaults.complexity = Some(size)),
    },
    SettingKey {
        name: "run.delegation_depth_max",
        env: "DOCKET_DELEGATION_DEPTH_MAX",
        allowed: "a whole number from 0 to 8; 0 = runs cannot delegate",
        set: |c, t| {
            parse_number_into(
                t,
                0..=u64::from(DELEGATION_DEPTH_MAX),
                &mut c.run_defaults.delegation_depth_max,
            )
        },
    },
    SettingKey {
        name: "run.children_max",
        env: "DOCKET_CHILDREN_MAX",
        allowed: "a whole number from 0 to 64; 0 = 8",
        set: |c, t| parse_number_into(t, 0..=64, &mut c.run_defaults.children_max),
    },
    SettingKey {
        name: "task.model",
        env: "DOCKET_MODEL",
        allowed: ALLOWED_MODEL,
        set: |c, t| t.parse().ok().map(|model| c.model = Some(model)),
    },
    SettingKey {
        name: "task.explore_model",
        env: "DOCKET_EXPLORE_MODEL",
        allowed: ALLOWED_MODEL,
        set: |c, t| t.parse().ok().map(|model| c.explore_model = Some(model)),
    },
    SettingKey {
        name: "task.fallback_model",
        env: "DOCKET_FALLBACK_MODEL",
        allowed: ALLOWED_MODEL,
        set: |c, t| t.parse().ok().map(|model| c.fallback_model = Some(model)),
    },
    SettingKey {
        name: "task.engine",
        env: "DOCKET_ENGINE",
        allowed: "an engine's name, such as react",
        set: |c, t| {
            (!t.is_empty() && t.bytes().all(|b| b.is_ascii_lowercase())).then(|| t.clone_into(&mut c.engine))
        },
    },
    SettingKey {
        name: "worker.slots",
        env: "DOCKET_SLOTS",
        allowed: "a whole number from 1 to 1000",
        set: |c, t| parse_number_into(t, 1..=1000, &mut c.slots),
    },
    SettingKey {
        name: "worker.hang_ms",
        env: "DOCKET_HANG_MS",
        allowed: "milliseconds from 1000 to 86400000",
        set: |c, t| parse_number_into(t, 1000..=86_400_000, c.hang_ms.get_or_insert_default()),
    },
    SettingKey {
        name: "worker.queues",
        env: "DOCKET_QUEUES",
        allowed: "queue names (letters, digits, . _ -); comma-separated in the environment",
        set: |c, t| {
            let names = t.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::parse);
            names.collect::<Result<_, _>>().ok().map(|queues| c.queues = queues)
        },
    },
    SettingKey {
        name: "worker.labels",
        env: "DOCKET_LABELS",
        allowed: "labels such as gpu=a100,arch=arm64, at most 32",
        set: |c, t| t.parse().ok().map(|labels| c.labels = labels),
    },
    SettingKey {
        name: "worker.sandbox",
        env: "DOCKET_SANDBOX",
        allowed: "auto, bubblewrap, namespaces or none",
        set: |c, t| parse_sandbox_choice(t).map(|choice| c.sandbox = choice),
    },
    SettingKey {
        name: "worker.memory",
        env: "DOCKET_MEMORY",
        allowed: ALLOWED_SIZE,
        set: |c, t| {
            parse_size_within(t, 16 * MIB..=u64::MAX >> 1).map(|bytes| c.sandbox_limits.memory_bytes = bytes)
        },
    },
    SettingKey {
        name: "worker.processes",
        env: "DOCKET_PROCESSES",
        allowed: "a whole number from 8 to 1000000",
        set: |c, t| parse_number_into(t, 8..=1_000_000, &mut c.sandbox_limits.processes),
    },
    SettingKey {
        name: "worker.disk",
        env: "DOCKET_DISK",
        allowed: ALLOWED_SIZE,
        set: |c, t| {
            parse_size_within(t, 16 * MIB..=u64::MAX >> 1).map(|bytes| c.sandbox_limits.disk_bytes = bytes)
        },
    },
    SettingKey {
        name: "worker.files",
        env: "DOCKET_FILES",
        allowed: "a whole number from 1000 to 1000000000",
        set: |c, t| parse_number_into(t, 1000..=1_000_000_000, &mut c.sandbox_limits.disk_files),
    },
    SettingKey {
        name: "worker.output",
        env: "DOCKET_OUTPUT",
        allowed: ALLOWED_SIZE,
        set: |c, t| {
            parse_size_within(t, 16 * MIB..=u64::MAX >> 1).map(|bytes| c.sandbox_limits.output_bytes = bytes)
        },
    },
    SettingKey {
        name: "worker.redact",
        env: "DOCKET_REDACT",
        allowed: "names of environment variables; comma-separated in the environment",
        set: |c, t| {
            let names: Vec<&str> = t.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
            let legal = |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            names
                .iter()
                .all(legal)
                .then(|| c.redacted_env_vars = names.iter().map(ToString::to_string).collect())
        },
    },
    SettingKey {
        name: "worker.base_urls",
        env: "DOCKET_BASE_URLS",
        allowed: "addresses like http://127.0.0.1:11434 (`:*` for any port); comma-separated in the environment",
        set: |c, t| {
            let urls: Vec<&str> = t.split(',').map(str::trim).filter(|url| !url.is_empty()).collect();
            let legal = urls.iter().all(|url| is_valid_allowlist_entry(url));
            legal.then(|| c.trusted_base_urls = urls.iter().map(ToString::to_string).collect())
        },
    },
    SettingKey {
        name: "delivery.remote",
        env: "DOCKET_DELIVERY_REMOTE",
        allowed: "the name of a remote, such as origin",
        set: |c, t| {
            let legal = !t.is_empty() && !t.starts_with('-') && !t.contains(char::is_whitespace);
            legal.then(|| c.delivery.remote = t.to_owned())
        },
    },
    SettingKey {
        name: "delivery.hook",
        env: "DOCKET_DELIVERY_HOOK",
        allowed: "a shell command",
        set: |c, t| {
            c.delivery.hook = Some(t.to_owned());
            Some(())
        },
    },
    SettingKey {
        name: "delivery.hook_timeout_ms",
        env: "DOCKET_DELIVERY_HOOK_TIMEOUT_MS",
        allowed: "milliseconds from 100 to 3600000",
        set: |c, t| parse_number_into(t, 100..=3_600_000, &mut c.delivery.hook_timeout_ms),
    },
];

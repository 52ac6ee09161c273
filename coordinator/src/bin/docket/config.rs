//! Settings: `docket.toml` in the home, `DOCKET_…` in the environment over it, checked into one value.
//!
//! Every setting is a row of [`KEYS`]: its name in the file and in the environment, what is allowed,
//! and where it goes. A wrong one is refused with all three, whichever way it came. Command-line
//! flags are laid over this by the subcommands.

use std::path::Path;

use docket_schema::{
    ids::QueueName,
    message::ModelRef,
    policy::Policy,
    redact::Redactor,
    run::{RunSettings, temperature_milli},
};
use docket_worker::bootstrap::{HiddenValues, SandboxChoice, WorkerSettings};

use crate::fail::{Exit, FailWith as _, Failure, Outcome};

mod amounts;
mod server;

pub(crate) use amounts::{DOLLARS, TEMPERATURE, dollars, sandbox};
pub(crate) use server::{CONNECTIONS_MAX, ServerSettings, is_store};

/// The settings of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Defaults of runs.
    pub(crate) run: RunSettings,
    /// Model of tasks that name none.
    pub(crate) model: Option<ModelRef>,
    /// Model that explores, of tasks that name none.
    pub(crate) explore_model: Option<ModelRef>,
    /// Model that stands in, of tasks that name none.
    pub(crate) fallback_model: Option<ModelRef>,
    /// Engine of tasks that name none.
    pub(crate) engine: String,
    /// Store of `serve`, `up`, `db` and `verify`; none = the home's own database.
    pub(crate) store: Option<String>,
    /// How `serve` and `up` serve.
    pub(crate) server: ServerSettings,
    /// The one CA to trust where the coordinator is https; none = the system's.
    pub(crate) ca: Option<std::path::PathBuf>,
    /// Runs that a worker has at once.
    pub(crate) slots: u32,
    /// A run process without progress for so long counts as hanging, whatever it is at; none = the longest
    /// that what it is at may take.
    pub(crate) hang_ms: Option<u64>,
    /// Queues a worker serves; none = all.
    pub(crate) queues: Vec<QueueName>,
    /// Walls around commands.
    pub(crate) sandbox: SandboxChoice,
    /// Environment variables whose values are struck out of prompts, results and events.
    pub(crate) redact: Vec<String>,
    /// The file's `[prices]`, as TOML text of its own.
    pub(crate) prices_toml: Option<String>,
    /// The file's `[policy]`.
    pub(crate) policy: Option<Policy>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            run: RunSettings::default(),
            model: None,
            explore_model: None,
            fallback_model: None,
            engine: "react".to_owned(),
            store: None,
            server: ServerSettings::default(),
            ca: None,
            slots: 2,
            hang_ms: None,
            queues: Vec::new(),
            sandbox: SandboxChoice::Auto,
            redact: Vec::new(),
            prices_toml: None,
            policy: None,
        }
    }
}

/// One setting.
struct Key {
    /// Section and name in the file.
    name: &'static str,
    /// Name in the environment.
    env: &'static str,
    /// What is allowed, for people.
    allowed: &'static str,
    /// Takes a value's text; `None` = not allowed.
    set: fn(&mut Config, &str) -> Option<()>,
}

/// Reads a number within a range into a place.
fn number<T: TryFrom<u64>>(text: &str, range: std::ops::RangeInclusive<u64>, place: &mut T) -> Option<()> {
    let number: u64 = text.replace('_', "").parse().ok()?;
    *place = range.contains(&number).then_some(number).and_then(|number| T::try_from(number).ok())?;
    Some(())
}

static KEYS: [Key; 40] = [
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
        name: "run.complexity",
        env: "DOCKET_COMPLEXITY",
        allowed: "low, medium, high; without, each task is judged by its words",
        set: |c, t| t.parse().ok().map(|size| c.run.complexity = Some(size)),
    },
    Key {
        name: "task.model",
        env: "DOCKET_MODEL",
        allowed: "anthropic:NAME, openai:NAME, openai-responses:NAME or scripted:NAME",
        set: |c, t| t.parse().ok().map(|model| c.model = Some(model)),
    },
    Key {
        name: "task.explore_model",
        env: "DOCKET_EXPLORE_MODEL",
        allowed: "anthropic:NAME, openai:NAME, openai-responses:NAME or scripted:NAME",
        set: |c, t| t.parse().ok().map(|model| c.explore_model = Some(model)),
    },
    Key {
        name: "task.fallback_model",
        env: "DOCKET_FALLBACK_MODEL",
        allowed: "anthropic:NAME, openai:NAME, openai-responses:NAME or scripted:NAME",
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
        name: "worker.sandbox",
        env: "DOCKET_SANDBOX",
        allowed: "auto, bubblewrap, namespaces or none",
        set: |c, t| sandbox(t).map(|choice| c.sandbox = choice),
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
];

/// All settings.
fn keys() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().chain(&server::KEYS)
}

impl Config {
    /// Reads `file`, if there is one, and the environment over it.
    ///
    /// # Errors
    /// A setting that is unknown or not allowed, named with its place and what is.
    pub(crate) fn load(file: &Path, env: impl Fn(&str) -> Option<String>) -> Outcome<Self> {
        let mut config = Self::default();
        match std::fs::read_to_string(file) {
            Ok(text) => config.read(&text, &file.display().to_string())?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).fail_with(Exit::Usage, || {
                    format!("cannot read {}; check its permissions", file.display())
                });
            }
        }
        for key in keys() {
            let Some(text) = env(key.env).filter(|text| !text.trim().is_empty()) else { continue };
            if (key.set)(&mut config, text.trim()).is_none() {
                // A database's address holds a password.
                let shown =
                    if key.env == "DATABASE_URL" { "its value".to_owned() } else { format!("`{text}`") };
                let message = format!("{} in the environment: {shown} is not {}", key.env, key.allowed);
                return Err(Failure::new(Exit::Usage, message));
            }
        }
        config.check()
    }

    fn check(self) -> Outcome<Self> {
        if self.run.command_timeout_ms > self.run.command_timeout_ms_max {
            let message =
                "run.command_timeout_ms is above run.command_timeout_ms_max; lower it or raise the limit";
            return Err(Failure::new(Exit::Usage, message));
        }
        self.server.check()?;
        Ok(self)
    }

    fn read(&mut self, text: &str, file: &str) -> Outcome<()> {
        let fail = |message: String| Failure::new(Exit::Usage, format!("{file}: {message}"));
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line =
                error.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
            fail(format!("line {line} is not TOML ({})", error.message()))
        })?;
        for (section, value) in table {
            let toml::Value::Table(values) = value else {
                return Err(fail(format!("`{section}` must stand in a section: {}", sections())));
            };
            if section == "prices" {
                self.prices_toml = Some(values.to_string());
                continue;
            }
            if section == "policy" {
                let read = docket_worker::policy::read(values)
                    .map_err(|error| fail(format!("[policy]: {error}")))?;
                self.policy = Some(read);
                continue;
            }
            for (name, value) in values {
                let name = format!("{section}.{name}");
                let key = keys().find(|key| key.name == name).ok_or_else(|| {
                    let names = keys().map(|key| key.name);
                    let known: Vec<&str> = names.filter(|k| k.starts_with(&format!("{section}."))).collect();
                    if known.is_empty() {
                        fail(format!("there is no section [{section}]; the sections are {}", sections()))
                    } else {
                        fail(format!(
                            "there is no setting `{name}`; in [{section}] there are {}",
                            known.join(", ")
                        ))
                    }
                })?;
                let text = plain(&value);
                if text.as_deref().and_then(|text| (key.set)(self, text)).is_none() {
                    return Err(fail(format!("`{name}` is not {}", key.allowed)));
                }
            }
        }
        Ok(())
    }

    /// Values of the variables that are named as secret, as far as they are set here.
    fn hidden(&self) -> impl Iterator<Item = String> {
        self.redact.iter().filter_map(|name| std::env::var(name).ok())
    }

    /// What a coordinator strikes out of what people write.
    pub(crate) fn redactor(&self) -> Redactor {
        Redactor::new(self.hidden())
    }

    /// What goes to run processes.
    pub(crate) fn worker_settings(&self) -> WorkerSettings {
        WorkerSettings {
            run: self.run.clone(),
            sandbox: self.sandbox,
            prices_toml: self.prices_toml.clone(),
            policy: self.policy.clone(),
            redact: HiddenValues(self.hidden().collect()),
        }
    }
}

fn sections() -> &'static str {
    "[run], [task], [server], [client], [worker], [policy], [prices.\"PROVIDER:MODEL\"]"
}

/// A value as the environment would have it.
fn plain(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(on) => Some(on.to_string()),
        toml::Value::Array(items) => {
            items.iter().map(plain).collect::<Option<Vec<_>>>().map(|items| items.join(","))
        }
        toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}

#[cfg(test)]
mod tests;

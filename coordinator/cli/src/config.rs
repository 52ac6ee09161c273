//! Settings: `docket.toml` in the home, overridden by `DOCKET_…` environment variables, validated into one
//! [`Config`].
//!
//! Every setting is a row of [`KEYS`]: its name in the file, its environment variable, the allowed values, and
//! where the value is stored. An invalid value is reported with all of these, whichever source it came from.
//! Subcommands apply their command-line flags on top.

use std::{collections::BTreeMap, path::Path};

use docket_sandbox::{Limits, SecretEnv, limits_of_this_host};
use docket_schema::{
    ids::QueueName,
    message::ModelRef,
    policy::Policy,
    redact::Redactor,
    run::RunSettings,
    task::{LabelSet, RoleOverride},
};
use docket_worker::{
    bootstrap::{HiddenValues, SandboxChoice, WorkerSettings},
    mcp::McpServer,
};

use crate::output::{
    display,
    error::{CliError, CliResult, ExitKind, FailWith as _},
};

mod amounts;
mod archive;
mod keys;
mod notify;
mod roles;
mod server;
mod telemetry;

pub(crate) use amounts::{
    ALLOWED_DOLLARS, ALLOWED_TEMPERATURE, parse_nano_dollars, parse_sandbox_choice, parse_size,
};
pub(crate) use archive::{ArchiveConfig, BlobsConfig, parse_age_ms};
use keys::{KEYS, SettingKey, parse_number_into};
pub(crate) use notify::{
    ALLOWED_SECRET, NotifyDestination, NotifyTarget, SecretSource, decode_secret, parse_secrets,
};
pub(crate) use roles::TeamConfig;
pub(crate) use server::{CONNECTIONS_MAX, ServerSettings, is_store_address};
pub(crate) use telemetry::TelemetrySettings;

/// The settings of this machine.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    /// Default settings of runs.
    pub(crate) run_defaults: RunSettings,
    /// The default model of tasks.
    pub(crate) model: Option<ModelRef>,
    /// The default exploration model of tasks.
    pub(crate) explore_model: Option<ModelRef>,
    /// The default fallback model of tasks.
    pub(crate) fallback_model: Option<ModelRef>,
    /// The default engine of tasks.
    pub(crate) engine: String,
    /// The file's `[roles]`: model and options of each role, in any engine.
    pub(crate) roles: Vec<RoleOverride>,
    /// The file's `[team]`: the roles of the `team` engine.
    pub(crate) team: TeamConfig,
    /// The store used by `serve`, `up`, `db` and `verify`; `None` = the home's own database.
    pub(crate) store: Option<String>,
    /// Server settings of `serve` and `up`.
    pub(crate) server: ServerSettings,
    /// Destination and retention of archived tasks.
    pub(crate) archive: ArchiveConfig,
    /// Where traces of runs are sent.
    pub(crate) telemetry: TelemetrySettings,
    /// Where large blobs are stored.
    pub(crate) blobs: BlobsConfig,
    /// The only CA to trust for an https coordinator; `None` = the system's CAs.
    pub(crate) ca_file: Option<std::path::PathBuf>,
    /// The number of runs a worker executes at once.
    pub(crate) slots: u32,
    /// A run process that makes no progress for this long is considered hung; `None` = the longest time allowed
    /// for its current operation.
    pub(crate) hang_ms: Option<u64>,
    /// Queues a worker serves; empty = all.
    pub(crate) queues: Vec<QueueName>,
    /// Labels of this worker.
    pub(crate) labels: LabelSet,
    /// The sandbox used for commands.
    pub(crate) sandbox: SandboxChoice,
    /// Resource limits shared by all commands of a run.
    pub(crate) sandbox_limits: Limits,
    /// Environment variables whose values are redacted from prompts, results and events.
    pub(crate) redacted_env_vars: Vec<String>,
    /// Model servers that receive this worker's API keys, in addition to the providers' own.
    pub(crate) trusted_base_urls: Vec<String>,
    /// The file's `[prices]`, as a separate TOML document.
    pub(crate) prices_toml: Option<String>,
    /// The file's `[policy]`.
    pub(crate) policy: Option<Policy>,
    /// The file's `[mcp.NAME]`, by name.
    pub(crate) mcp: BTreeMap<String, McpServer>,
    /// How results are delivered.
    pub(crate) delivery: DeliverySettings,
    /// The file's `[[notify]]`: notification targets.
    pub(crate) notify: Vec<NotifyTarget>,
}

/// How results are delivered. Comes from the user's own settings only; a repository cannot change it.
#[derive(Debug, Clone)]
pub(crate) struct DeliverySettings {
    /// The remote to which results are pushed.
    pub(crate) remote: String,
    /// The shell command that runs after a branch was created or pushed.
    pub(crate) hook: Option<String>,
    /// Time limit of the hook.
    pub(crate) hook_timeout_ms: u64,
}

impl Default for DeliverySettings {
    fn default() -> Self {
        Self { remote: "origin".to_owned(), hook: None, hook_timeout_ms: 120_000 }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            // Failures that predate the run are known to every run (E10).
            run_defaults: RunSettings { base_checks: true, ..RunSettings::default() },
            model: None,
            explore_model: None,
            fallback_model: None,
            engine: "react".to_owned(),
            roles: Vec::new(),
            team: TeamConfig::default(),
            store: None,
            server: ServerSettings::default(),
            archive: ArchiveConfig::default(),
            blobs: BlobsConfig::default(),
            ca_file: None,
            slots: 2,
            hang_ms: None,
            queues: Vec::new(),
            labels: LabelSet::default(),
            sandbox: SandboxChoice::Auto,
            sandbox_limits: limits_of_this_host(),
            redacted_env_vars: Vec::new(),
            trusted_base_urls: Vec::new(),
            prices_toml: None,
            policy: None,
            mcp: BTreeMap::new(),
            delivery: DeliverySettings::default(),
            notify: Vec::new(),
            telemetry: TelemetrySettings::default(),
        }
    }
}

/// All settings.
fn all_setting_keys() -> impl Iterator<Item = &'static SettingKey> {
    KEYS.iter().chain(&server::SERVER_KEYS).chain(&archive::ARCHIVE_KEYS).chain(&telemetry::TELEMETRY_KEYS)
}

/// A setting as shown in the reference.
#[cfg(test)]
pub(crate) struct SettingDoc {
    /// Section and name in the file.
    pub(crate) name: &'static str,
    /// Environment variable.
    pub(crate) env: &'static str,
    /// The allowed values.
    pub(crate) allowed: &'static str,
}

/// Returns the documentation of all settings.
#[cfg(test)]
pub(crate) fn setting_docs() -> impl Iterator<Item = SettingDoc> {
    all_setting_keys().map(|key| SettingDoc { name: key.name, env: key.env, allowed: key.allowed })
}

/// Whether `value` is the default of the setting `name`.
#[cfg(test)]
pub(crate) fn is_default(name: &str, value: &str) -> bool {
    let mut config = Config::default();
    let set = all_setting_keys().find(|key| key.name == name).and_then(|key| (key.set)(&mut config, value));
    set.is_some() && format!("{config:?}") == format!("{:?}", Config::default())
}

impl Config {
    /// Reads `file`, if it exists, and applies the environment on top.
    ///
    /// # Errors
    /// Fails on an unknown or invalid setting; the message names the setting, its source and the allowed
    /// values.
    pub(crate) fn load(file: &Path, env: impl Fn(&str) -> Option<String>) -> CliResult<Self> {
        let mut config = Self::default();
        match std::fs::read_to_string(file) {
            Ok(text) => {
                config.apply_toml(&text, &file.display().to_string())?;
                config.team.load_registry(file).map_err(|message| CliError::new(ExitKind::Usage, message))?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).fail_with(ExitKind::Usage, || {
                    format!("cannot read {}; check its permissions", file.display())
                });
            }
        }
        for key in all_setting_keys() {
            let Some(text) = env(key.env).filter(|text| !text.trim().is_empty()) else { continue };
            if (key.set)(&mut config, text.trim()).is_none() {
                // A database URL contains a password.
                let shown =
                    if key.env == "DATABASE_URL" { "its value".to_owned() } else { format!("`{text}`") };
                let message = format!("{} in the environment: {shown} is not {}", key.env, key.allowed);
                return Err(CliError::new(ExitKind::Usage, message));
            }
        }
        config.validate()
    }

    fn validate(self) -> CliResult<Self> {
        if self.run_defaults.command_timeout_ms > self.run_defaults.command_timeout_ms_max {
            let message =
                "run.command_timeout_ms is above run.command_timeout_ms_max; lower it or raise the limit";
            return Err(CliError::new(ExitKind::Usage, message));
        }
        let usage = |message| CliError::new(ExitKind::Usage, message);
        self.team.validate().map_err(usage)?;
        roles::check_role_names(&self.roles, &self.team.roles).map_err(usage)?;
        self.server.validate()?;
        self.archive.validate()?;
        Ok(self)
    }

    fn apply_toml(&mut self, text: &str, file: &str) -> CliResult<()> {
        let fail = |message: String| CliError::new(ExitKind::Usage, format!("{file}: {message}"));
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let line =
                error.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
            fail(format!("line {line} is not valid TOML ({})", display::collapse_whitespace(error.message())))
        })?;
        for (section, value) in table {
            if section == "notify" {
                self.notify = notify::parse_targets(value).map_err(fail)?;
                continue;
            }
            let toml::Value::Table(values) = value else {
                return Err(fail(format!("`{section}` must be in a section: {}", list_sections())));
            };
            if section == "prices" {
                self.prices_toml = Some(values.to_string());
                continue;
            }
            if section == "roles" {
                self.roles = roles::parse_roles(values).map_err(fail)?;
                continue;
            }
            if section == "team" {
                self.team = TeamConfig::from_table(values).map_err(fail)?;
                continue;
            }
            if section == "policy" {
                let read = docket_worker::policy::parse_policy(values)
                    .map_err(|error| fail(format!("[policy]: {error}")))?;
                self.policy = Some(read);
                continue;
            }
            if section == "mcp" {
                self.mcp = docket_worker::mcp::parse_servers(values)
                    .map_err(|error| fail(format!("[mcp]: {error}")))?;
                continue;
            }
            for (name, value) in values {
                let name = format!("{section}.{name}");
                let key = all_setting_keys().find(|key| key.name == name).ok_or_else(|| {
                    let names = all_setting_keys().map(|key| key.name);
                    let known: Vec<&str> = names.filter(|k| k.starts_with(&format!("{section}."))).collect();
                    if known.is_empty() {
                        fail(format!("unknown section [{section}]; the sections are {}", list_sections()))
                    } else {
                        fail(format!("unknown setting `{name}`; [{section}] has {}", known.join(", ")))
                    }
                })?;
                let text = to_env_text(&value);
                if text.as_deref().and_then(|text| (key.set)(self, text)).is_none() {
                    return Err(fail(format!("`{name}` is not {}", key.allowed)));
                }
            }
        }
        Ok(())
    }

    /// Environment variables passed to MCP servers.
    pub(crate) fn mcp_env(&self) -> SecretEnv {
        docket_worker::mcp::inherited_env(&self.mcp, |name| std::env::var(name).ok())
    }

    /// Values to redact: the variables listed as secret or passed to MCP servers, and the notification secrets,
    /// as far as they are set here.
    pub(crate) fn hidden_values(&self) -> impl Iterator<Item = String> {
        let named = self.redacted_env_vars.iter().filter_map(|name| std::env::var(name).ok());
        let told = self.notify.iter().flat_map(NotifyTarget::hidden_values);
        named.chain(self.mcp_env().0.into_values()).chain(told)
    }

    /// The redactor a coordinator applies to texts that people write.
    pub(crate) fn redactor(&self) -> Redactor {
        Redactor::new(self.hidden_values())
    }

    /// The settings passed to run processes.
    pub(crate) fn worker_settings(&self) -> WorkerSettings {
        WorkerSettings {
            run: self.run_defaults.clone(),
            sandbox: self.sandbox,
            prices_toml: self.prices_toml.clone(),
            limits: Some(self.sandbox_limits),
            policy: self.policy.clone(),
            mcp: self.mcp.clone(),
            mcp_env: self.mcp_env(),
            base_urls: self.trusted_base_urls.clone(),
            redact: HiddenValues(self.hidden_values().collect()),
        }
    }
}

fn list_sections() -> &'static str {
    "[run], [task], [roles.NAME], [team], [server], [client], [archive], [blobs], [worker], [delivery], [[notify]], [policy], \
     [mcp.NAME], [prices.\"PROVIDER:MODEL\"]"
}

/// Converts a TOML value to its form in the environment.
fn to_env_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(on) => Some(on.to_string()),
        toml::Value::Array(items) => {
            items.iter().map(to_env_text).collect::<Option<Vec<_>>>().map(|items| items.join(","))
        }
        toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}

#[cfg(test)]
mod tests;
pub(crate) mod values;

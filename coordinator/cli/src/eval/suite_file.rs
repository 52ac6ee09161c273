//! The schema of a suite's files: their keys, the allowed values, and errors with file and line.

use crate::config::values;
use std::{collections::BTreeMap, fmt, path::PathBuf, str::FromStr};

use docket_schema::{
    content::WorkspacePath,
    eval::{EvalExpectation, EvalKind},
    message::ModelRef,
    task::TURNS_MAX,
    tool::ToolSet,
};
use docket_worker::policy::PathGlob;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

use crate::output::error::{CliError, CliResult, ExitKind, FailWith as _};

/// Size limit of a file of a suite: texts and paths, no data.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// `suite.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuiteFile {
    pub(super) name: String,
    /// Description of the suite.
    #[serde(default)]
    pub(super) about: Option<String>,
    /// Defaults of the tasks.
    #[serde(default)]
    pub(super) defaults: SuiteDefaults,
    /// Prices of scripted models.
    #[serde(default)]
    pub(super) prices: toml::Table,
}

/// Defaults for all tasks of a suite. What a task forbids is added; everything else it sets overrides the
/// default.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct SuiteDefaults {
    pub(super) repo: Option<PathBuf>,
    pub(super) commit: Option<String>,
    pub(super) engines: Option<Vec<EngineName>>,
    #[serde(deserialize_with = "deserialize_model")]
    pub(super) model: Option<ModelRef>,
    pub(super) base_url: Option<String>,
    #[serde(deserialize_with = "deserialize_tool_set")]
    pub(super) tools: Option<ToolSet>,
    pub(super) setup: Option<Vec<String>>,
    pub(super) policy: Option<PathBuf>,
    pub(super) limits: LimitsSection,
    pub(super) accept: AcceptSection,
    pub(super) forbidden: ForbiddenSection,
}

/// `tasks/NAME.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskFile {
    pub(super) kind: EvalKind,
    pub(super) text: String,
    #[serde(default)]
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) repo: Option<PathBuf>,
    #[serde(default)]
    pub(super) empty: bool,
    #[serde(default)]
    pub(super) commit: Option<String>,
    #[serde(default)]
    pub(super) engines: Option<Vec<EngineName>>,
    #[serde(default, deserialize_with = "deserialize_model")]
    pub(super) model: Option<ModelRef>,
    #[serde(default)]
    pub(super) base_url: Option<String>,
    #[serde(default)]
    pub(super) script: Option<PathBuf>,
    #[serde(default)]
    pub(super) scripts: BTreeMap<EngineName, PathBuf>,
    #[serde(default, deserialize_with = "deserialize_tool_set")]
    pub(super) tools: Option<ToolSet>,
    #[serde(default)]
    pub(super) setup: Option<Vec<String>>,
    #[serde(default)]
    pub(super) tests: Option<String>,
    #[serde(default, deserialize_with = "deserialize_paths")]
    pub(super) requires: Vec<WorkspacePath>,
    #[serde(default)]
    pub(super) policy: Option<PathBuf>,
    #[serde(default)]
    pub(super) limits: LimitsSection,
    #[serde(default)]
    pub(super) accept: AcceptSection,
    #[serde(default)]
    pub(super) forbidden: ForbiddenSection,
    #[serde(default)]
    pub(super) expect: ExpectSection,
}

/// `[limits]`.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LimitsSection {
    #[serde(deserialize_with = "deserialize_turns")]
    pub(super) turns: Option<u32>,
    #[serde(deserialize_with = "deserialize_duration_ms")]
    pub(super) time: Option<u64>,
    #[serde(deserialize_with = "deserialize_dollars")]
    pub(super) cost: Option<u64>,
    #[serde(deserialize_with = "deserialize_tokens")]
    pub(super) tokens: Option<u64>,
}

/// `[accept]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AcceptSection {
    pub(super) commands: Vec<NonEmptyText>,
    pub(super) files: Option<PathBuf>,
    #[serde(deserialize_with = "deserialize_duration_ms")]
    pub(super) timeout: Option<u64>,
}

/// `[forbidden]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ForbiddenSection {
    #[serde(deserialize_with = "deserialize_globs")]
    pub(super) unchanged: Vec<PathGlob>,
    #[serde(deserialize_with = "deserialize_globs")]
    pub(super) unread: Vec<PathGlob>,
}

/// `[expect]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ExpectSection {
    pub(super) outcome: EvalExpectation,
    #[serde(deserialize_with = "deserialize_optional_globs")]
    pub(super) changes: Option<Vec<PathGlob>>,
    #[serde(deserialize_with = "deserialize_paths")]
    pub(super) files: Vec<WorkspacePath>,
    pub(super) artifacts: Vec<NonEmptyText>,
    pub(super) denied: Vec<NonEmptyText>,
    pub(super) engines: BTreeMap<EngineName, EngineExpectSection>,
}

impl Default for ExpectSection {
    fn default() -> Self {
        let (files, artifacts, denied, engines) = (Vec::new(), Vec::new(), Vec::new(), BTreeMap::new());
        Self { outcome: EvalExpectation::Succeeded, changes: None, files, artifacts, denied, engines }
    }
}

/// `[expect.engines.ENGINE]`: what a run with this engine must leave in the log, in addition to the general
/// expectations.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct EngineExpectSection {
    pub(super) artifacts: Vec<NonEmptyText>,
    pub(super) denied: Vec<NonEmptyText>,
}

/// The name of an engine of this build.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EngineName(String);

impl EngineName {
    /// Returns all of them, in the order in which engines are listed everywhere.
    pub(super) fn all() -> Vec<Self> {
        docket_worker::engine::engine_names().into_iter().map(Self).collect()
    }
}

impl FromStr for EngineName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::all().into_iter().find(|known| known.0 == text).ok_or_else(|| {
            let known: Vec<String> = Self::all().into_iter().map(|known| known.0).collect();
            format!("unknown engine `{text}`; this build has {}", known.join(", "))
        })
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for EngineName {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A non-empty text: a shell command or a name.
#[derive(Debug, Clone)]
pub(super) struct NonEmptyText(pub(super) String);

impl<'de> Deserialize<'de> for NonEmptyText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        if text.trim().is_empty() {
            return Err(serde::de::Error::custom("it is empty; fill it in or leave it out"));
        }
        Ok(Self(text))
    }
}

fn deserialize_parsed<'de, D: Deserializer<'de>, T>(
    from: D,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(from)?;
    read(&text).map(Some).map_err(serde::de::Error::custom)
}

fn deserialize_model<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ModelRef>, D::Error> {
    deserialize_parsed(from, values::parse_model)
}

fn deserialize_tool_set<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ToolSet>, D::Error> {
    deserialize_parsed(from, values::parse_tool_set)
}

fn deserialize_duration_ms<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    deserialize_parsed(from, values::parse_duration_ms)
}

fn deserialize_dollars<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    deserialize_parsed(from, values::parse_dollars)
}

fn deserialize_turns<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let turns = i64::deserialize(from)?;
    let legal = u32::try_from(turns).ok().filter(|turns| (1..=TURNS_MAX).contains(turns));
    legal.map(Some).ok_or_else(|| serde::de::Error::custom("it must be from 1 to 1000"))
}

fn deserialize_tokens<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let tokens = i64::deserialize(from)?;
    let legal = u64::try_from(tokens).ok().filter(|tokens| *tokens > 0);
    legal.map(Some).ok_or_else(|| serde::de::Error::custom("it must be at least 1"))
}

fn deserialize_each<'de, D: Deserializer<'de>, T>(
    from: D,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let one = |text: &String| read(text).map_err(|why| serde::de::Error::custom(format!("`{text}`: {why}")));
    texts.iter().map(one).collect()
}

fn deserialize_paths<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<WorkspacePath>, D::Error> {
    deserialize_each(from, values::parse_workspace_path)
}

fn deserialize_globs<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathGlob>, D::Error> {
    deserialize_each(from, PathGlob::new)
}

fn deserialize_optional_globs<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<PathGlob>>, D::Error> {
    deserialize_globs(from).map(Some)
}

/// A file of a suite, for errors with its name and line.
#[derive(Debug)]
pub(super) struct TomlSource {
    /// Its path as shown to people.
    pub(super) path: PathBuf,
    text: String,
}

impl TomlSource {
    /// Reads the file.
    pub(super) fn read(path: PathBuf) -> CliResult<Self> {
        let name = path.display();
        let size = match std::fs::metadata(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let message =
                    format!("no file {name}; a suite is a folder with suite.toml and tasks/NAME.toml");
                return Err(CliError::new(ExitKind::Usage, message));
            }
            found => found.fail_with(ExitKind::Usage, || format!("cannot stat {name}"))?.len(),
        };
        if size > FILE_BYTES_MAX {
            let message = format!("{name} has {size} bytes; the limit is {FILE_BYTES_MAX}");
            return Err(CliError::new(ExitKind::Usage, message));
        }
        let text = std::fs::read_to_string(&path)
            .fail_with(ExitKind::Usage, || format!("cannot read {name}; is it UTF-8 text?"))?;
        Ok(Self { path, text })
    }

    /// Parses its contents.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> CliResult<T> {
        let from = toml::Deserializer::parse(&self.text).map_err(|error| self.toml_error("", &error))?;
        serde_path_to_error::deserialize(from).map_err(|error| {
            let path = error.path().to_string();
            self.toml_error(if path == "." { "" } else { &path }, error.inner())
        })
    }

    fn toml_error(&self, path: &str, error: &toml::de::Error) -> CliError {
        let line = error.span().map_or(1, |span| self.line_at(span.start));
        let said = error.message().split_whitespace().collect::<Vec<_>>().join(" ");
        let unknown = said.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
        let key = match unknown {
            Some(name) if path.is_empty() => name.to_owned(),
            Some(name) if path != name && !path.ends_with(&format!(".{name}")) => format!("{path}.{name}"),
            Some(_) | None => path.to_owned(),
        };
        let key = if key.is_empty() { key } else { format!("`{key}`: ") };
        CliError::new(ExitKind::Usage, format!("{}, line {line}: {key}{said}", self.path.display()))
    }

    fn line_at(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or(&self.text);
        before.matches('\n').count() + 1
    }

    /// Returns an error about a key for a reason that no type expresses; looks up the line of the key.
    pub(super) fn error_at(&self, key: &str, why: impl fmt::Display) -> CliError {
        let line = self.line_of_key(key).unwrap_or(1);
        CliError::new(ExitKind::Usage, format!("{}, line {line}: `{key}`: {why}", self.path.display()))
    }

    fn line_of_key(&self, key: &str) -> Option<usize> {
        let table = toml::de::DeTable::parse(&self.text).ok()?;
        let (mut table, mut line) = (table.get_ref(), None);
        for part in key.split('.') {
            let (name, value) = table.iter().find(|(name, _)| name.get_ref() == part)?;
            line = Some(self.line_at(name.span().start));
            match value.get_ref() {
                toml::de::DeValue::Table(inner) => table = inner,
                _ => break,
            }
        }
        line
    }
}

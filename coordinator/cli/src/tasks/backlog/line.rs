//! A task of a backlog, and docket's own JSON format of it, in which unknown fields are errors.

use crate::config::values;
use docket_schema::task::DELEGATION_DEPTH_MAX;
use std::path::PathBuf;

use docket_schema::{
    content::WorkspacePath,
    ids::{QueueName, Timestamp},
    message::ModelRef,
    policy::Policy,
    run::{ReasoningEffort, TaskComplexity},
    task::{
        ATTEMPTS_MAX, ConcurrencyLimit, DependencyFailurePolicy, LabelSet, TEXT_BYTES_MAX, TURNS_MAX,
        check_priority,
    },
    tool::ToolSet,
};
use serde::{Deserialize, Deserializer, de};

/// A task of a backlog. Fields that it leaves out come from the flags of the command that reads it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BacklogLine {
    /// The task's text.
    pub(crate) text: String,
    /// Its title, if not the first line of the text.
    #[serde(default)]
    pub(crate) title: Option<String>,
    #[serde(default)]
    pub(crate) queue: Option<QueueName>,
    /// Higher runs first.
    #[serde(default)]
    pub(crate) priority: Option<i16>,
    /// Do not run before this time.
    #[serde(default)]
    pub(crate) at: Option<Timestamp>,
    /// Deduplication key.
    #[serde(default)]
    pub(crate) dedup: Option<String>,
    /// The shell command that tests the work.
    #[serde(default)]
    pub(crate) tests: Option<String>,
    /// Paths that must exist at the end.
    #[serde(default, deserialize_with = "deserialize_paths")]
    pub(crate) requires: Vec<WorkspacePath>,
    /// Shell commands that prepare a fresh workspace.
    #[serde(default)]
    pub(crate) setup: Vec<String>,
    /// The policy file, relative to the folder of the backlog.
    #[serde(default)]
    pub(crate) policy: Option<PathBuf>,
    /// The contents of that file.
    #[serde(skip)]
    pub(crate) rules: Option<Policy>,
    /// Branch for the result.
    #[serde(default)]
    pub(crate) branch: Option<String>,
    /// Whether that branch is pushed.
    #[serde(default)]
    pub(crate) push: Option<bool>,
    #[serde(default, deserialize_with = "deserialize_model")]
    pub(crate) model: Option<ModelRef>,
    /// Base URL of the model's API.
    #[serde(default)]
    pub(crate) base_url: Option<String>,
    /// The exploration model.
    #[serde(default, deserialize_with = "deserialize_model")]
    pub(crate) explore_model: Option<ModelRef>,
    /// The fallback model.
    #[serde(default, deserialize_with = "deserialize_model")]
    pub(crate) fallback_model: Option<ModelRef>,
    /// Script of a scripted model, relative to the folder of the backlog.
    #[serde(default)]
    pub(crate) script: Option<PathBuf>,
    #[serde(default)]
    pub(crate) engine: Option<String>,
    /// The repository, relative to the folder of the backlog.
    #[serde(default)]
    pub(crate) repo: Option<PathBuf>,
    /// Branch, tag or commit to start from.
    #[serde(default)]
    pub(crate) commit: Option<String>,
    /// Maximum number of turns before the run fails.
    #[serde(default)]
    pub(crate) turns: Option<u32>,
    #[serde(default, deserialize_with = "deserialize_tool_set")]
    pub(crate) tools: Option<ToolSet>,
    #[serde(default, deserialize_with = "deserialize_complexity")]
    pub(crate) complexity: Option<TaskComplexity>,
    /// How many levels of child tasks its run may delegate to.
    #[serde(default)]
    pub(crate) delegate: Option<u32>,
    #[serde(default, deserialize_with = "deserialize_effort")]
    pub(crate) effort: Option<ReasoningEffort>,
    /// Sampling temperature, in thousandths.
    #[serde(default, deserialize_with = "deserialize_temperature")]
    pub(crate) temperature: Option<u32>,
    /// Token budget of a run.
    #[serde(default)]
    pub(crate) max_tokens: Option<u64>,
    /// Cost budget of a run in nano-dollars; in the file, dollars.
    #[serde(default, deserialize_with = "deserialize_dollars")]
    pub(crate) max_cost: Option<u64>,
    /// Time budget of a run in milliseconds; in the file, with a unit.
    #[serde(default, deserialize_with = "deserialize_duration_ms")]
    pub(crate) max_time: Option<u64>,
    /// Number of runs that may fail.
    #[serde(default)]
    pub(crate) attempts: Option<u32>,
    /// The name by which other lines refer to it in `after`.
    #[serde(default)]
    pub(crate) key: Option<String>,
    /// Tasks that must complete first: keys of other lines, or task ids.
    #[serde(default)]
    pub(crate) after: Vec<String>,
    /// What happens if one of those fails.
    #[serde(default)]
    pub(crate) if_failed: DependencyFailurePolicy,
    /// Tasks that must not all run at the same time.
    #[serde(default)]
    pub(crate) concurrency: Option<ConcurrencyLimit>,
    /// Labels that its worker must have.
    #[serde(default)]
    pub(crate) selector: LabelSet,
}

/// Names that other tools use for a field.
const OTHER_NAMES: [(&str, &str); 20] = [
    ("labels", "selector"),
    ("depends_on", "after"),
    ("dependencies", "after"),
    ("id", "key"),
    ("prompt", "text"),
    ("body", "text"),
    ("description", "text"),
    ("task", "text"),
    ("instructions", "text"),
    ("problem_statement", "text"),
    ("name", "title"),
    ("summary", "title"),
    ("repository", "repo"),
    ("rev", "commit"),
    ("ref", "commit"),
    ("base_commit", "commit"),
    ("run_at", "at"),
    ("dedup_key", "dedup"),
    ("test", "tests"),
    ("require", "requires"),
];

/// Minimum similarity at which a name is considered a misspelling.
const SIMILARITY_MIN: f64 = 0.75;

impl BacklogLine {
    /// Parses a line of docket's own format.
    ///
    /// # Errors
    /// Returns a message that names the field.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let mut from = serde_json::Deserializer::from_str(line);
        let parsed: Result<Self, _> = serde_path_to_error::deserialize(&mut from);
        let line = parsed.map_err(|error| {
            let path = error.path().to_string();
            let words = format_json_error(error.inner());
            match words.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`')) {
                Some((name, _)) => unknown_field_message(name, &words),
                None if path == "." || words.contains(&format!("`{path}`")) => words,
                None => format!("`{path}`: {words}"),
            }
        })?;
        from.end().map_err(|_| "there is more text after the task; each line is one object".to_owned())?;
        line.validate()?;
        Ok(line)
    }

    /// Checks constraints that no type expresses, for tasks of any format.
    ///
    /// # Errors
    /// Returns a message that names the field.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.text.trim().is_empty() {
            return Err("`text` is empty; describe the task".to_owned());
        }
        if self.text.len() > TEXT_BYTES_MAX {
            return Err(format!(
                "`text` has {} bytes; the limit is {TEXT_BYTES_MAX}; put the rest into a file of the repository",
                self.text.len()
            ));
        }
        let texts = [
            ("text", Some(&self.text)),
            ("title", self.title.as_ref()),
            ("dedup", self.dedup.as_ref()),
            ("tests", self.tests.as_ref()),
            ("branch", self.branch.as_ref()),
            ("commit", self.commit.as_ref()),
            ("engine", self.engine.as_ref()),
        ];
        for (field, text) in texts.into_iter().chain(self.setup.iter().map(|line| ("setup", Some(line)))) {
            if let Some(hidden) = text.and_then(|text| text.chars().find(|c| is_invisible(*c))) {
                let code = u32::from(hidden);
                return Err(format!("`{field}` contains the invisible character U+{code:04X}; remove it"));
            }
        }
        if let Some(Err(error)) = self.priority.map(check_priority) {
            return Err(error.to_string());
        }
        if self.turns.is_some_and(|turns| !(1..=TURNS_MAX).contains(&turns)) {
            return Err(format!("`turns` must be from 1 to {TURNS_MAX}"));
        }
        if self.attempts.is_some_and(|attempts| !(1..=ATTEMPTS_MAX).contains(&attempts)) {
            return Err(format!("`attempts` must be from 1 to {ATTEMPTS_MAX}"));
        }
        if self.delegate.is_some_and(|depth| depth > DELEGATION_DEPTH_MAX) {
            return Err(format!("`delegate` must be from 0 to {}", DELEGATION_DEPTH_MAX));
        }
        if self.max_tokens == Some(0) {
            return Err("`max_tokens` must be at least 1".to_owned());
        }
        Ok(())
    }

    /// Everything except the scheduled time: two lines with the same identity are one task.
    pub(crate) fn identity_text(&self) -> String {
        format!("{:?}", Self { priority: None, at: None, ..self.clone() })
    }

    /// The identity without text, repository and queue; `None` = empty.
    pub(crate) fn identity_beyond_text(&self) -> Option<String> {
        let Self { repo, commit, queue, .. } = Self::default();
        let beside = Self { text: String::new(), title: None, repo, commit, queue, ..self.clone() };
        let asked = beside.identity_text();
        (asked != Self::default().identity_text()).then_some(asked)
    }

    /// Returns a field that `docket compare` sets itself, because it runs each task in the same way.
    pub(crate) fn field_fixed_by_compare(&self) -> Option<&'static str> {
        let is_set = [
            ("queue", self.queue.is_some()),
            ("priority", self.priority.is_some()),
            ("at", self.at.is_some()),
            ("dedup", self.dedup.is_some()),
            ("branch", self.branch.is_some()),
            ("push", self.push.is_some()),
            ("model", self.model.is_some()),
            ("base_url", self.base_url.is_some()),
            ("explore_model", self.explore_model.is_some()),
            ("fallback_model", self.fallback_model.is_some()),
            ("script", self.script.is_some()),
            ("engine", self.engine.is_some()),
            ("repo", self.repo.is_some()),
            ("commit", self.commit.is_some()),
            ("turns", self.turns.is_some()),
            ("tools", self.tools.is_some()),
            ("complexity", self.complexity.is_some()),
            ("delegate", self.delegate.is_some()),
            ("effort", self.effort.is_some()),
            ("temperature", self.temperature.is_some()),
            ("max_tokens", self.max_tokens.is_some()),
            ("max_cost", self.max_cost.is_some()),
            ("max_time", self.max_time.is_some()),
            ("attempts", self.attempts.is_some()),
            ("key", self.key.is_some()),
            ("after", !self.after.is_empty()),
            ("if_failed", self.if_failed != DependencyFailurePolicy::default()),
            ("concurrency", self.concurrency.is_some()),
            ("selector", !self.selector.is_empty()),
        ];
        is_set.into_iter().find_map(|(field, set)| set.then_some(field))
    }
}

/// Whether the character changes how a text is read, or cannot be stored, and no editor shows it.
const fn is_invisible(c: char) -> bool {
    matches!(c, '\0' | '\u{1b}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Formats an error of `serde_json` without its position: the line is reported already.
pub(super) fn format_json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let mut text = text.rsplit_once(" at line ").map_or(text.clone(), |(text, _)| text.to_owned());
    for (theirs, ours) in SERDE_PHRASES {
        text = text.replace(theirs, ours);
    }
    text
}

/// Serde's terms and the ones shown to people.
const SERDE_PHRASES: [(&str, &str); 18] = [
    ("expected ident", "this is not JSON"),
    ("expected value", "this is not JSON"),
    ("key must be a string", "this is not JSON: names need double quotes"),
    ("expected struct Line", "expected an object"),
    ("expected struct Concurrency", "expected an object such as {\"key\": \"main\"}"),
    ("expected a sequence", "expected a list"),
    ("expected a map", "expected an object"),
    ("invalid type: map", "invalid type: an object"),
    ("invalid type: sequence", "invalid type: a list"),
    ("EOF while parsing a list", "the list is not closed"),
    ("EOF while parsing an object", "the object is not closed"),
    ("EOF while parsing a string", "the text is not closed"),
    ("EOF while parsing a value", "a value is missing at the end"),
    ("expected i16", "expected a whole number within -32768 and 32767"),
    ("expected u32", "expected a whole number"),
    ("expected u64", "expected a whole number"),
    ("invalid type: integer", "invalid type: the number"),
    ("invalid type: string", "invalid type: the text"),
];

/// Describes an unknown field: the likely intended one, or all.
fn unknown_field_message(name: &str, words: &str) -> String {
    let other = OTHER_NAMES.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, ours)| *ours);
    let ours = words.split('`').skip(3).step_by(2).map(|known| (known, known));
    let alike = || {
        let likeness = |(known, _): &(&str, &str)| strsim::jaro_winkler(known, &name.to_ascii_lowercase());
        let all = ours.chain(OTHER_NAMES);
        all.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
            .filter(|best| likeness(best) >= SIMILARITY_MIN)
            .map(|(_, ours)| ours)
    };
    match other.or_else(alike) {
        Some(meant) => format!("unknown field `{name}`; did you mean `{meant}`?"),
        None => words.to_owned(),
    }
}

fn deserialize_paths<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<WorkspacePath>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let path = |text: String| {
        WorkspacePath::new(text.as_str()).ok_or_else(|| {
            let must = "must be relative and stay inside the repository, such as src/lib.rs";
            de::Error::custom(format!("`requires`: `{text}` {must}"))
        })
    };
    texts.into_iter().map(path).collect()
}

/// Accepts a text or a number, parsed as on the command line.
fn deserialize_typed<'de, D: Deserializer<'de>, T>(
    from: D,
    read: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, D::Error> {
    let text = match Option::<serde_json::Value>::deserialize(from)? {
        None => return Ok(None),
        Some(serde_json::Value::String(text)) => text,
        Some(serde_json::Value::Number(number)) => number.to_string(),
        Some(_) => return Err(de::Error::custom("it must be a text")),
    };
    read(&text).map(Some).map_err(de::Error::custom)
}

fn deserialize_model<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ModelRef>, D::Error> {
    deserialize_typed(from, values::parse_model)
}

fn deserialize_complexity<'de, D: Deserializer<'de>>(from: D) -> Result<Option<TaskComplexity>, D::Error> {
    deserialize_typed(from, values::parse_complexity)
}

fn deserialize_effort<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ReasoningEffort>, D::Error> {
    deserialize_typed(from, values::parse_effort)
}

fn deserialize_tool_set<'de, D: Deserializer<'de>>(from: D) -> Result<Option<ToolSet>, D::Error> {
    deserialize_typed(from, values::parse_tool_set)
}

fn deserialize_temperature<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    deserialize_typed(from, values::parse_temperature)
}

fn deserialize_dollars<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    deserialize_typed(from, values::parse_dollars)
}

fn deserialize_duration_ms<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    deserialize_typed(from, values::parse_duration_ms)
}

//! A task of a backlog, and docket's own form of it: a line of JSON with these fields and no others.

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

/// A task of a backlog. What it leaves open is said by the flags of the command that reads it.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BacklogLine {
    /// What is asked.
    pub(crate) text: String,
    /// Its title, where the text's first line is none.
    #[serde(default)]
    pub(crate) title: Option<String>,
    /// Queue.
    #[serde(default)]
    pub(crate) queue: Option<QueueName>,
    /// Higher goes first.
    #[serde(default)]
    pub(crate) priority: Option<i16>,
    /// Not before this instant.
    #[serde(default)]
    pub(crate) at: Option<Timestamp>,
    /// Deduplication key.
    #[serde(default)]
    pub(crate) dedup: Option<String>,
    /// The shell line that tests the work.
    #[serde(default)]
    pub(crate) tests: Option<String>,
    /// Paths that must exist at the end.
    #[serde(default, deserialize_with = "deserialize_paths")]
    pub(crate) requires: Vec<WorkspacePath>,
    /// Shell lines that make a fresh workspace ready.
    #[serde(default)]
    pub(crate) setup: Vec<String>,
    /// What the model may do: a file, from the folder of the backlog.
    #[serde(default)]
    pub(crate) policy: Option<PathBuf>,
    /// What that file says.
    #[serde(skip)]
    pub(crate) rules: Option<Policy>,
    /// Branch for the result.
    #[serde(default)]
    pub(crate) branch: Option<String>,
    /// That branch is pushed as well.
    #[serde(default)]
    pub(crate) push: Option<bool>,
    /// The model.
    #[serde(default, deserialize_with = "model")]
    pub(crate) model: Option<ModelRef>,
    /// Where its API is.
    #[serde(default)]
    pub(crate) base_url: Option<String>,
    /// Looks around first.
    #[serde(default, deserialize_with = "model")]
    pub(crate) explore_model: Option<ModelRef>,
    /// Stands in.
    #[serde(default, deserialize_with = "model")]
    pub(crate) fallback_model: Option<ModelRef>,
    /// For scripted models: a file, from the folder of the backlog.
    #[serde(default)]
    pub(crate) script: Option<PathBuf>,
    /// Engine.
    #[serde(default)]
    pub(crate) engine: Option<String>,
    /// The repository: a folder, from that of the backlog.
    #[serde(default)]
    pub(crate) repo: Option<PathBuf>,
    /// Branch, tag or commit to start from.
    #[serde(default)]
    pub(crate) commit: Option<String>,
    /// Turns before the run ends as failed.
    #[serde(default)]
    pub(crate) turns: Option<u32>,
    /// Which tools the model has.
    #[serde(default, deserialize_with = "tool_set")]
    pub(crate) tools: Option<ToolSet>,
    /// How large the task is.
    #[serde(default, deserialize_with = "complexity")]
    pub(crate) complexity: Option<TaskComplexity>,
    /// How deep its run may give pieces of its work to child tasks.
    #[serde(default)]
    pub(crate) delegate: Option<u32>,
    /// How hard the model thinks.
    #[serde(default, deserialize_with = "effort")]
    pub(crate) effort: Option<ReasoningEffort>,
    /// Sampling temperature, in thousandths.
    #[serde(default, deserialize_with = "temperature")]
    pub(crate) temperature: Option<u32>,
    /// Tokens that a run may use.
    #[serde(default)]
    pub(crate) max_tokens: Option<u64>,
    /// What a run may cost, in nano-dollars; in a line, dollars.
    #[serde(default, deserialize_with = "dollars")]
    pub(crate) max_cost: Option<u64>,
    /// How long a run may work, in milliseconds; in a line, with its unit.
    #[serde(default, deserialize_with = "period")]
    pub(crate) max_time: Option<u64>,
    /// Runs that may fail.
    #[serde(default)]
    pub(crate) attempts: Option<u32>,
    /// What other lines of the file call it in their `after`.
    #[serde(default)]
    pub(crate) key: Option<String>,
    /// Tasks that come first: keys of other lines, or ids of tasks.
    #[serde(default)]
    pub(crate) after: Vec<String>,
    /// What becomes of it where one of those fails.
    #[serde(default)]
    pub(crate) if_failed: DependencyFailurePolicy,
    /// Tasks that must not all run at the same time.
    #[serde(default)]
    pub(crate) concurrency: Option<ConcurrencyLimit>,
    /// Labels that its worker must have.
    #[serde(default)]
    pub(crate) selector: LabelSet,
}

/// Names that other tools have for a field.
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

/// How alike two names are where one is taken for the other's misspelling.
const SIMILARITY_MIN: f64 = 0.75;

impl BacklogLine {
    /// A line of docket's own form.
    ///
    /// # Errors
    /// What is wrong, with its field.
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
        from.end().map_err(|_| "there is more after the task; each line is one object".to_owned())?;
        line.validate()?;
        Ok(line)
    }

    /// What no type says, of tasks of any form.
    ///
    /// # Errors
    /// What is wrong, with its field.
    pub(crate) fn validate(&self) -> Result<(), String> {
        if self.text.trim().is_empty() {
            return Err("`text` is empty; say what is to be done".to_owned());
        }
        if self.text.len() > TEXT_BYTES_MAX {
            return Err(format!(
                "`text` has {} bytes, and may have {TEXT_BYTES_MAX}; put the rest into a file of the repository",
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
                return Err(format!(
                    "`{field}` holds U+{code:04X}, which is not seen by who reads it; take it out"
                ));
            }
        }
        if let Some(Err(error)) = self.priority.map(check_priority) {
            return Err(error.to_string());
        }
        if self.turns.is_some_and(|turns| !(1..=TURNS_MAX).contains(&turns)) {
            return Err(format!("`turns` must be within 1 and {TURNS_MAX}"));
        }
        if self.attempts.is_some_and(|attempts| !(1..=ATTEMPTS_MAX).contains(&attempts)) {
            return Err(format!("`attempts` must be within 1 and {ATTEMPTS_MAX}"));
        }
        if self.delegate.is_some_and(|depth| depth > DELEGATION_DEPTH_MAX) {
            return Err(format!("`delegate` must be within 0 and {}", DELEGATION_DEPTH_MAX));
        }
        if self.max_tokens == Some(0) {
            return Err("`max_tokens` must be at least 1".to_owned());
        }
        Ok(())
    }

    /// All that it asks, but for when it is to run: two lines that ask the same are one task.
    pub(crate) fn identity_text(&self) -> String {
        format!("{:?}", Self { priority: None, at: None, ..self.clone() })
    }

    /// What it asks beside its words, its repository and its queue; none = nothing.
    pub(crate) fn identity_beyond_text(&self) -> Option<String> {
        let Self { repo, commit, queue, .. } = Self::default();
        let beside = Self { text: String::new(), title: None, repo, commit, queue, ..self.clone() };
        let asked = beside.identity_text();
        (asked != Self::default().identity_text()).then_some(asked)
    }

    /// A field that `docket compare` decides by itself, for it tries each task in the same way.
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

/// What changes how a text is read, or cannot be stored: no editor shows it.
const fn is_invisible(c: char) -> bool {
    matches!(c, '\0' | '\u{1b}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// What `serde_json` says, without the place that it adds: the line is named already.
pub(super) fn format_json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let mut text = text.rsplit_once(" at line ").map_or(text.clone(), |(text, _)| text.to_owned());
    for (theirs, ours) in SERDE_PHRASES {
        text = text.replace(theirs, ours);
    }
    text
}

/// What serde calls things, and what people do.
const SERDE_PHRASES: [(&str, &str); 18] = [
    ("expected ident", "this is not JSON"),
    ("expected value", "this is not JSON"),
    ("key must be a string", "this is not JSON: a name stands in double quotes"),
    ("expected struct Line", "expected an object"),
    ("expected struct Concurrency", "expected an object as {\"key\": \"main\"}"),
    ("expected a sequence", "expected a list"),
    ("expected a map", "expected an object"),
    ("invalid type: map", "invalid type: an object"),
    ("invalid type: sequence", "invalid type: a list"),
    ("EOF while parsing a list", "the list has no end"),
    ("EOF while parsing an object", "the object has no end"),
    ("EOF while parsing a string", "the text has no end"),
    ("EOF while parsing a value", "it ends where a value should stand"),
    ("expected i16", "expected a whole number within -32768 and 32767"),
    ("expected u32", "expected a whole number"),
    ("expected u64", "expected a whole number"),
    ("invalid type: integer", "invalid type: the number"),
    ("invalid type: string", "invalid type: the text"),
];

/// A field that there is not: the one that is meant, or all.
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
        Some(meant) => format!("unknown field `{name}`; `{meant}` is meant?"),
        None => words.to_owned(),
    }
}

fn deserialize_paths<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<WorkspacePath>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let path = |text: String| {
        WorkspacePath::new(text.as_str()).ok_or_else(|| {
            let must = "must be relative and stay inside the repository, as src/lib.rs";
            de::Error::custom(format!("`requires`: `{text}` {must}"))
        })
    };
    texts.into_iter().map(path).collect()
}

/// A text or a number, as a command line would have it.
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

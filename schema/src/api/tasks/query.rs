//! Task filters, used by lists and bulk operations.
//!
//! Filters on database columns are part of the query; filters on a task's specification
//! ([`TaskQuery::matches_spec`]) are applied to its results with the same code for every store.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    ids::{BatchId, ParseIdError, QueueName, TaskId, Timestamp, deserialize_from_text, serialize_as_text},
    task::{TaskSpec, TaskState},
};

/// Maximum length of a pattern, in bytes. Each task's title is matched against it.
pub const PATTERN_BYTES_MAX: usize = 256;

/// A comma-separated list of states. The query string cannot repeat a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStates(Vec<TaskState>);

impl TaskStates {
    /// Creates a list without duplicates; `None` if it is empty.
    pub fn from_states(states: impl IntoIterator<Item = TaskState>) -> Option<Self> {
        let mut states: Vec<TaskState> = states.into_iter().collect();
        states.sort_unstable();
        states.dedup();
        (!states.is_empty()).then_some(Self(states))
    }

    /// Returns the states.
    pub fn as_slice(&self) -> &[TaskState] {
        &self.0
    }
}

impl From<TaskState> for TaskStates {
    fn from(state: TaskState) -> Self {
        Self(vec![state])
    }
}

impl std::fmt::Display for TaskStates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (n, state) in self.0.iter().enumerate() {
            write!(f, "{}{state}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl std::str::FromStr for TaskStates {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let states = text.split(',').map(str::parse).collect::<Result<Vec<TaskState>, _>>()?;
        Self::from_states(states)
            .ok_or_else(|| ParseIdError { expected: "list of task states", text: String::new() })
    }
}

serialize_as_text!(TaskStates);
deserialize_from_text!(TaskStates);

impl JsonSchema for TaskStates {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "TaskStates".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "description": "Comma-separated states." })
    }
}

/// `GET /v1/tasks`: optional filters; a task must match all of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TaskQuery {
    /// Comma-separated states; a task matches any of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskStates>,
    /// The task's queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueName>,
    /// The task's batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The task's engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Name of the worker that currently has the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// Pattern of the task's model, such as `anthropic:*`: `*` matches any text, `?` any character;
    /// case-insensitive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Pattern of the task's title, with the same syntax.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Submitted at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Submitted before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Maximum number of tasks; 100 by default, at most 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only tasks submitted before this one; used to fetch the next page, newest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<TaskId>,
}

impl TaskQuery {
    /// Whether it has a filter, and not only paging parameters.
    pub fn has_filter(&self) -> bool {
        let Self { state, queue, batch, engine, worker, model, title, since, until, limit: _, before: _ } =
            self;
        state.is_some()
            || queue.is_some()
            || batch.is_some()
            || engine.is_some()
            || worker.is_some()
            || model.is_some()
            || title.is_some()
            || since.is_some()
            || until.is_some()
    }

    /// Whether a task matches the filters that are not database columns.
    pub fn matches_spec(&self, spec: &TaskSpec) -> bool {
        self.title.as_ref().is_none_or(|pattern| matches_pattern(pattern, &spec.title))
            && self.model.as_ref().is_none_or(|pattern| matches_pattern(pattern, &spec.model.to_string()))
    }

    /// Returns the name of the first field whose pattern is too long.
    pub fn overlong_pattern(&self) -> Option<&'static str> {
        let long = |pattern: &Option<String>| pattern.as_ref().is_some_and(|p| p.len() > PATTERN_BYTES_MAX);
        if long(&self.title) {
            return Some("title");
        }
        long(&self.model).then_some("model")
    }
}

/// Whether `text` matches `pattern`, in which `*` is any text and `?` any character. Case-insensitive. Takes
/// at most as many steps as the product of both lengths.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let fold = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<Vec<char>>();
    let (pattern, text) = (fold(pattern), fold(text));
    let (mut p, mut t) = (0, 0);
    // Position of the last `*` and the end of the text it has matched so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            Some(_) | None => match star {
                Some((at, eaten)) => {
                    star = Some((at, eaten + 1));
                    p = at + 1;
                    t = eaten + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference implementation for the test: recursive, from the last character.
    fn matches_naively(pattern: &[char], text: &[char]) -> bool {
        match (pattern.split_last(), text.split_last()) {
            (None, None) => true,
            (None, Some(_)) => false,
            (Some(('*', front)), None) => matches_naively(front, text),
            (Some(('*', front)), Some((_, shorter))) => {
                matches_naively(front, text) || matches_naively(pattern, shorter)
            }
            (Some(_), None) => false,
            (Some((c, front)), Some((last, shorter))) => {
                (*c == '?' || c == last) && matches_naively(front, shorter)
            }
        }
    }

    proptest! {
        #[test]
        fn pattern_matching_agrees_with_an_oracle(pattern in "[ab*?]{0,8}", text in "[ab]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches_pattern(&pattern, &text), matches_naively(&chars(&pattern), &chars(&text)));
        }
    }

    #[test]
    fn patterns_ignore_case_and_match_the_full_text() {
        for (pattern, text, is) in [
            ("mend*", "Mend the rounding", true),
            ("rounding", "Mend the rounding", false),
            ("*ROUND*", "Mend the rounding", true),
            ("é?", "Éa", true),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(matches_pattern(pattern, text), is, "{pattern} {text}");
        }
    }

    #[test]
    fn states_are_comma_separated_in_a_query() {
        let states: TaskStates = "running,blocked,running".parse().expect("states");
        assert_eq!(states.to_string(), "running,blocked");
        assert_eq!(serde_json::to_string(&states).expect("JSON"), "\"running,blocked\"");
        for bad in ["", ",", "asleep", "running,"] {
            assert!(bad.parse::<TaskStates>().is_err(), "{bad}");
        }
    }
}

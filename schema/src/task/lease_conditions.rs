//! Conditions for leasing a task, in addition to its time and priority: dependencies, concurrency limits, and
//! required worker labels.

use std::{collections::BTreeMap, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::field_error::FieldError;
use crate::{
    ids::{ParseIdError, TaskId},
    task_state::TaskState,
};

/// Maximum number of dependencies of a task; they are stored in its row.
pub const DEPENDENCIES_MAX: usize = 100;
/// Maximum length of a concurrency key, in bytes; it is part of an index.
pub const CONCURRENCY_KEY_BYTES_MAX: usize = 256;
/// Maximum number of labels of a worker or a selector.
pub const LABELS_MAX: usize = 32;
/// Maximum length of a selector, in bytes, written as `name=value,…`. It is part of an index with limited key
/// size, together with the names of the task's models (`flow.rs`).
pub const SELECTOR_BYTES_MAX: usize = 1000;
/// Maximum length of a label's name or value, in bytes.
pub const LABEL_BYTES_MAX: usize = 63;

/// Lease conditions. See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LeaseConditions {
    /// Tasks that must be completed first; at most [`DEPENDENCIES_MAX`]. They must have been submitted
    /// earlier or come earlier in the same submit, which rules out cycles.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<TaskId>,
    /// What happens if one of them is cancelled or discarded.
    #[serde(skip_serializing_if = "DependencyFailurePolicy::is_hold")]
    pub if_failed: DependencyFailurePolicy,
    /// Limit on the number of tasks with the same key that run at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<ConcurrencyLimit>,
    /// Labels required of its worker.
    #[serde(skip_serializing_if = "LabelSet::is_empty")]
    pub selector: LabelSet,
}

impl LeaseConditions {
    /// Whether there are no conditions.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Validates what the types do not express.
    ///
    /// # Errors
    ///
    /// [`FieldError`] with the invalid field and its requirement.
    pub fn check(&self) -> Result<(), FieldError> {
        let fail = |field, must| Err(FieldError { field, must });
        if self.after.len() > DEPENDENCIES_MAX {
            return fail("conditions.after", "at most 100 tasks");
        }
        if self.after.iter().enumerate().any(|(at, task)| self.after[..at].contains(task)) {
            return fail("conditions.after", "without duplicates");
        }
        if self.selector.to_string().len() > SELECTOR_BYTES_MAX {
            return fail("conditions.selector", "at most 1000 bytes, written as name=value,…");
        }
        let Some(ConcurrencyLimit { key, max }) = &self.concurrency else { return Ok(()) };
        // PostgreSQL text cannot contain NUL.
        if key.is_empty() || key.len() > CONCURRENCY_KEY_BYTES_MAX || key.contains('\0') {
            return fail("conditions.concurrency.key", "1 to 256 bytes without NUL");
        }
        if *max == 0 {
            return fail("conditions.concurrency.max", "at least 1");
        }
        Ok(())
    }
}

/// What happens to a task if one of its dependencies is cancelled or discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DependencyFailurePolicy {
    /// It keeps waiting, because the dependency may be retried. Nothing is lost.
    #[default]
    Hold,
    /// It is cancelled, and so are tasks that depend on it.
    Cancel,
    /// It runs anyway.
    Run,
}

impl DependencyFailurePolicy {
    /// All policies, in declaration order.
    pub const ALL: [Self; 3] = [Self::Hold, Self::Cancel, Self::Run];

    /// Returns the policy's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Cancel => "cancel",
            Self::Run => "run",
        }
    }

    /// For serde: the default is omitted.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_hold(&self) -> bool {
        *self == Self::Hold
    }

    /// Whether a dependency that ended in `state` still blocks the dependent task.
    pub const fn is_blocked_by(self, state: TaskState) -> bool {
        match state {
            TaskState::Completed => false,
            TaskState::Cancelled | TaskState::Discarded => matches!(self, Self::Hold),
            TaskState::Pending
            | TaskState::Scheduled
            | TaskState::Available
            | TaskState::Running
            | TaskState::Retryable
            | TaskState::Blocked => true,
        }
    }
}

impl FromStr for DependencyFailurePolicy {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let found = Self::ALL.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| ParseIdError::new("policy for a failed dependency (hold, cancel, run)", text))
    }
}

/// Tasks that must not all run at the same time, for example because they write to the same branch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConcurrencyLimit {
    /// The shared key. At most [`CONCURRENCY_KEY_BYTES_MAX`] bytes.
    pub key: String,
    /// Maximum number of them that run at a time. If tasks with one key have different limits, the lowest
    /// among the running ones and the next one applies, so that an exclusive task is exclusive.
    #[serde(default = "ConcurrencyLimit::default_max")]
    pub max: u32,
}

impl ConcurrencyLimit {
    const fn default_max() -> u32 {
        1
    }
}

/// Names with values: a worker's labels, or those a task requires of its worker. Sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct LabelSet(BTreeMap<String, String>);

impl LabelSet {
    /// Creates a set of labels.
    ///
    /// # Errors
    ///
    /// Fails if a name or value is invalid, or if there are too many.
    pub fn new(all: BTreeMap<String, String>) -> Result<Self, ParseIdError> {
        let bad = |text: &str| Err(ParseIdError::new(LABEL_FORMAT, text));
        if all.len() > LABELS_MAX {
            return bad("more than 32");
        }
        match all.iter().find(|(name, value)| !is_label(name) || !is_label(value)) {
            Some((name, value)) => bad(&format!("{name}={value}")),
            None => Ok(Self(all)),
        }
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns name and value of each label, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether a worker with these labels may take a task that requires `selector`.
    pub fn matches_selector(&self, selector: &Self) -> bool {
        selector.0.iter().all(|(name, value)| self.0.get(name) == Some(value))
    }
}

const LABEL_FORMAT: &str =
    "label (name=value, of letters, digits, . _ - /; at most 63 bytes each, at most 32 labels)";

fn is_label(text: &str) -> bool {
    let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/');
    !text.is_empty() && text.len() <= LABEL_BYTES_MAX && text.bytes().all(legal)
}

/// The text form read by [`FromStr`]: `arch=arm64,gpu=a100`. Equal labels have equal text.
impl fmt::Display for LabelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, value)) in self.0.iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{name}={value}")?;
        }
        Ok(())
    }
}

impl FromStr for LabelSet {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let mut all = BTreeMap::new();
        for one in text.split(',').filter(|one| !one.is_empty()) {
            let (name, value) = one.split_once('=').ok_or_else(|| ParseIdError::new(LABEL_FORMAT, one))?;
            if all.insert(name.to_owned(), value.to_owned()).is_some_and(|before| before != value) {
                return Err(ParseIdError::new("label with one value", one));
            }
        }
        Self::new(all)
    }
}

impl<'de> Deserialize<'de> for LabelSet {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::new(BTreeMap::deserialize(d)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(text: &str) -> LabelSet {
        text.parse().expect("labels")
    }

    #[test]
    fn labels_round_trip_and_a_selector_requires_all_of_its_labels() {
        assert_eq!(labels("gpu=a100,arch=arm64,").to_string(), "arch=arm64,gpu=a100");
        for bad in ["gpu", "gpu=", "=a", "a b=c", "a=b=c", "a=1,a=2"] {
            assert!(bad.parse::<LabelSet>().is_err(), "{bad}");
        }
        let has = labels("arch=arm64,gpu=a100");
        for (selector, fits) in [
            ("", true),
            ("gpu=a100", true),
            ("gpu=a100,arch=arm64", true),
            ("gpu=h100", false),
            ("os=linux", false),
        ] {
            assert_eq!(has.matches_selector(&labels(selector)), fits, "{selector}");
        }
        let json = serde_json::to_string(&has).expect("json");
        assert_eq!(serde_json::from_str::<LabelSet>(&json).expect("read"), has);
        assert!(serde_json::from_str::<LabelSet>("{\"a\":\"b\\u0000\"}").is_err());
    }

    #[test]
    fn invalid_condition_is_reported_with_its_field() {
        let id = |n| TaskId(uuid::Uuid::from_u128(n));
        let field = |conditions: LeaseConditions| conditions.check().err().map(|error| error.field);
        assert_eq!(field(LeaseConditions { after: vec![id(1), id(2)], ..LeaseConditions::default() }), None);
        assert_eq!(
            field(LeaseConditions { after: vec![id(1), id(1)], ..LeaseConditions::default() }),
            Some("conditions.after")
        );
        for (key, max, wrong) in [
            ("k", 1, None),
            ("", 1, Some("conditions.concurrency.key")),
            ("a\0", 1, Some("conditions.concurrency.key")),
            ("k", 0, Some("conditions.concurrency.max")),
        ] {
            let concurrency = Some(ConcurrencyLimit { key: key.to_owned(), max });
            assert_eq!(field(LeaseConditions { concurrency, ..LeaseConditions::default() }), wrong);
        }
    }
}

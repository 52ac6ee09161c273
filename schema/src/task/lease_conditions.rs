//! Under which conditions a task may be leased, beside its time and its priority: other tasks that come first,
//! others that must not run at the same time, and what its worker must have.

use std::{collections::BTreeMap, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::field_error::FieldError;
use crate::{
    ids::{ParseIdError, TaskId},
    task_state::TaskState,
};

/// Tasks that one may wait for, at most: they stand in its row.
pub const DEPENDENCIES_MAX: usize = 100;
/// Longest concurrency key, in bytes: it stands in an index.
pub const CONCURRENCY_KEY_BYTES_MAX: usize = 256;
/// Labels of a worker, or of a selector, at most.
pub const LABELS_MAX: usize = 32;
/// Longest selector, in bytes, written as `name=value,…`: it stands in an index whose keys have a limit, with the names
/// of the task's models (`flow.rs`).
pub const SELECTOR_BYTES_MAX: usize = 1000;
/// Longest name or value of a label, in bytes.
pub const LABEL_BYTES_MAX: usize = 63;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LeaseConditions {
    /// Tasks that must be completed first; at most [`AFTER_MAX`]. They must have been submitted before, or stand
    /// before it in the same submit: so none waits for itself, by whatever detour.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<TaskId>,
    /// What becomes of it where one of them is cancelled or discarded.
    #[serde(skip_serializing_if = "DependencyFailurePolicy::is_hold")]
    pub if_failed: DependencyFailurePolicy,
    /// At most so many of the tasks with this key run at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<ConcurrencyLimit>,
    /// Labels that its worker must have.
    #[serde(skip_serializing_if = "LabelSet::is_empty")]
    pub selector: LabelSet,
}

impl LeaseConditions {
    /// Whether it may run whenever, wherever.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Checks what the types do not.
    ///
    /// # Errors
    /// The field that is wrong, and what it must be.
    pub fn check(&self) -> Result<(), FieldError> {
        let fail = |field, must| Err(FieldError { field, must });
        if self.after.len() > DEPENDENCIES_MAX {
            return fail("conditions.after", "at most 100 tasks");
        }
        if self.after.iter().enumerate().any(|(at, task)| self.after[..at].contains(task)) {
            return fail("conditions.after", "without a task that stands there twice");
        }
        if self.selector.to_string().len() > SELECTOR_BYTES_MAX {
            return fail("conditions.selector", "at most 1000 bytes, written as name=value,…");
        }
        let Some(ConcurrencyLimit { key, max }) = &self.concurrency else { return Ok(()) };
        // A NUL is none of PostgreSQL's characters.
        if key.is_empty() || key.len() > CONCURRENCY_KEY_BYTES_MAX || key.contains('\0') {
            return fail("conditions.concurrency.key", "1 to 256 bytes without NUL");
        }
        if *max == 0 {
            return fail("conditions.concurrency.max", "at least 1");
        }
        Ok(())
    }
}

/// What becomes of a task where one that it waits for is cancelled or discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DependencyFailurePolicy {
    /// It goes on waiting: that one may be retried, and then this one follows. Nothing is lost by it.
    #[default]
    Hold,
    /// It is cancelled, and what waits for it likewise.
    Cancel,
    /// It runs all the same.
    Run,
}

impl DependencyFailurePolicy {
    /// All of them, in declaration order.
    pub const ALL: [Self; 3] = [Self::Hold, Self::Cancel, Self::Run];

    /// The word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Cancel => "cancel",
            Self::Run => "run",
        }
    }

    /// For serde: the default is left out.
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    fn is_hold(&self) -> bool {
        *self == Self::Hold
    }

    /// Whether a task that ended as `state` still keeps back the one that waits for it.
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
        found.ok_or_else(|| ParseIdError::new("word for a failed dependency (hold, cancel, run)", text))
    }
}

/// Tasks that must not all run at the same time: those that write to one branch, say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConcurrencyLimit {
    /// What they share. At most [`CONCURRENCY_KEY_BYTES_MAX`] bytes.
    pub key: String,
    /// How many of them may run at a time. Where tasks of one key say different things, the least holds of what those
    /// say that run and of what the next one says: who is to be alone is.
    #[serde(default = "ConcurrencyLimit::default_max")]
    pub max: u32,
}

impl ConcurrencyLimit {
    const fn default_max() -> u32 {
        1
    }
}

/// Names with values: what a worker says of itself, or what a task wants of its worker. Sorted by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct LabelSet(BTreeMap<String, String>);

impl LabelSet {
    /// Of these.
    ///
    /// # Errors
    /// A name or value that is none, or too many of them.
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

    /// None at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Name and value of each, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether whoever has these may take what wants `selector`.
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

/// As [`FromStr`] reads them: `arch=arm64,gpu=a100`. The same labels give the same text.
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

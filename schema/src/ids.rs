//! Identifiers and counters, each with its own type so that they cannot be confused.
//!
//! Types only: new ids and timestamps are created in the binaries (one generator each) and never here, so
//! that folds and decisions remain pure functions of what was recorded.

use std::{fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

/// A text that is not a valid id, hash or name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a {expected}")]
pub struct ParseIdError {
    /// What was expected, for people: "task id", "blake3 hash".
    pub expected: &'static str,
    /// The rejected text, truncated to 80 characters.
    pub text: String,
}

impl ParseIdError {
    pub(crate) fn new(expected: &'static str, text: &str) -> Self {
        Self { expected, text: text.chars().take(80).collect() }
    }
}

/// Implements `Serialize` by a type's `Display`.
macro_rules! serialize_as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(self)
            }
        }
    };
}
pub(crate) use serialize_as_text;

/// Implements `Deserialize` by a type's `FromStr`.
macro_rules! deserialize_from_text {
    ($type:ty) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <String as serde::Deserialize>::deserialize(from)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use deserialize_from_text;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                Uuid::parse_str(text).map(Self).map_err(|_| ParseIdError::new($what, text))
            }
        }

        impl $name {
            /// Returns the last eight hexadecimal digits, for lists. UUIDv7 has its random bits at the end,
            /// so they distinguish ids of the same second, which a prefix would not.
            pub fn short(&self) -> String {
                let text = self.0.simple().to_string();
                text[24..].to_owned()
            }
        }
    };
}

uuid_id!(
    /// A piece of work in the backlog.
    TaskId,
    "task id"
);
uuid_id!(
    /// One execution of a task.
    RunId,
    "run id"
);
uuid_id!(
    /// One process of a worker. A restarted worker is a new incarnation, even with the same name.
    IncarnationId,
    "worker incarnation id"
);
uuid_id!(
    /// Tasks submitted together, for summaries and bulk operations.
    BatchId,
    "batch id"
);

uuid_id!(
    /// A notification to a person or program.
    NotificationId,
    "notification id"
);

/// Values of hexadecimal digits; values above 15 mean none. A table, because a log has one or two hashes per
/// event.
const HEX_DIGITS: [u8; 256] = {
    let mut digits = [u8::MAX; 256];
    let mut value = 0;
    while value < 16 {
        digits[b"0123456789abcdef"[value as usize] as usize] = value;
        digits[b"0123456789ABCDEF"[value as usize] as usize] = value;
        value += 1;
    }
    digits
};

fn parse_hex_hash(text: &str) -> Option<[u8; 32]> {
    let text: &[u8; 64] = text.as_bytes().try_into().ok()?;
    let mut bytes = [0; 32];
    let mut all = 0;
    for (byte, pair) in bytes.iter_mut().zip(text.as_chunks::<2>().0) {
        let [high, low] = pair.map(|digit| HEX_DIGITS[usize::from(digit)]);
        all |= high | low;
        *byte = (high << 4) | (low & 15);
    }
    (all < 16).then_some(bytes)
}

macro_rules! hash_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub [u8; 32]);

        impl $name {
            /// Thirty-two zero bytes: the previous hash of a stream's first event.
            pub const ZERO: Self = Self([0; 32]);

            /// Returns the BLAKE3 hash of `bytes`.
            pub fn hash_bytes(bytes: &[u8]) -> Self {
                Self(*blake3::hash(bytes).as_bytes())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse_hex_hash(text)
                    .map(Self)
                    .ok_or_else(|| ParseIdError::new("blake3 hash (64 hexadecimal digits)", text))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.serialize_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Hex;
                impl de::Visitor<'_> for Hex {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("64 hexadecimal digits")
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }
                }
                d.deserialize_str(Hex)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
            }
        }
    };
}

hash_id!(
    /// Identifies a blob: BLAKE3 hash of its uncompressed bytes.
    BlobHash
);
hash_id!(
    /// BLAKE3 hash over an event and the previous hash; see [`crate::event::chain_hash`].
    EventHash
);
hash_id!(
    /// BLAKE3 hash over a complete work tree; see [`crate::snapshot::tree_hash`].
    TreeHash
);
hash_id!(
    /// BLAKE3 hash over a canonical decision or a rendered request body.
    DecisionHash
);

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident, $inner:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $name {
            /// Returns the next value. Saturates instead of wrapping.
            #[must_use]
            pub const fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }
    };
}

counter!(
    /// Sequence number of an event in its stream: 1, 2, 3 … without gaps. 0 is the empty stream.
    Seq,
    u64
);
counter!(
    /// Position of an event in the log. Increases with each commit; may have gaps.
    Position,
    u64
);
counter!(
    /// The fencing token: how often a task was leased. An append under a lower epoch is refused.
    Epoch,
    u64
);
counter!(
    /// One model decision and everything it causes until the next one. 0 is everything before the first
    /// decision.
    Turn,
    u32
);

/// A time in microseconds since 1970-01-01 UTC. RFC 3339 with six decimals in JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// Returns the time `ms` milliseconds later.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add_unsigned(ms.saturating_mul(1000)))
    }

    /// Returns the time `ms` milliseconds earlier.
    #[must_use]
    pub const fn minus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_sub_unsigned(ms.saturating_mul(1000)))
    }

    /// Returns the milliseconds since `earlier`; 0 if `earlier` is later.
    #[must_use]
    pub const fn ms_since(self, earlier: Self) -> u64 {
        let us = self.0.saturating_sub(earlier.0);
        if us <= 0 { 0 } else { us.unsigned_abs() / 1000 }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match chrono::DateTime::from_timestamp_micros(self.0) {
            Some(at) => at.format("%Y-%m-%dT%H:%M:%S%.6fZ").fmt(f),
            None => write!(f, "{}us", self.0),
        }
    }
}

impl FromStr for Timestamp {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        chrono::DateTime::parse_from_rfc3339(text)
            .map(|at| Self(at.timestamp_micros()))
            .map_err(|_| ParseIdError::new("RFC 3339 instant (2026-01-31T12:00:00Z)", text))
    }
}

serialize_as_text!(Timestamp);
deserialize_from_text!(Timestamp);

impl JsonSchema for Timestamp {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}

/// Maximum length of a queue name, in bytes. It is part of every index entry of a task.
pub const QUEUE_NAME_BYTES_MAX: usize = 64;

/// A queue's name: letters, digits, `.`, `_`, `-`; at most [`QUEUE_NAME_BYTES_MAX`] bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("pattern" = "^[A-Za-z0-9._-]{1,64}$"))]
pub struct QueueName(String);

/// Prefix of the queue that `docket run` creates for its single task.
const SINGLE_TASK_PREFIX: &str = "run-";

impl QueueName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of the queue for a single task. While a worker serves it by name, workers of all
    /// queues ignore it.
    pub fn for_single_task(task: TaskId) -> Self {
        Self(format!("{SINGLE_TASK_PREFIX}{}", task.short()))
    }

    /// Whether the name was created by [`Self::for_single_task`]. There can be as many of these as tasks, so
    /// reports group them instead of listing each.
    pub fn is_single_task(&self) -> bool {
        let digits = self.0.strip_prefix(SINGLE_TASK_PREFIX);
        digits.is_some_and(|digits| digits.len() == 8 && digits.bytes().all(|b| b.is_ascii_hexdigit()))
    }
}

impl Default for QueueName {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for QueueName {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > QUEUE_NAME_BYTES_MAX || !text.bytes().all(legal) {
            return Err(ParseIdError::new("queue name (letters, digits, . _ -; at most 64)", text));
        }
        Ok(Self(text.to_owned()))
    }
}

deserialize_from_text!(QueueName);

/// Identifies a stream: every event belongs to exactly one. Text form `run/0190…`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StreamId {
    /// The events of a task in the queue.
    Task(TaskId),
    /// The decisions and actions of a run.
    Run(RunId),
    /// The settings of a queue.
    Queue(QueueName),
    /// Tokens, schedules, policy, memory, audit, anchors: one stream per topic.
    System(SystemTopic),
}

/// Topics of the system streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SystemTopic {
    /// API tokens created and revoked.
    Tokens,
    /// Administrative actions.
    Audit,
    /// Stream heads written periodically, so that a truncated tail is detected.
    Anchors,
    /// Cron schedules.
    Schedules,
    /// Changes of policy.
    Policy,
    /// Memory that outlives runs.
    Memory,
    /// Runs imported from other installations.
    Imports,
    /// Streams archived and restored.
    Archive,
    /// Rate limits of model providers.
    Limits,
    /// Budgets of batches.
    Budgets,
    /// Notifications to people and programs.
    Notifications,
}

impl SystemTopic {
    /// All topics, in declaration order.
    pub const ALL: [Self; 11] = [
        Self::Tokens,
        Self::Audit,
        Self::Anchors,
        Self::Schedules,
        Self::Policy,
        Self::Memory,
        Self::Imports,
        Self::Archive,
        Self::Limits,
        Self::Budgets,
        Self::Notifications,
    ];

    /// Returns the topic's name in a stream id.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::Audit => "audit",
            Self::Anchors => "anchors",
            Self::Schedules => "schedules",
            Self::Policy => "policy",
            Self::Memory => "memory",
            Self::Imports => "imports",
            Self::Archive => "archive",
            Self::Limits => "limits",
            Self::Budgets => "budgets",
            Self::Notifications => "notifications",
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(id) => write!(f, "task/{id}"),
            Self::Run(id) => write!(f, "run/{id}"),
            Self::Queue(name) => write!(f, "queue/{name}"),
            Self::System(topic) => write!(f, "system/{}", topic.as_str()),
        }
    }
}

impl FromStr for StreamId {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let bad = || ParseIdError::new("stream (task/ID, run/ID, queue/NAME or system/TOPIC)", text);
        let (class, name) = text.split_once('/').ok_or_else(bad)?;
        match class {
            "task" => Ok(Self::Task(name.parse()?)),
            "run" => Ok(Self::Run(name.parse()?)),
            "queue" => Ok(Self::Queue(name.parse()?)),
            "system" => SystemTopic::ALL
                .into_iter()
                .find(|topic| topic.as_str() == name)
                .map(Self::System)
                .ok_or_else(bad),
            _ => Err(bad()),
        }
    }
}

serialize_as_text!(StreamId);
deserialize_from_text!(StreamId);

impl JsonSchema for StreamId {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StreamId".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^(task|run|queue|system)/.+$" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_task_queue_is_recognized_by_its_name() {
        let own = QueueName::for_single_task(TaskId(Uuid::from_u128(0xabcd_ef01)));
        assert_eq!((own.as_str(), own.is_single_task()), ("run-abcdef01", true));
        assert_eq!(own.as_str().parse::<QueueName>(), Ok(own.clone()));
        for name in ["run-", "run-abcdef0", "run-abcdef011", "run-abcdefgh", "runabcdef01", "default"] {
            assert!(!name.parse::<QueueName>().expect("a name").is_single_task(), "{name}");
        }
    }

    #[test]
    fn ids_round_trip_as_text() {
        let uuid = Uuid::from_u128(0x0192_3456_789a_7bcd_8ef0_1234_5678_9abc);
        for stream in [
            StreamId::Task(TaskId(uuid)),
            StreamId::Run(RunId(uuid)),
            StreamId::Queue(QueueName::default()),
            StreamId::System(SystemTopic::Anchors),
        ] {
            assert_eq!(stream.to_string().parse(), Ok(stream));
        }
        let hash = BlobHash::hash_bytes(b"docket");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        let at = Timestamp(1_700_000_000_123_456);
        assert_eq!(at.to_string(), "2023-11-14T22:13:20.123456Z");
        assert_eq!(at.to_string().parse(), Ok(at));
    }

    #[test]
    fn hash_parses_only_from_64_hex_digits() {
        let hash = BlobHash::hash_bytes(b"a");
        let text = hash.to_string();
        assert_eq!(text.parse::<BlobHash>().expect("its own"), hash);
        assert_eq!(text.to_uppercase().parse::<BlobHash>().expect("capitals"), hash);
        assert_eq!("0".repeat(64).parse::<BlobHash>().expect("zeros"), BlobHash::ZERO);
        assert_eq!("f".repeat(64).parse::<BlobHash>().expect("ones"), BlobHash([255; 32]));
        for at in 0..64 {
            for wrong in ["g", "/", ":", "@", "`", " "] {
                let text = format!("{}{wrong}{}", &text[..at], &text[at + 1..]);
                assert!(text.parse::<BlobHash>().is_err(), "{text}");
            }
        }
        for wrong in [&text[1..], "", &format!("{text}0"), &"é".repeat(32)] {
            assert!(wrong.parse::<BlobHash>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn parse_error_names_the_text() {
        let error = "run/42".parse::<StreamId>().expect_err("42 is no uuid");
        assert_eq!(error.to_string(), "`42` is not a run id");
        assert!("a b".parse::<QueueName>().is_err());
        assert!("".parse::<QueueName>().is_err());
        assert!("nope/x".parse::<StreamId>().is_err());
    }
}

//! API tokens as the log has them, and their fold: who may call a coordinator.
//!
//! The stream `system/tokens` is the only place where tokens are kept; every coordinator of a store folds
//! it. Of a token only the BLAKE3 stands there. No slow hash is needed: those are for passwords that
//! somebody can guess, and a token is 256 random bits, which nobody can, whatever a guess costs.
//!
//! A name may be used again once its token is revoked or has expired, so that `ci` can be replaced by `ci`;
//! whose act an event was is told by its place in the log.

use std::{collections::BTreeMap, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use super::{SystemEvent, TopicError, TopicFold, topic};
use crate::{
    event::EventRef,
    ids::{BlobHash, ParseIdError, Seq, SystemTopic, Timestamp},
};

/// Longest name of a token, in bytes: it stands in every event that its holder causes.
pub const TOKEN_NAME_BYTES_MAX: usize = 64;

/// Most tokens in force at once: each request is compared with all of them.
pub const TOKENS_MAX: usize = 1000;

/// What an API token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything but a run's own appends.
    Admin,
    /// Submits, cancels, retries, tells, resumes; reads.
    Submit,
    /// Leases, heartbeats, gives back.
    Worker,
    /// Reads tasks, runs and events.
    Read,
}

impl Role {
    /// All roles, in declaration order.
    pub const ALL: [Self; 4] = [Self::Admin, Self::Submit, Self::Worker, Self::Read];

    /// The role's name, as in JSON and on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Submit => "submit",
            Self::Worker => "worker",
            Self::Read => "read",
        }
    }
}

/// A token's name: letters, digits, `.`, `_`, `-`; at most [`TOKEN_NAME_BYTES_MAX`] bytes. A new one begins with a
/// letter or digit ([`TokenName::is_new`]): others are a path's own words, or a flag. Old logs may hold such.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("pattern" = "^[A-Za-z0-9._-]{1,64}$"))]
pub struct TokenName(String);

impl TokenName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether a token may be made of this name.
    pub fn is_new(&self) -> bool {
        self.0.starts_with(|first: char| first.is_ascii_alphanumeric())
    }
}

impl fmt::Display for TokenName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TokenName {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if text.is_empty() || text.len() > TOKEN_NAME_BYTES_MAX || !text.bytes().all(legal) {
            return Err(ParseIdError::new("token name (letters, digits, . _ -; at most 64)", text));
        }
        Ok(Self(text.to_owned()))
    }
}

impl<'de> Deserialize<'de> for TokenName {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

/// A token was made. Stands in `system/tokens`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenCreated {
    /// Its name: stands in the log as who submitted, told or cancelled.
    pub name: TokenName,
    /// What it is good for.
    pub role: Role,
    /// BLAKE3 of it.
    pub hash: BlobHash,
    /// From when on it is good for nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Who made it.
    pub by: String,
}

/// A token was revoked. Stands in `system/tokens`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TokenRevoked {
    /// Its name.
    pub name: TokenName,
    /// Who revoked it.
    pub by: String,
}

/// A token as the fold has it.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenRecord {
    /// As it was made.
    pub made: TokenCreated,
    /// When.
    pub made_at: Timestamp,
    /// When it was revoked, and by whom.
    pub revoked: Option<(Timestamp, String)>,
}

impl TokenRecord {
    /// Whether it is good at `now`.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.made.expires_at.is_none_or(|at| now < at)
    }
}

/// The fold: the last token of each name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tokens {
    head: Seq,
    by_name: BTreeMap<TokenName, TokenRecord>,
}

impl Tokens {
    /// All, by name.
    pub fn all(&self) -> impl Iterator<Item = &TokenRecord> {
        self.by_name.values()
    }

    /// The last of this name.
    pub fn get(&self, name: &TokenName) -> Option<&TokenRecord> {
        self.by_name.get(name)
    }
}

impl TopicFold for Tokens {
    const TOPIC: SystemTopic = SystemTopic::Tokens;

    fn head(&self) -> Seq {
        self.head
    }

    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), TopicError> {
        let seq = event.seq;
        let illegal = |what: String| TopicError::illegal(Self::TOPIC, seq, what);
        match topic::next(Self::TOPIC, self.head, event)? {
            SystemEvent::TokenCreated(made) => {
                if self.by_name.get(&made.name).is_some_and(|record| record.is_good(event.recorded_at)) {
                    return Err(illegal(format!("token `{}` is made while another is good", made.name)));
                }
                let record = TokenRecord { made, made_at: event.recorded_at, revoked: None };
                self.by_name.insert(record.made.name.clone(), record);
            }
            SystemEvent::TokenRevoked(TokenRevoked { name, by }) => {
                let record = self.by_name.get_mut(&name).filter(|record| record.revoked.is_none());
                let record =
                    record.ok_or_else(|| illegal(format!("there is no token `{name}` to be revoked")))?;
                record.revoked = Some((event.recorded_at, by));
            }
            other @ (SystemEvent::RunImported(_)
            | SystemEvent::AdminActed(_)
            | SystemEvent::CallsRefused(_)
            | SystemEvent::StreamsArchived(_)
            | SystemEvent::StreamsRestored(_)
            | SystemEvent::ScheduleSet(_)
            | SystemEvent::SchedulePaused(_)
            | SystemEvent::ScheduleRemoved(_)
            | SystemEvent::ScheduleFired(_)
            | SystemEvent::LimitSet(_)
            | SystemEvent::LimitRemoved(_)
            | SystemEvent::BudgetSet(_)
            | SystemEvent::BudgetSpent(_)
            | SystemEvent::NotificationsFollowed(_)
            | SystemEvent::NotificationRaised(_)
            | SystemEvent::NotificationDelivered(_)
            | SystemEvent::NotificationFailed(_)
            | SystemEvent::NotificationDeadLettered(_)
            | SystemEvent::NotificationRetried(_)
            | SystemEvent::NotificationDropped(_)
            | SystemEvent::MemorySaved(_)
            | SystemEvent::MemoryForgotten(_)) => return Err(topic::elsewhere(Self::TOPIC, seq, &other)),
        }
        self.head = seq;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        event::{Head, NewEvent, TypedEvent as _},
        ids::{Epoch, EventHash, Position, Turn},
    };

    fn fold(tokens: &mut Tokens, at: i64, event: SystemEvent) -> Result<(), TopicError> {
        let NewEvent { kind, version, payload, .. } = event.encode(Turn(0));
        let Head { hash, .. } = Head::EMPTY;
        tokens.apply(&EventRef {
            seq: tokens.head().next(),
            position: Position(0),
            recorded_at: Timestamp(at),
            turn: Turn(0),
            epoch: Epoch(0),
            kind: &kind,
            version,
            payload: payload.as_str(),
            prev_hash: hash,
            hash: EventHash::ZERO,
        })
    }

    fn made(name: &str, expires_at: Option<i64>) -> SystemEvent {
        TokenCreated {
            name: name.parse().expect("a name"),
            role: Role::Submit,
            hash: BlobHash::of(name.as_bytes()),
            expires_at: expires_at.map(Timestamp),
            by: "ann".to_owned(),
        }
        .into()
    }

    fn revoked(name: &str) -> SystemEvent {
        TokenRevoked { name: name.parse().expect("a name"), by: "ann".to_owned() }.into()
    }

    #[test]
    fn new_names_begin_with_a_letter_or_digit_and_old_ones_fold() {
        let mut tokens = Tokens::default();
        for old in [".", "..", "-x", "_a", "--role"] {
            assert!(!old.parse::<TokenName>().expect("stands in logs").is_new(), "{old}");
            fold(&mut tokens, 10, made(old, None)).expect("folds");
        }
        for new in ["a", "0", "ci.2_x-"] {
            assert!(new.parse::<TokenName>().expect("a name").is_new(), "{new}");
        }
    }

    #[test]
    fn a_token_is_good_from_its_making_to_its_end_and_its_name_is_free_again_after() {
        let ci: TokenName = "ci".parse().expect("a name");
        let mut tokens = Tokens::default();
        fold(&mut tokens, 10, made("ci", Some(20))).expect("made");
        let good = |tokens: &Tokens, at| tokens.get(&ci).expect("there").is_good(Timestamp(at));
        assert!(good(&tokens, 19) && !good(&tokens, 20));
        assert!(fold(&mut tokens, 19, made("ci", None)).is_err(), "while the first is good");
        fold(&mut tokens, 20, made("ci", None)).expect("the first has expired");
        assert!(good(&tokens, i64::MAX));
        fold(&mut tokens, 30, revoked("ci")).expect("revoked");
        assert!(!good(&tokens, 31));
        assert!(fold(&mut tokens, 31, revoked("ci")).is_err(), "once");
        assert!(fold(&mut tokens, 31, revoked("nobody")).is_err());
        fold(&mut tokens, 32, made("ci", None)).expect("its name is free");
        assert_eq!((tokens.head(), tokens.all().count()), (Seq(4), 1));
    }

    #[test]
    fn names_are_plain_words() {
        for bad in ["", "a b", "a/b", "ü", "a\n", &"x".repeat(65), "'; DROP"] {
            assert!(bad.parse::<TokenName>().is_err(), "{bad}");
        }
        assert!("ci-2_b.X".parse::<TokenName>().is_ok());
        for role in Role::ALL {
            assert_eq!(serde_json::to_value(role).expect("json"), role.as_str());
        }
    }
}

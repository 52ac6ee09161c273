//! Fold of API tokens: who may call a coordinator.
//!
//! The stream `system/tokens` is the only place where tokens are stored; every coordinator of a store folds
//! it. It contains only a token's BLAKE3 hash. A slow hash is unnecessary: it protects guessable passwords,
//! and a token is 256 random bits.
//!
//! A name may be reused once its token is revoked or expired, so that `ci` can be replaced by `ci`. The
//! position in the log determines which token an event belongs to.

use std::collections::BTreeMap;

use super::{SystemEvent, TokenCreated, TokenName, TokenRevoked, TopicError, TopicFold, topic_fold};
use crate::{
    event::EventRef,
    ids::{Seq, SystemTopic, Timestamp},
};

/// A folded token.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenRecord {
    /// The event that created it.
    pub created: TokenCreated,
    /// When it was created.
    pub created_at: Timestamp,
    /// The time of its revocation, and the name of the revoking caller.
    pub revoked: Option<(Timestamp, String)>,
}

impl TokenRecord {
    /// Whether it is valid at `now`.
    pub fn is_valid_at(&self, now: Timestamp) -> bool {
        self.revoked.is_none() && self.created.expires_at.is_none_or(|at| now < at)
    }
}

/// The latest token of each name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TokensFold {
    head: Seq,
    by_name: BTreeMap<TokenName, TokenRecord>,
}

impl TokensFold {
    /// Returns all tokens, by name.
    pub fn all(&self) -> impl Iterator<Item = &TokenRecord> {
        self.by_name.values()
    }

    /// Returns the latest token of this name.
    pub fn get(&self, name: &TokenName) -> Option<&TokenRecord> {
        self.by_name.get(name)
    }
}

impl TopicFold for TokensFold {
    const TOPIC: SystemTopic = SystemTopic::Tokens;

    fn head(&self) -> Seq {
        self.head
    }

    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), TopicError> {
        let seq = event.seq;
        let illegal = |what: String| TopicError::illegal(Self::TOPIC, seq, what);
        match topic_fold::decode_next(Self::TOPIC, self.head, event)? {
            SystemEvent::TokenCreated(made) => {
                if self.by_name.get(&made.name).is_some_and(|record| record.is_valid_at(event.recorded_at)) {
                    return Err(illegal(format!(
                        "token `{}` is created while another one is valid",
                        made.name
                    )));
                }
                let record = TokenRecord { created: made, created_at: event.recorded_at, revoked: None };
                self.by_name.insert(record.created.name.clone(), record);
            }
            SystemEvent::TokenRevoked(TokenRevoked { name, by }) => {
                let record = self.by_name.get_mut(&name).filter(|record| record.revoked.is_none());
                let record =
                    record.ok_or_else(|| illegal(format!("there is no token `{name}` to revoke")))?;
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
            | SystemEvent::MemoryForgotten(_)) => {
                return Err(topic_fold::wrong_topic_error(Self::TOPIC, seq, &other));
            }
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
        ids::{BlobHash, Epoch, EventHash, Position, Turn},
        system::TokenRole,
    };

    fn fold(tokens: &mut TokensFold, at: i64, event: SystemEvent) -> Result<(), TopicError> {
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

    fn created_event(name: &str, expires_at: Option<i64>) -> SystemEvent {
        TokenCreated {
            name: name.parse().expect("a name"),
            role: TokenRole::Submit,
            hash: BlobHash::hash_bytes(name.as_bytes()),
            expires_at: expires_at.map(Timestamp),
            by: "ann".to_owned(),
        }
        .into()
    }

    fn revoked_event(name: &str) -> SystemEvent {
        TokenRevoked { name: name.parse().expect("a name"), by: "ann".to_owned() }.into()
    }

    #[test]
    fn new_names_start_alphanumeric_and_old_names_still_fold() {
        let mut tokens = TokensFold::default();
        for old in [".", "..", "-x", "_a", "--role"] {
            assert!(!old.parse::<TokenName>().expect("stands in logs").is_valid_for_creation(), "{old}");
            fold(&mut tokens, 10, created_event(old, None)).expect("folds");
        }
        for new in ["a", "0", "ci.2_x-"] {
            assert!(new.parse::<TokenName>().expect("a name").is_valid_for_creation(), "{new}");
        }
    }

    #[test]
    fn token_is_valid_until_it_ends_and_then_its_name_is_reusable() {
        let ci: TokenName = "ci".parse().expect("a name");
        let mut tokens = TokensFold::default();
        fold(&mut tokens, 10, created_event("ci", Some(20))).expect("made");
        let good = |tokens: &TokensFold, at| tokens.get(&ci).expect("there").is_valid_at(Timestamp(at));
        assert!(good(&tokens, 19) && !good(&tokens, 20));
        assert!(fold(&mut tokens, 19, created_event("ci", None)).is_err(), "while the first is good");
        fold(&mut tokens, 20, created_event("ci", None)).expect("the first has expired");
        assert!(good(&tokens, i64::MAX));
        fold(&mut tokens, 30, revoked_event("ci")).expect("revoked");
        assert!(!good(&tokens, 31));
        assert!(fold(&mut tokens, 31, revoked_event("ci")).is_err(), "once");
        assert!(fold(&mut tokens, 31, revoked_event("nobody")).is_err());
        fold(&mut tokens, 32, created_event("ci", None)).expect("its name is free");
        assert_eq!((tokens.head(), tokens.all().count()), (Seq(4), 1));
    }
}

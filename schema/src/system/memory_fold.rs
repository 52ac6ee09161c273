//! Fold of memory that outlives runs.
//!
//! The stream `system/memory` records what was saved and deleted, by scope: a repository or a queue. A value
//! is a blob; the fold stores its reference and beginning only, so that it stays small. Recent calls that
//! changed something are remembered, so that a call repeated by recovery is applied once.

use std::collections::{BTreeMap, VecDeque};

use super::{
    MEMORY_KEYS_MAX, MemoryCall, MemoryForgotten, MemorySaved, MemoryScope, SystemEvent, TopicError,
    TopicFold, topic_fold,
};
use crate::{
    event::EventRef,
    ids::{Seq, SystemTopic, Timestamp},
};

/// Number of recent changes by runs remembered by their call. Recovery repeats its last batch soon.
const CALLS_KNOWN_MAX: usize = 10_000;

/// A saved memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryRecord {
    /// The event that saved it.
    pub saved: MemorySaved,
    /// When it was saved.
    pub saved_at: Timestamp,
}

/// The folded memories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MemoryFold {
    head: Seq,
    scopes: BTreeMap<MemoryScope, BTreeMap<String, MemoryRecord>>,
    calls: VecDeque<MemoryCall>,
}

impl MemoryFold {
    /// Returns the memory of a key.
    pub fn get(&self, scope: &MemoryScope, key: &str) -> Option<&MemoryRecord> {
        self.scopes.get(scope)?.get(key)
    }

    /// Returns all memories of a scope, by key.
    pub fn scope_records(&self, scope: &MemoryScope) -> impl Iterator<Item = &MemoryRecord> {
        self.scopes.get(scope).into_iter().flat_map(BTreeMap::values)
    }

    /// Returns all memories, by scope and key.
    pub fn all(&self) -> impl Iterator<Item = &MemoryRecord> {
        self.scopes.values().flat_map(BTreeMap::values)
    }

    /// Returns the number of keys in a scope.
    pub fn key_count(&self, scope: &MemoryScope) -> usize {
        self.scopes.get(scope).map_or(0, BTreeMap::len)
    }

    /// Whether a call has already changed something.
    pub fn has_call(&self, call: &MemoryCall) -> bool {
        self.calls.contains(call)
    }
}

impl TopicFold for MemoryFold {
    const TOPIC: SystemTopic = SystemTopic::Memory;

    fn head(&self) -> Seq {
        self.head
    }

    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), TopicError> {
        match topic_fold::decode_next(Self::TOPIC, self.head, event)? {
            SystemEvent::MemorySaved(saved) => {
                let keys = self.scopes.entry(saved.scope.clone()).or_default();
                if keys.len() >= MEMORY_KEYS_MAX && !keys.contains_key(&saved.key) {
                    let what = format!("a scope has more than {MEMORY_KEYS_MAX} keys");
                    return Err(TopicError::illegal(Self::TOPIC, event.seq, what));
                }
                let call = saved.by.clone();
                keys.insert(saved.key.clone(), MemoryRecord { saved, saved_at: event.recorded_at });
                self.remember_call(call);
            }
            SystemEvent::MemoryForgotten(MemoryForgotten { scope, key, call, .. }) => {
                let keys = self.scopes.get_mut(&scope);
                if keys.and_then(|keys| keys.remove(&key)).is_none() {
                    let what = format!("there is no memory with the key `{key}`");
                    return Err(TopicError::illegal(Self::TOPIC, event.seq, what));
                }
                self.scopes.retain(|_, keys| !keys.is_empty());
                call.into_iter().for_each(|call| self.remember_call(call));
            }
            other @ (SystemEvent::RunImported(_)
            | SystemEvent::StreamsArchived(_)
            | SystemEvent::StreamsRestored(_)
            | SystemEvent::TokenCreated(_)
            | SystemEvent::TokenRevoked(_)
            | SystemEvent::AdminActed(_)
            | SystemEvent::CallsRefused(_)
            | SystemEvent::ScheduleSet(_)
            | SystemEvent::SchedulePaused(_)
            | SystemEvent::ScheduleRemoved(_)
            | SystemEvent::ScheduleFired(_)
            | SystemEvent::LimitSet(_)
            | SystemEvent::LimitRemoved(_)
            | SystemEvent::NotificationsFollowed(_)
            | SystemEvent::NotificationRaised(_)
            | SystemEvent::NotificationDelivered(_)
            | SystemEvent::NotificationFailed(_)
            | SystemEvent::NotificationDeadLettered(_)
            | SystemEvent::NotificationRetried(_)
            | SystemEvent::NotificationDropped(_)
            | SystemEvent::BudgetSet(_)
            | SystemEvent::BudgetSpent(_)) => {
                return Err(topic_fold::wrong_topic_error(Self::TOPIC, event.seq, &other));
            }
        }
        self.head = event.seq;
        Ok(())
    }
}

impl MemoryFold {
    fn remember_call(&mut self, call: MemoryCall) {
        self.calls.push_back(call);
        if self.calls.len() > CALLS_KNOWN_MAX {
            self.calls.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        content::BlobRef,
        event::TypedEvent as _,
        ids::{Position, QueueName, RunId, Turn},
        message::CallId,
        system::memory_preview,
    };

    fn apply(fold: &mut MemoryFold, event: &SystemEvent) -> Result<(), TopicError> {
        let new = event.encode(Turn(0));
        let seq = fold.head().next();
        fold.apply(&EventRef {
            seq,
            position: Position(seq.0),
            recorded_at: Timestamp(7),
            turn: Turn(0),
            epoch: crate::ids::Epoch(0),
            kind: &new.kind,
            version: new.version,
            payload: new.payload.as_str(),
            prev_hash: crate::ids::EventHash::ZERO,
            hash: crate::ids::EventHash::ZERO,
        })
    }

    fn saved_event(key: &str, value: &str, call: &str) -> SystemEvent {
        MemorySaved {
            scope: MemoryScope::Queue(QueueName::default()),
            key: key.to_owned(),
            value: BlobRef::for_bytes(value.as_bytes()),
            begins: memory_preview(value),
            by: MemoryCall { run: RunId(uuid::Uuid::nil()), call: CallId(call.to_owned()) },
        }
        .into()
    }

    #[test]
    fn last_value_of_a_key_holds_until_it_is_forgotten() {
        let (mut fold, scope) = (MemoryFold::default(), MemoryScope::Queue(QueueName::default()));
        apply(&mut fold, &saved_event("a", "one", "t1-0")).expect("folds");
        apply(&mut fold, &saved_event("a", "two", "t1-1")).expect("folds");
        assert_eq!(fold.get(&scope, "a").map(|one| one.saved.begins.as_str()), Some("two"));
        let call = MemoryCall { run: RunId(uuid::Uuid::nil()), call: CallId("t1-0".to_owned()) };
        assert!(fold.has_call(&call));
        let forget =
            MemoryForgotten { scope: scope.clone(), key: "a".to_owned(), call: None, by: "me".to_owned() };
        apply(&mut fold, &forget.clone().into()).expect("folds");
        assert_eq!((fold.key_count(&scope), fold.all().count()), (0, 0));
        assert!(apply(&mut fold, &forget.into()).is_err(), "it was forgotten");
    }

    #[test]
    fn scope_has_a_key_limit_and_old_calls_expire() {
        let mut fold = MemoryFold::default();
        for n in 0..MEMORY_KEYS_MAX {
            apply(&mut fold, &saved_event(&n.to_string(), "x", &format!("t{n}-0"))).expect("folds");
        }
        assert!(apply(&mut fold, &saved_event("one more", "x", "t")).is_err());
        for n in 0..CALLS_KNOWN_MAX {
            apply(&mut fold, &saved_event("0", "x", &format!("u{n}-0"))).expect("folds");
        }
        assert_eq!(fold.calls.len(), CALLS_KNOWN_MAX);
    }
}

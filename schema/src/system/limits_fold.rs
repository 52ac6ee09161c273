//! Fold of the providers' rate limits.
//!
//! The stream `system/limits` records the limits that are set. The current usage of each provider is one row of the
//! store, updated by each permit: generic cell rate algorithm without bursts. Calls are evenly spaced, so
//! that no time window exceeds the limit by more than one.

use std::collections::BTreeMap;

use super::{LimitRemoved, LimitSet, SystemEvent, TopicError, TopicFold, topic_fold};
use crate::{
    event::EventRef,
    ids::{Seq, SystemTopic, Timestamp},
};

/// The latest limits of each provider, and when they were set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LimitsFold {
    head: Seq,
    by_provider: BTreeMap<String, (LimitSet, Timestamp)>,
}

impl LimitsFold {
    /// Returns all limits, by provider.
    pub fn all(&self) -> impl Iterator<Item = &(LimitSet, Timestamp)> {
        self.by_provider.values()
    }

    /// Returns the limits of a provider.
    pub fn get(&self, provider: &str) -> Option<&(LimitSet, Timestamp)> {
        self.by_provider.get(provider)
    }
}

impl TopicFold for LimitsFold {
    const TOPIC: SystemTopic = SystemTopic::Limits;

    fn head(&self) -> Seq {
        self.head
    }

    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), TopicError> {
        match topic_fold::decode_next(Self::TOPIC, self.head, event)? {
            SystemEvent::LimitSet(set) => {
                self.by_provider.insert(set.provider.clone(), (set, event.recorded_at));
            }
            SystemEvent::LimitRemoved(LimitRemoved { provider, .. }) => {
                if self.by_provider.remove(&provider).is_none() {
                    let what = format!("there is no limit for `{provider}`");
                    return Err(TopicError::illegal(Self::TOPIC, event.seq, what));
                }
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
                return Err(topic_fold::wrong_topic_error(Self::TOPIC, event.seq, &other));
            }
        }
        self.head = event.seq;
        Ok(())
    }
}

//! Fold of schedules: recurring tasks.
//!
//! The stream `system/schedules` is the only place where they are stored. The coordinator derives the next
//! firing from the fold and a time zone table (`decide/schedule/cron.rs`). A firing is recorded here and decided once
//! by its position in the stream, however many coordinators are running.

use std::collections::BTreeMap;

use super::{
    FiringResult, ScheduleFired, ScheduleName, SchedulePaused, ScheduleRemoved, ScheduleSet, SystemEvent,
    TopicError, TopicFold, topic_fold,
};
use crate::{
    event::EventRef,
    ids::{Seq, SystemTopic, TaskId, Timestamp},
};

/// A folded schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct ScheduleRecord {
    /// The event that set it.
    pub set: ScheduleSet,
    /// Sequence number of that event.
    pub set_seq: Seq,
    /// When it was set.
    pub set_at: Timestamp,
    /// Whether it is paused.
    pub paused: bool,
    /// Firings after this time are still due.
    pub due_after: Timestamp,
    /// The last firing.
    pub last_firing: Option<ScheduleFired>,
    /// The task of the last firing that submitted one.
    pub last_task: Option<TaskId>,
}

impl ScheduleRecord {
    /// Returns the id of the task that a firing at `at` submits. It is always the same, so that the task is
    /// submitted once. Like all ids, it starts with a timestamp.
    pub fn task_id_at(&self, at: Timestamp) -> TaskId {
        let told = format!("docket schedule\0{}\0{}\0{}", self.set.name, self.set_seq, at.0);
        let hash = blake3::hash(told.as_bytes());
        let mut rest = [0; 10];
        rest.copy_from_slice(&hash.as_bytes()[..10]);
        let ms = u64::try_from(at.0 / 1000).unwrap_or(0);
        TaskId(uuid::Builder::from_unix_timestamp_millis(ms, &rest).into_uuid())
    }
}

/// All schedules by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SchedulesFold {
    head: Seq,
    by_name: BTreeMap<ScheduleName, ScheduleRecord>,
}

impl SchedulesFold {
    /// Returns all schedules, by name.
    pub fn all(&self) -> impl Iterator<Item = &ScheduleRecord> {
        self.by_name.values()
    }

    /// Returns the schedule of this name.
    pub fn get(&self, name: &ScheduleName) -> Option<&ScheduleRecord> {
        self.by_name.get(name)
    }
}

impl TopicFold for SchedulesFold {
    const TOPIC: SystemTopic = SystemTopic::Schedules;

    fn head(&self) -> Seq {
        self.head
    }

    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), TopicError> {
        let (seq, at) = (event.seq, event.recorded_at);
        let illegal = |what: String| TopicError::illegal(Self::TOPIC, seq, what);
        let nobody = |name: &ScheduleName| illegal(format!("there is no schedule `{name}`"));
        match topic_fold::decode_next(Self::TOPIC, self.head, event)? {
            SystemEvent::ScheduleSet(set) => {
                let before = self.by_name.get(&set.name);
                // If its times are unchanged, a due firing remains due.
                let same = before.filter(|before| {
                    let (was, is) = (&before.set.schedule, &set.schedule);
                    (&was.cron, &was.tz) == (&is.cron, &is.tz)
                });
                let record = ScheduleRecord {
                    set_seq: seq,
                    set_at: at,
                    paused: before.is_some_and(|before| before.paused),
                    due_after: same.map_or(at, |same| same.due_after),
                    last_firing: before.and_then(|before| before.last_firing.clone()),
                    last_task: before.and_then(|before| before.last_task),
                    set,
                };
                self.by_name.insert(record.set.name.clone(), record);
            }
            SystemEvent::SchedulePaused(SchedulePaused { name, paused, .. }) => {
                let record = self.by_name.get_mut(&name).ok_or_else(|| nobody(&name))?;
                // Firings while it was paused were not missed.
                if record.paused && !paused {
                    record.due_after = record.due_after.max(at);
                }
                record.paused = paused;
            }
            SystemEvent::ScheduleRemoved(ScheduleRemoved { name, .. }) => {
                self.by_name.remove(&name).ok_or_else(|| nobody(&name))?;
            }
            SystemEvent::ScheduleFired(fired) => {
                let record = self.by_name.get_mut(&fired.name).ok_or_else(|| nobody(&fired.name))?;
                // A firing before `since` was decided after a fast clock was corrected. A refusal repeats the
                // time of the firing it reverts.
                if fired.by.is_none() && !matches!(fired.gave, FiringResult::Refused(_)) {
                    record.due_after = fired.at;
                }
                match &fired.gave {
                    FiringResult::Task(task) => record.last_task = Some(*task),
                    FiringResult::Refused(_) => record.last_task = None,
                    FiringResult::Skipped(_) => {}
                }
                record.last_firing = Some(fired);
            }
            other @ (SystemEvent::RunImported(_)
            | SystemEvent::StreamsArchived(_)
            | SystemEvent::StreamsRestored(_)
            | SystemEvent::TokenCreated(_)
            | SystemEvent::TokenRevoked(_)
            | SystemEvent::AdminActed(_)
            | SystemEvent::CallsRefused(_)
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
        event::{NewEvent, TypedEvent as _},
        ids::{Epoch, EventHash, Position, Turn},
        system::SkipReason,
    };

    fn fold(schedules: &mut SchedulesFold, at: i64, event: impl Into<SystemEvent>) -> Result<(), TopicError> {
        let NewEvent { kind, version, payload, .. } = event.into().encode(Turn(0));
        schedules.apply(&EventRef {
            seq: schedules.head().next(),
            position: Position(0),
            recorded_at: Timestamp(at),
            turn: Turn(0),
            epoch: Epoch(0),
            kind: &kind,
            version,
            payload: payload.as_str(),
            prev_hash: EventHash::ZERO,
            hash: EventHash::ZERO,
        })
    }

    fn name() -> ScheduleName {
        "nightly".parse().expect("a name")
    }

    fn set_event(cron: &str) -> ScheduleSet {
        let spec = serde_json::json!({ "title": "t", "text": "t", "model": { "provider": "scripted", "name": "s" },
            "base": { "manifest": { "hash": "0".repeat(64), "bytes": 0 }, "tree": "0".repeat(64) } });
        let schedule = serde_json::json!({ "cron": cron, "spec": spec });
        ScheduleSet {
            name: name(),
            schedule: serde_json::from_value(schedule).expect("reads"),
            by: "me".into(),
        }
    }

    fn fired_event(at: i64, gave: FiringResult, by: Option<&str>) -> ScheduleFired {
        ScheduleFired { name: name(), at: Timestamp(at), gave, by: by.map(str::to_owned) }
    }

    #[test]
    fn pending_firings_follow_from_settings_pauses_and_past_firings() {
        let mut all = SchedulesFold::default();
        let since = |all: &SchedulesFold| all.get(&name()).expect("there").due_after.0;
        fold(&mut all, 10, set_event("0 3 * * *")).expect("set");
        let task = all.get(&name()).expect("there").task_id_at(Timestamp(20));
        assert_eq!(since(&all), 10);
        fold(&mut all, 21, fired_event(20, FiringResult::Task(task), None)).expect("fired");
        assert_eq!((since(&all), all.get(&name()).expect("there").last_task), (20, Some(task)));
        fold(&mut all, 25, fired_event(25, FiringResult::Task(task), Some("me"))).expect("by hand");
        assert_eq!(since(&all), 20, "a firing by hand is none of its times");
        fold(&mut all, 30, set_event("0 3 * * *")).expect("the same times");
        assert_eq!(since(&all), 20);
        assert_ne!(all.get(&name()).expect("there").task_id_at(Timestamp(20)), task, "of another setting");
        fold(&mut all, 40, set_event("0 4 * * *")).expect("other times");
        assert_eq!(since(&all), 40);
        let pause = |paused| SchedulePaused { name: name(), paused, by: "me".to_owned() };
        fold(&mut all, 50, pause(true)).expect("rests");
        fold(&mut all, 60, pause(false)).expect("goes on");
        assert_eq!(since(&all), 60);
        fold(&mut all, 70, ScheduleRemoved { name: name(), by: "me".to_owned() }).expect("removed");
        assert!(fold(&mut all, 71, pause(true)).is_err() && all.all().count() == 0);
        assert!(
            fold(&mut all, 71, fired_event(70, FiringResult::Skipped(SkipReason::Missed), None)).is_err()
        );
    }

    #[test]
    fn schedule_names_are_validated_and_task_ids_are_stable() {
        for bad in ["", "-x", "a b", "a/b", ".", &"x".repeat(65)] {
            assert!(bad.parse::<ScheduleName>().is_err(), "{bad}");
        }
        let mut all = SchedulesFold::default();
        fold(&mut all, 10, set_event("0 3 * * *")).expect("set");
        let record = all.get(&name()).expect("there");
        let [one, two] =
            [1_700_000_000_000_000, 1_700_000_060_000_000].map(|at| record.task_id_at(Timestamp(at)));
        assert_eq!((one, one.0.get_version_num()), (record.task_id_at(Timestamp(1_700_000_000_000_000)), 7));
        assert!(one < two, "they sort by their times");
    }
}

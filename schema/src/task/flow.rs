//! What decides between tasks that may be leased: the flow that one belongs to, and its rank within it.
//!
//! A flow is all tasks that a worker can or cannot take alike: of one queue, batch, selector and engine. So a worker
//! finds the next task of each flow that is for it, and never steps over those that are not.

use std::{fmt, str::FromStr};

use super::{Labels, TaskRecord, TaskSpec};
use crate::ids::{BatchId, ParseIdError, QueueName};

/// Aging: a task that has waited for this long goes before one of a priority higher by one that comes now.
/// So whatever its priority, a task is overtaken for a bounded time: 2,000 points, the most there can be between two,
/// are 33 hours.
pub const AGING_MS: u64 = 60_000;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// Queue.
    pub queue: QueueName,
    /// Batch; none = with all others of the queue that have none.
    pub batch: Option<BatchId>,
    /// Labels its worker must have.
    pub selector: Labels,
    /// Engine.
    pub engine: String,
}

impl Flow {
    /// The flow of a task.
    pub fn of(spec: &TaskSpec) -> Self {
        Self {
            queue: spec.queue.clone(),
            batch: spec.batch,
            selector: spec.conditions.selector.clone(),
            engine: spec.engine.clone(),
        }
    }
}

/// As [`FromStr`] reads it, and as it stands in an index. No part but the last can hold a tab.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t", self.queue)?;
        if let Some(batch) = self.batch {
            write!(f, "{}", batch.0.simple())?;
        }
        write!(f, "\t{}\t{}", self.selector, self.engine)
    }
}

impl FromStr for Flow {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let bad = || ParseIdError::new("flow (queue, batch, selector, engine)", text);
        let mut parts = text.splitn(4, '\t');
        let mut next = || parts.next().ok_or_else(bad);
        let (queue, batch, selector, engine) = (next()?, next()?, next()?, next()?);
        let batch = match batch {
            "" => None,
            digits => Some(BatchId(uuid::Uuid::try_parse(digits).map_err(|_| bad())?)),
        };
        Ok(Self { queue: queue.parse()?, batch, selector: selector.parse()?, engine: engine.to_owned() })
    }
}

impl TaskRecord {
    /// Its place within its flow, the lowest first: since when it may be leased, in microseconds, put back by
    /// [`AGING_MS`] for each point of priority.
    pub fn rank(&self) -> i64 {
        let aging_us = AGING_MS as i64 * 1000;
        self.available_at.0.saturating_sub(i64::from(self.spec.priority).saturating_mul(aging_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_read_back() {
        let batch = Some(BatchId(uuid::Uuid::from_u128(7)));
        for (batch, selector, engine) in
            [(None, "", "react"), (batch, "gpu=a100", "plan"), (None, "a=b,c=d", "odd\tname")]
        {
            let selector = selector.parse().expect("labels");
            let flow = Flow { queue: QueueName::default(), batch, selector, engine: engine.to_owned() };
            assert_eq!(flow.to_string().parse(), Ok(flow));
        }
        for bad in ["", "default", "default\t\t", "default\tx\t\treact", "a b\t\t\treact"] {
            assert!(bad.parse::<Flow>().is_err(), "{bad}");
        }
    }
}

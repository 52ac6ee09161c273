//! Which asks may be tried without locks first: one statement that the database itself refuses where the decision
//! behind it does not hold any more.

use crate::store::{Condition, NewTask, ask::Ask};

/// New tasks that depend on nothing but their blobs.
pub(super) fn is_quick_submit(ask: &Ask) -> bool {
    let depends_on_none = |task: &NewTask| task.fork.is_none() && task.spec.conditions.after.is_empty();
    matches!(ask, Ask::Submit { tasks, .. } if tasks.iter().all(depends_on_none))
}

/// Appends that may be sent twice without harm, and that need nothing but heads and events.
pub(super) fn is_quick(ask: &Ask) -> bool {
    match ask {
        Ask::Append(ask) => {
            let repeats = match ask.condition {
                Condition::Holder(..) | Condition::Expected(_) => true,
                Condition::AtHead => false,
            };
            repeats && ask.blobs.is_empty() && ask.names.is_empty()
        }
        Ask::Command(_)
        | Ask::Submit { .. }
        | Ask::Lease { .. }
        | Ask::Heartbeat { .. }
        | Ask::PutBlobs { .. }
        | Ask::TouchBlobs { .. }
        | Ask::Import(_)
        | Ask::Remove(_)
        | Ask::Restore(_)
        | Ask::Term(_)
        | Ask::DropBlobs { .. }
        | Ask::DrainWorker { .. }
        | Ask::TakeInbox { .. }
        | Ask::ActInbox { .. }
        | Ask::Permit(_)
        | Ask::CallEnded { .. }
        | Ask::Reserve { .. }
        | Ask::CountBatch { .. }
        | Ask::Secret { .. }
        | Ask::Rebuild(_) => false,
    }
}

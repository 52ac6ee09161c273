//! Administrative acts in the log: `system/audit`.
//!
//! Invariant: the record of an act that comes over the API is durable before the act begins; where it cannot
//! be written, the act is not done. What is done to the database past the API is noted after.

use docket_schema::{
    event::TypedEvent as _,
    ids::{StreamId, SystemTopic, Turn},
    system::{AdminAct, AdminActed, SystemEvent},
};

use super::{api::Api, call::Call, errors::Refusal};
use crate::store::{Append, AppendError, Condition, Store};

/// The stream.
const STREAM: StreamId = StreamId::System(SystemTopic::Audit);

/// Records what `call` is about to do.
pub(super) async fn record(api: &Api, call: &Call, act: AdminAct) -> Result<(), Refusal> {
    let from = call.peer.map(|peer| peer.to_string());
    let acted = AdminActed { by: call.caller.name(), from, act };
    Ok(write(&*api.store, vec![acted.into()], api.clock.now()).await?)
}

/// Appends to the stream.
pub async fn write(
    store: &dyn Store,
    events: Vec<SystemEvent>,
    now: docket_schema::ids::Timestamp,
) -> Result<(), AppendError> {
    let append = Append {
        stream: STREAM,
        condition: Condition::AtHead,
        events: events.iter().map(|event| event.encode(Turn(0))).collect(),
        blobs: Vec::new(),
        names: Vec::new(),
        now,
    };
    store.append(append).await.map(|_| ())
}

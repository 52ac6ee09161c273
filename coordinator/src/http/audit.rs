//! Administrative acts that come over the API, in `system/audit`.
//!
//! Invariant: the record of such an act is durable before the act begins; where it cannot be written, the act is not
//! done. What is done to the database past the API is noted after.

use docket_schema::system::{AdminAct, AdminActed};

use super::{api::Api, call::Call, errors::Refusal};
use crate::system::write_audit;

/// Records what `call` is about to do.
pub(super) async fn record(api: &Api, call: &Call, act: AdminAct) -> Result<(), Refusal> {
    let from = call.peer.map(|peer| peer.to_string());
    let acted = AdminActed { by: call.caller.name(), from, act };
    Ok(write_audit(&*api.store, vec![acted.into()], api.clock.now()).await?)
}

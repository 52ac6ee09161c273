//! Administrative acts that come over the API, in `system/audit`.
//!
//! Invariant: the record of such an act is durable before the act begins; where it cannot be written, the act is not
//! done. What is done to the database past the API is noted after.

use docket_schema::system::{AdminAct, AdminActed};

use super::{api_error::ApiError, api_state::ApiState, request::ApiRequest};
use crate::system::write_audit;

/// Records what `call` is about to do.
pub(super) async fn record_admin_act(
    api: &ApiState,
    call: &ApiRequest,
    act: AdminAct,
) -> Result<(), ApiError> {
    let from = call.peer.map(|peer| peer.to_string());
    let acted = AdminActed { by: call.caller.log_name(), from, act };
    Ok(write_audit(&*api.store, vec![acted.into()], api.clock.now()).await?)
}

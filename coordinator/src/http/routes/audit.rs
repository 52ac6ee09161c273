//! Records administrative acts of the API in `system/audit`.
//!
//! Invariant: the record is durable before the act begins; if it cannot be written, the act is
//! refused. Acts on the database that bypass the API are recorded afterwards.

use docket_schema::system::{AdminAct, AdminActed};

use crate::http::middleware::{api_error::ApiError, api_state::ApiState, request::ApiRequest};
use crate::system::write_audit;

/// Records what `call` is about to do.
pub(in crate::http) async fn record_admin_act(
    api: &ApiState,
    call: &ApiRequest,
    act: AdminAct,
) -> Result<(), ApiError> {
    let from = call.peer.map(|peer| peer.to_string());
    let acted = AdminActed { by: call.caller.log_name(), from, act };
    Ok(write_audit(&*api.store, vec![acted.into()], api.clock.now()).await?)
}

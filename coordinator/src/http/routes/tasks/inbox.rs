//! Routes of the inbox: list outbox entries that are not tasks (yet), drop them, retry them.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{INBOX_ROWS_MAX, InboxActRequest, InboxList, ProblemCode},
    system::AdminAct,
};

use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        request::{ApiRequest, json_response},
    },
    routes::audit,
};
use crate::store::InboxAction;

/// Maximum characters shown of an entry's content, enough to recognize it.
const SPEC_CHARS_MAX: usize = 2000;

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn list_inbox(api: Arc<ApiState>, _: ApiRequest) -> HandlerResult {
    let mut rows = api.store.list_inbox(INBOX_ROWS_MAX).await?;
    for row in &mut rows {
        row.spec = api.redactor.redact_text(&row.spec).into_owned();
        if let Some((at, _)) = row.spec.char_indices().nth(SPEC_CHARS_MAX) {
            row.spec.truncate(at);
            row.spec.push('…');
        }
        row.submitted_by = api.redactor.redact_text(&row.submitted_by).into_owned();
    }
    json_response(&InboxList { rows })
}

/// Drops an entry. The drop is recorded, because nothing else shows that the entry existed.
pub(in crate::http) async fn drop_inbox_row(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let request: InboxActRequest = call.json()?;
    let row = call.path_param.clone();
    audit::record_admin_act(&api, &call, AdminAct::DropInboxRow { row }).await?;
    act_on_row(&api, &call, InboxAction::Drop).await?;
    json_response(&request)
}

pub(in crate::http) async fn retry_inbox_row(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let request: InboxActRequest = call.json()?;
    act_on_row(&api, &call, InboxAction::Retry).await?;
    json_response(&request)
}

async fn act_on_row(api: &ApiState, call: &ApiRequest, act: InboxAction) -> Result<(), ApiError> {
    if api.store.apply_inbox_action(call.path_param.clone(), act).await? {
        return Ok(());
    }
    let detail = "no such row: it became a task or was dropped; see `docket inbox`";
    Err(ApiError::new(ProblemCode::NotFound, detail).with_field("path"))
}

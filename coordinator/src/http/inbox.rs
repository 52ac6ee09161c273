//! Routes of the inbox: what applications enqueued and what is no task (yet); drop it, look at it once more.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    system::AdminAct,
    wire::{INBOX_ROWS_MAX, InboxActRequest, InboxList, ProblemCode},
};

use super::{
    api::Api,
    audit,
    call::{Call, json},
    errors::Refusal,
};
use crate::store::InboxAct;

/// Of what an application wrote, characters that are shown: enough to know it by.
const SPEC_CHARS_MAX: usize = 2000;

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn list(api: Arc<Api>, _: Call) -> Answered {
    let mut rows = api.store.inbox(INBOX_ROWS_MAX).await?;
    for row in &mut rows {
        row.spec = api.redactor.text(&row.spec).into_owned();
        if let Some((at, _)) = row.spec.char_indices().nth(SPEC_CHARS_MAX) {
            row.spec.truncate(at);
            row.spec.push('…');
        }
        row.submitted_by = api.redactor.text(&row.submitted_by).into_owned();
    }
    json(&InboxList { rows })
}

/// Recorded, for nothing else says that somebody had enqueued it.
pub(super) async fn drop_row(api: Arc<Api>, call: Call) -> Answered {
    let request: InboxActRequest = call.json()?;
    let row = call.param.clone();
    audit::record(&api, &call, AdminAct::DropInboxRow { row }).await?;
    act(&api, &call, InboxAct::Drop).await?;
    json(&request)
}

pub(super) async fn retry(api: Arc<Api>, call: Call) -> Answered {
    let request: InboxActRequest = call.json()?;
    act(&api, &call, InboxAct::Retry).await?;
    json(&request)
}

async fn act(api: &Api, call: &Call, act: InboxAct) -> Result<(), Refusal> {
    if api.store.act_inbox(call.param.clone(), act).await? {
        return Ok(());
    }
    let detail = "there is no such row: it is a task by now, or was dropped; `docket inbox` lists them";
    Err(Refusal::new(ProblemCode::NotFound, detail).field("path"))
}

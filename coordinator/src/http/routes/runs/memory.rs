//! Routes of memory, for runs and for people.
//!
//! Invariant: a run token reaches only the repository of its task's base and its task's queue. The
//! coordinator looks both up; the request names neither.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    api::{
        DeleteMemoryRequest, MemoryKey, MemoryList, MemoryOperation, MemoryQuery, MemoryScopeKind,
        MemoryView, ProblemCode, RunMemoryRequest, RunMemoryResponse,
    },
    ids::RunId,
    system::{
        AdminAct, MEMORY_KEY_CHARS_MAX, MEMORY_REPOSITORY_BYTES_MAX, MEMORY_VALUE_BYTES_MAX, MemoryCall,
        MemoryRecord, MemoryScope, is_memory_key,
    },
};

use super::run_views;
use crate::http::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        request::{ApiRequest, json_response},
    },
    routes::audit,
};
use crate::system::{ForgetOutcome, MemoryAddress, MemoryError};

type HandlerResult = Result<Response<Body>, ApiError>;

/// Maximum number of listed keys.
const LISTED_KEYS_MAX: usize = 10_000;
/// Maximum length of a call ID in bytes, because it is stored.
const CALL_BYTES_MAX: usize = 64;

pub(in crate::http) async fn handle_run_memory(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let run: RunId = call.id()?;
    ApiState::require_run_token(&call.caller, run)?;
    api.check_epoch_in_force(&call.caller).await?;
    let request: RunMemoryRequest = call.json()?;
    if request.call.0.is_empty() || request.call.0.len() > CALL_BYTES_MAX {
        let detail = format!("`call` has 1 to {CALL_BYTES_MAX} bytes: the call of the run that asks");
        return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("call"));
    }
    let scope = resolve_scope(&api, run, request.scope).await?;
    let by = MemoryCall { run, call: request.call };
    let (store, now) = (&*api.store, api.clock.now());
    json_response(&match request.act {
        MemoryOperation::Save { key, value } => {
            let key = check_memory_key(&key)?;
            // The worker redacted its secrets before; the coordinator redacts those it knows.
            if api.redactor.redact_text(key) != key {
                let detail = "the key holds a secret: call it otherwise";
                return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("act"));
            }
            let value = api.redactor.redact_text(&value);
            if value.len() > MEMORY_VALUE_BYTES_MAX {
                let detail =
                    format!("the value has {} bytes, more than {MEMORY_VALUE_BYTES_MAX}", value.len());
                return Err(ApiError::new(ProblemCode::TooLarge, detail).with_field("act"));
            }
            let keys = api.memory.save(store, now, MemoryAddress { scope: &scope, key }, &value, by).await?;
            RunMemoryResponse::Saved { keys: u32::try_from(keys).unwrap_or(u32::MAX) }
        }
        MemoryOperation::Recall { key: Some(key) } => {
            let address = MemoryAddress { scope: &scope, key: check_memory_key(&key)? };
            match api.memory.get(store, address).await? {
                Some(found) => RunMemoryResponse::Recalled { value: read_memory_value(&api, &found).await? },
                None => RunMemoryResponse::Absent,
            }
        }
        MemoryOperation::Recall { key: None } => {
            let all = api.memory.list(store, Some(&scope), LISTED_KEYS_MAX).await?;
            let keys = all.into_iter().map(|MemoryRecord { saved, .. }| MemoryKey {
                key: saved.key,
                bytes: saved.value.bytes,
                begins: saved.begins,
            });
            RunMemoryResponse::Keys { keys: keys.collect() }
        }
        MemoryOperation::Delete { key } => {
            let address = MemoryAddress { scope: &scope, key: check_memory_key(&key)? };
            match api.memory.forget(store, now, address, Some(by), format!("run {run}")).await? {
                ForgetOutcome::Forgotten => RunMemoryResponse::Deleted,
                ForgetOutcome::NotFound => RunMemoryResponse::Absent,
            }
        }
    })
}

pub(in crate::http) async fn list_memories(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let MemoryQuery { repository, queue, key } = call.query()?;
    let scope = match (repository, queue) {
        (Some(_), Some(_)) => {
            let detail = "give `repository` or `queue`, not both";
            return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("queue"));
        }
        (Some(repository), None) => Some(MemoryScope::Repository(repository)),
        (None, Some(queue)) => {
            Some(MemoryScope::Queue(queue.parse().map_err(|error: docket_schema::ids::ParseIdError| {
                ApiError::new(ProblemCode::InvalidRequest, error.to_string()).with_field("queue")
            })?))
        }
        (None, None) => None,
    };
    let memories = match (scope, key) {
        (None, Some(_)) => {
            let detail = "`key` is of a `repository` or a `queue`: give one of them";
            return Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("key"));
        }
        (Some(scope), Some(key)) => {
            let address = MemoryAddress { scope: &scope, key: check_memory_key(&key)? };
            let found = api.memory.get(&*api.store, address).await?;
            let found = found.ok_or_else(|| memory_not_found(&key))?;
            let value = read_memory_value(&api, &found).await?;
            vec![MemoryView { value: Some(value), ..memory_view(found) }]
        }
        (scope, None) => {
            let all = api.memory.list(&*api.store, scope.as_ref(), LISTED_KEYS_MAX).await?;
            all.into_iter().map(memory_view).collect()
        }
    };
    json_response(&MemoryList { memories })
}

pub(in crate::http) async fn delete_memory(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let DeleteMemoryRequest { scope, key } = call.json()?;
    let address = MemoryAddress { scope: &scope, key: check_memory_key(&key)? };
    let found = api.memory.get(&*api.store, address).await?.ok_or_else(|| memory_not_found(&key))?;
    audit::record_admin_act(&api, &call, AdminAct::ForgetMemory { key: key.clone() }).await?;
    let by = call.caller.log_name();
    match api.memory.forget(&*api.store, api.clock.now(), address, None, by).await? {
        ForgetOutcome::Forgotten => json_response(&MemoryList { memories: vec![memory_view(found)] }),
        ForgetOutcome::NotFound => Err(memory_not_found(&key)),
    }
}

/// Returns the scope of a run, looked up and never taken from its request.
async fn resolve_scope(api: &ApiState, run: RunId, name: MemoryScopeKind) -> Result<MemoryScope, ApiError> {
    let task = run_views::find_run_view(api, run).await?.task;
    let absent = || ApiError::new(ProblemCode::NotFound, format!("there is no task of run {run}"));
    let (record, _) = api.store.get_task(task).await?.ok_or_else(absent)?;
    match name {
        MemoryScopeKind::Queue => Ok(MemoryScope::Queue(record.spec.queue)),
        MemoryScopeKind::Repository => {
            let source = record.spec.base.git.map(|git| git.source);
            let source = source.filter(|source| (1..=MEMORY_REPOSITORY_BYTES_MAX).contains(&source.len()));
            source.map(MemoryScope::Repository).ok_or_else(|| {
                let detail = "this task has no repository: only its queue has a memory (scope `queue`)";
                ApiError::new(ProblemCode::InvalidRequest, detail).with_field("scope")
            })
        }
    }
}

async fn read_memory_value(api: &ApiState, found: &MemoryRecord) -> Result<String, ApiError> {
    let bytes = api.store.read_blob(found.saved.value.hash).await?;
    let text = bytes.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
    text.ok_or_else(|| {
        let detail = "the value of this key is not stored; run `docket verify`";
        ApiError::new(ProblemCode::Corrupt, detail)
    })
}

fn memory_view(MemoryRecord { saved, saved_at }: MemoryRecord) -> MemoryView {
    MemoryView {
        scope: saved.scope,
        key: saved.key,
        bytes: saved.value.bytes,
        begins: saved.begins,
        value: None,
        run: saved.by.run,
        saved_at,
    }
}

fn check_memory_key(key: &str) -> Result<&str, ApiError> {
    if is_memory_key(key) {
        return Ok(key);
    }
    let detail =
        format!("a key is one line of 1 to {MEMORY_KEY_CHARS_MAX} characters, without spaces at its ends");
    Err(ApiError::new(ProblemCode::InvalidRequest, detail).with_field("key"))
}

fn memory_not_found(key: &str) -> ApiError {
    let detail = format!("no memory has the key `{key}`; `docket memory list` shows all keys");
    ApiError::new(ProblemCode::NotFound, detail).with_field("key")
}

impl From<MemoryError> for ApiError {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Fold(error) => error.into(),
            MemoryError::Full => Self::new(ProblemCode::TooLarge, error.to_string()),
        }
    }
}

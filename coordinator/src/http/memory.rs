//! Routes of what is remembered beyond runs: a run's own, and people's.
//!
//! Invariant: a run's token reaches the repository of its task's base and the queue of its task, and no other scope:
//! it names neither, the coordinator looks them up.

use std::sync::Arc;

use axum::{body::Body, http::Response};
use docket_schema::{
    ids::RunId,
    system::{
        AdminAct, MEMORY_KEY_CHARS_MAX, MEMORY_REPOSITORY_BYTES_MAX, MEMORY_VALUE_BYTES_MAX, MemoryCall,
        MemoryScope, Remembered, is_memory_key,
    },
    wire::{
        DeleteMemoryRequest, MemoryAct, MemoryKey, MemoryList, MemoryQuery, MemoryView, ProblemCode,
        RunMemoryRequest, RunMemoryResponse, ScopeName,
    },
};

use super::{
    api::Api,
    audit,
    call::{Call, json},
    errors::Refusal,
    runs,
};
use crate::system::{Forgotten, MemoryAddress, MemoryError};

type Answered = Result<Response<Body>, Refusal>;

/// Most that one list names.
const LISTED_MAX: usize = 10_000;
/// Longest name of a call, in bytes: it is kept.
const CALL_BYTES_MAX: usize = 64;

pub(super) async fn of_run(api: Arc<Api>, call: Call) -> Answered {
    let run: RunId = call.id()?;
    Api::must_be_of(&call.caller, run)?;
    api.must_be_in_force(&call.caller).await?;
    let request: RunMemoryRequest = call.json()?;
    if request.call.0.is_empty() || request.call.0.len() > CALL_BYTES_MAX {
        let detail = format!("`call` has 1 to {CALL_BYTES_MAX} bytes: the call of the run that asks");
        return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("call"));
    }
    let scope = scope_of(&api, run, request.scope).await?;
    let by = MemoryCall { run, call: request.call };
    let (store, now) = (&*api.store, api.clock.now());
    json(&match request.act {
        MemoryAct::Save { key, value } => {
            let key = good_key(&key)?;
            // Struck out by the worker before; what this coordinator knows besides is struck out here.
            if api.redactor.text(key) != key {
                let detail = "the key holds a secret: call it otherwise";
                return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("act"));
            }
            let value = api.redactor.text(&value);
            if value.len() > MEMORY_VALUE_BYTES_MAX {
                let detail =
                    format!("the value has {} bytes, more than {MEMORY_VALUE_BYTES_MAX}", value.len());
                return Err(Refusal::new(ProblemCode::TooLarge, detail).field("act"));
            }
            let keys = api.memory.save(store, now, MemoryAddress { scope: &scope, key }, &value, by).await?;
            RunMemoryResponse::Saved { keys: u32::try_from(keys).unwrap_or(u32::MAX) }
        }
        MemoryAct::Recall { key: Some(key) } => {
            let address = MemoryAddress { scope: &scope, key: good_key(&key)? };
            match api.memory.get(store, address).await? {
                Some(found) => RunMemoryResponse::Recalled { value: value_of(&api, &found).await? },
                None => RunMemoryResponse::Absent,
            }
        }
        MemoryAct::Recall { key: None } => {
            let all = api.memory.list(store, Some(&scope), LISTED_MAX).await?;
            let keys = all.into_iter().map(|Remembered { saved, .. }| MemoryKey {
                key: saved.key,
                bytes: saved.value.bytes,
                begins: saved.begins,
            });
            RunMemoryResponse::Keys { keys: keys.collect() }
        }
        MemoryAct::Delete { key } => {
            let address = MemoryAddress { scope: &scope, key: good_key(&key)? };
            match api.memory.forget(store, now, address, Some(by), format!("run {run}")).await? {
                Forgotten::Yes => RunMemoryResponse::Deleted,
                Forgotten::Absent => RunMemoryResponse::Absent,
            }
        }
    })
}

pub(super) async fn list(api: Arc<Api>, call: Call) -> Answered {
    let MemoryQuery { repository, queue, key } = call.query()?;
    let scope = match (repository, queue) {
        (Some(_), Some(_)) => {
            let detail = "give `repository` or `queue`, not both";
            return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("queue"));
        }
        (Some(repository), None) => Some(MemoryScope::Repository(repository)),
        (None, Some(queue)) => {
            Some(MemoryScope::Queue(queue.parse().map_err(|error: docket_schema::ids::ParseIdError| {
                Refusal::new(ProblemCode::InvalidRequest, error.to_string()).field("queue")
            })?))
        }
        (None, None) => None,
    };
    let memories = match (scope, key) {
        (None, Some(_)) => {
            let detail = "`key` is of a `repository` or a `queue`: give one of them";
            return Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("key"));
        }
        (Some(scope), Some(key)) => {
            let address = MemoryAddress { scope: &scope, key: good_key(&key)? };
            let found = api.memory.get(&*api.store, address).await?;
            let found = found.ok_or_else(|| absent(&key))?;
            let value = value_of(&api, &found).await?;
            vec![MemoryView { value: Some(value), ..view(found) }]
        }
        (scope, None) => {
            let all = api.memory.list(&*api.store, scope.as_ref(), LISTED_MAX).await?;
            all.into_iter().map(view).collect()
        }
    };
    json(&MemoryList { memories })
}

pub(super) async fn delete(api: Arc<Api>, call: Call) -> Answered {
    let DeleteMemoryRequest { scope, key } = call.json()?;
    let address = MemoryAddress { scope: &scope, key: good_key(&key)? };
    let found = api.memory.get(&*api.store, address).await?.ok_or_else(|| absent(&key))?;
    audit::record(&api, &call, AdminAct::ForgetMemory { key: key.clone() }).await?;
    let by = call.caller.name();
    match api.memory.forget(&*api.store, api.clock.now(), address, None, by).await? {
        Forgotten::Yes => json(&MemoryList { memories: vec![view(found)] }),
        Forgotten::Absent => Err(absent(&key)),
    }
}

/// The scope that a run means: looked up, never taken from its words.
async fn scope_of(api: &Api, run: RunId, name: ScopeName) -> Result<MemoryScope, Refusal> {
    let task = runs::view(api, run).await?.task;
    let absent = || Refusal::new(ProblemCode::NotFound, format!("there is no task of run {run}"));
    let (record, _) = api.store.task(task).await?.ok_or_else(absent)?;
    match name {
        ScopeName::Queue => Ok(MemoryScope::Queue(record.spec.queue)),
        ScopeName::Repository => {
            let source = record.spec.base.git.map(|git| git.source);
            let source = source.filter(|source| (1..=MEMORY_REPOSITORY_BYTES_MAX).contains(&source.len()));
            source.map(MemoryScope::Repository).ok_or_else(|| {
                let detail = "this task has no repository: only its queue has a memory (scope `queue`)";
                Refusal::new(ProblemCode::InvalidRequest, detail).field("scope")
            })
        }
    }
}

async fn value_of(api: &Api, found: &Remembered) -> Result<String, Refusal> {
    let bytes = api.store.blob(found.saved.value.hash).await?;
    let text = bytes.and_then(|bytes| String::from_utf8(bytes.to_vec()).ok());
    text.ok_or_else(|| {
        let detail = "the value of this key is not stored; run `docket verify`";
        Refusal::new(ProblemCode::Corrupt, detail)
    })
}

fn view(Remembered { saved, saved_at }: Remembered) -> MemoryView {
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

fn good_key(key: &str) -> Result<&str, Refusal> {
    if is_memory_key(key) {
        return Ok(key);
    }
    let detail =
        format!("a key is one line of 1 to {MEMORY_KEY_CHARS_MAX} characters, without spaces at its ends");
    Err(Refusal::new(ProblemCode::InvalidRequest, detail).field("key"))
}

fn absent(key: &str) -> Refusal {
    let detail = format!("nothing is remembered under `{key}`; `docket memory list` shows what is");
    Refusal::new(ProblemCode::NotFound, detail).field("key")
}

impl From<MemoryError> for Refusal {
    fn from(error: MemoryError) -> Self {
        match error {
            MemoryError::Fold(error) => error.into(),
            MemoryError::Full => Self::new(ProblemCode::TooLarge, error.to_string()),
        }
    }
}

//! Memory of runs beyond their end: the fold of `system/memory`. Values are blobs, read on demand.
//!
//! Invariant: a run's call changes something once, however often it is sent.

use docket_schema::{
    content::BlobRef,
    ids::Timestamp,
    system::{
        MEMORY_KEYS_MAX, MemoryCall, MemoryFold, MemoryForgotten, MemoryRecord, MemorySaved, MemoryScope,
        SystemEvent, memory_preview,
    },
};

use super::{CachedFold, FoldError, TailedFold};
use crate::store::{NewBlob, Store};

impl CachedFold for MemoryFold {
    const UNREADABLE: &'static str =
        "what the log remembers cannot be read; `docket verify` says more, a newer docket may know it";
    const CONTENDED: &'static str = "many change what is remembered at once; try again";
}

/// Why a value could not be saved.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The stream could not be read or appended to.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// The scope has the maximum number of keys.
    #[error(
        "{MEMORY_KEYS_MAX} keys are remembered here, and there is no room for another: forget some first"
    )]
    Full,
}

/// Outcome of forgetting a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForgetOutcome {
    /// Forgotten now, or earlier by the same call.
    Forgotten,
    /// Nothing was stored under the key.
    NotFound,
}

/// A key in a scope.
#[derive(Debug, Clone, Copy)]
pub struct MemoryAddress<'a> {
    pub scope: &'a MemoryScope,
    pub key: &'a str,
}

/// The memory of runs; see the module.
#[derive(Debug, Default)]
pub struct MemoryTable(TailedFold<MemoryFold>);

impl MemoryTable {
    /// Returns the entry of a key.
    pub async fn get(
        &self,
        store: &dyn Store,
        MemoryAddress { scope, key }: MemoryAddress<'_>,
    ) -> Result<Option<MemoryRecord>, FoldError> {
        self.0.catch_up(store).await?;
        Ok(self.0.with_fold(|known| known.get(scope, key).cloned()))
    }

    /// Lists the entries of a scope, or of all, by scope and key; at most `most`.
    pub async fn list(
        &self,
        store: &dyn Store,
        scope: Option<&MemoryScope>,
        most: usize,
    ) -> Result<Vec<MemoryRecord>, FoldError> {
        self.0.catch_up(store).await?;
        Ok(self.0.with_fold(|known| match scope {
            Some(scope) => known.scope_records(scope).take(most).cloned().collect(),
            None => known.all().take(most).cloned().collect(),
        }))
    }

    /// Saves a value; returns the number of keys in its scope.
    pub async fn save(
        &self,
        store: &dyn Store,
        now: Timestamp,
        MemoryAddress { scope, key }: MemoryAddress<'_>,
        value: &str,
        by: MemoryCall,
    ) -> Result<usize, MemoryError> {
        let blob = BlobRef::for_bytes(value.as_bytes());
        let decide = |known: &MemoryFold| {
            if known.has_call(&by) {
                return Ok(None);
            }
            if known.get(scope, key).is_none() && known.key_count(scope) >= MEMORY_KEYS_MAX {
                return Err(MemoryError::Full);
            }
            let saved = MemorySaved {
                scope: scope.clone(),
                key: key.to_owned(),
                value: blob,
                begins: memory_preview(value),
                by: by.clone(),
            };
            Ok(Some(SystemEvent::from(saved)))
        };
        let bytes = NewBlob { blob, bytes: value.as_bytes().to_vec().into() };
        self.0.change_with_blobs(store, now, &[bytes], decide).await?;
        Ok(self.0.with_fold(|known| known.key_count(scope)))
    }

    /// Forgets a key; `call` is the run's call, `by` the actor.
    pub async fn forget(
        &self,
        store: &dyn Store,
        now: Timestamp,
        MemoryAddress { scope, key }: MemoryAddress<'_>,
        call: Option<MemoryCall>,
        by: String,
    ) -> Result<ForgetOutcome, FoldError> {
        let mut found = ForgetOutcome::Forgotten;
        let decide = |known: &MemoryFold| {
            found = ForgetOutcome::Forgotten;
            if call.as_ref().is_some_and(|call| known.has_call(call)) {
                return Ok::<_, FoldError>(None);
            }
            if known.get(scope, key).is_none() {
                found = ForgetOutcome::NotFound;
                return Ok(None);
            }
            let (scope, key) = (scope.clone(), key.to_owned());
            let by = by.clone();
            Ok(Some(SystemEvent::from(MemoryForgotten { scope, key, call: call.clone(), by })))
        };
        self.0.change(store, now, decide).await?;
        Ok(found)
    }
}

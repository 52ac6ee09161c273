//! Checks the base of a task before the task enters the log.
//!
//! A base names a manifest blob that the submitter made. Every worker and every reading command writes files from it,
//! some of them as root, so a manifest that no commit could have given is refused here, where the submitter learns
//! which field is wrong. Manifests are content-addressed: one that was read once needs no second look. Used by every
//! route that takes a task, and by the inbox.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use docket_schema::{ids::BlobHash, snapshot::Manifest, task::TaskSpec};

use super::tasks::Unsound;
use crate::store::{Store, StoreError};

/// Hashes of manifests that were read and are sound. Queues submit many tasks of one commit.
static SOUND: Mutex<BTreeSet<BlobHash>> = Mutex::new(BTreeSet::new());

/// Hashes kept, 32 bytes each; beyond that the set starts again from empty.
const SOUND_MAX: usize = 10_000;

/// Reads the manifest that a task starts from. One that is not stored is left to the store, which refuses the task
/// for it in the same transaction.
///
/// # Errors
/// [`StoreError`]: the store cannot be read. The inner error names the field that is wrong.
pub(crate) async fn check_base(
    store: &dyn Store,
    spec: &TaskSpec,
) -> Result<Result<(), Unsound>, StoreError> {
    let hash = spec.base.manifest.hash;
    if sound().contains(&hash) {
        return Ok(Ok(()));
    }
    let Some(bytes) = store.blob(hash).await? else { return Ok(Ok(())) };
    if let Err(error) = Manifest::decode(&bytes) {
        let must = format!("`base.manifest` must be a list of files as `docket submit` writes it: {error}");
        return Ok(Err(Unsound { field: "base.manifest".to_owned(), must }));
    }
    let mut known = sound();
    if known.len() >= SOUND_MAX {
        known.clear();
    }
    known.insert(hash);
    Ok(Ok(()))
}

fn sound() -> std::sync::MutexGuard<'static, BTreeSet<BlobHash>> {
    SOUND.lock().unwrap_or_else(PoisonError::into_inner)
}

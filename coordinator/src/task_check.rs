//! Checks a task before it enters the log, whoever brings it: the API, a schedule or the inbox.
//!
//! A base names a manifest blob that the submitter made. Every worker and every reading command writes files from it,
//! some of them as root, so a manifest that no commit could have given is refused here, where the submitter learns
//! which field is wrong. Manifests are content-addressed: one that was read once needs no second look.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use docket_schema::{
    ids::BlobHash,
    policy::Policy,
    redact::Redactor,
    snapshot::Manifest,
    task::{TaskSpec, check_models},
};

use crate::store::{Store, StoreError};

/// A field of a task that breaks a rule.
#[derive(Debug)]
pub(crate) struct InvalidTaskField {
    pub(crate) field: String,
    /// With the field's name.
    pub(crate) requirement: String,
}

/// A task as it may stand in the log: checked, and without secrets, whoever wrote it.
pub(crate) fn check_and_redact_spec(
    mut spec: TaskSpec,
    redactor: &Redactor,
) -> Result<TaskSpec, InvalidTaskField> {
    spec.policy.as_ref().map_or(Ok(()), Policy::check).map_err(|error| InvalidTaskField {
        field: format!("policy.{}", error.field),
        requirement: error.to_string(),
    })?;
    spec.check().and_then(|()| check_models(&spec)).map_err(|error| InvalidTaskField {
        field: error.field.to_owned(),
        requirement: error.to_string(),
    })?;
    spec.title = redactor.redact_text(&spec.title).into_owned();
    spec.text = redactor.redact_text(&spec.text).into_owned();
    spec.policy = spec.policy.map(|policy| redact_policy(policy, redactor));
    for role in &mut spec.roles {
        role.prompt = role.prompt.take().map(|words| redactor.redact_text(&words).into_owned());
    }
    Ok(spec)
}

/// The policy without secrets in its reasons.
pub(crate) fn redact_policy(mut policy: Policy, redactor: &Redactor) -> Policy {
    for rule in &mut policy.rules {
        rule.reason = redactor.redact_text(&rule.reason).into_owned();
    }
    policy
}

/// Hashes of manifests that were read and are sound. Queues submit many tasks of one commit.
static VALID_MANIFESTS: Mutex<BTreeSet<BlobHash>> = Mutex::new(BTreeSet::new());

/// Hashes kept, 32 bytes each; beyond that the set starts again from empty.
const VALID_MANIFESTS_MAX: usize = 10_000;

/// Reads the manifest that a task starts from. One that is not stored is left to the store, which refuses the task
/// for it in the same transaction. The inner error names the field that is wrong.
pub(crate) async fn check_base(
    store: &dyn Store,
    spec: &TaskSpec,
) -> Result<Result<(), InvalidTaskField>, StoreError> {
    let hash = spec.base.manifest.hash;
    if valid_manifests().contains(&hash) {
        return Ok(Ok(()));
    }
    let Some(bytes) = store.read_blob(hash).await? else { return Ok(Ok(())) };
    if let Err(error) = Manifest::decode(&bytes) {
        let must = format!("`base.manifest` must be a list of files as `docket submit` writes it: {error}");
        return Ok(Err(InvalidTaskField { field: "base.manifest".to_owned(), requirement: must }));
    }
    let mut known = valid_manifests();
    if known.len() >= VALID_MANIFESTS_MAX {
        known.clear();
    }
    known.insert(hash);
    Ok(Ok(()))
}

fn valid_manifests() -> std::sync::MutexGuard<'static, BTreeSet<BlobHash>> {
    VALID_MANIFESTS.lock().unwrap_or_else(PoisonError::into_inner)
}

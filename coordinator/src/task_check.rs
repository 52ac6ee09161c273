//! Checks of a task before it enters the log, from the API, a schedule or the inbox.
//!
//! A base names a manifest blob made by the submitter. Every worker and every reading command writes files
//! from it, some of them as root, so a manifest that no commit could have produced is refused here, where the
//! submitter learns which field is wrong. Manifests are content-addressed, so each is checked only once.

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

/// An invalid field of a task.
#[derive(Debug)]
pub(crate) struct InvalidTaskField {
    pub(crate) field: String,
    /// The violated requirement, with the field's name.
    pub(crate) requirement: String,
}

/// Checks a task and removes secrets from it before it is recorded.
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

/// Removes secrets from the policy's reasons.
pub(crate) fn redact_policy(mut policy: Policy, redactor: &Redactor) -> Policy {
    for rule in &mut policy.rules {
        rule.reason = redactor.redact_text(&rule.reason).into_owned();
    }
    policy
}

/// Hashes of manifests known to be valid. Queues submit many tasks of one commit.
static VALID_MANIFESTS: Mutex<BTreeSet<BlobHash>> = Mutex::new(BTreeSet::new());

/// Most hashes kept, 32 bytes each; beyond this the set is cleared.
const VALID_MANIFESTS_MAX: usize = 10_000;

/// Checks the manifest that a task starts from. If it is not stored, the store refuses the task in the same
/// transaction. The inner error names the invalid field.
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
        let must = format!(
            "`base.manifest` must be a file list in the format that `docket submit` writes: \
             {error}"
        );
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

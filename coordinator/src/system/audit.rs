//! Appends to `system/audit`: administrative acts, and calls that were refused for their tokens.

use docket_schema::{
    ids::{SystemTopic, Timestamp},
    system::SystemEvent,
};

use super::system_append;
use crate::store::{AppendCondition, AppendError, Store};

/// Appends at whatever head the stream has.
pub async fn write_audit(
    store: &dyn Store,
    events: Vec<SystemEvent>,
    now: Timestamp,
) -> Result<(), AppendError> {
    store
        .append(system_append(SystemTopic::Audit, AppendCondition::AtHead, &events, &[], now))
        .await
        .map(drop)
}

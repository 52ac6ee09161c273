//! Appends to `system/audit`: administrative actions, and requests rejected for their tokens.

use docket_schema::{
    ids::{SystemTopic, Timestamp},
    system::SystemEvent,
};

use super::system_append;
use crate::store::{AppendCondition, AppendError, Store};

/// Appends at any head of the stream.
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

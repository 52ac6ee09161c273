//! Recorded trees looked at: what stands in one, what differs, who wrote a line; and one handed to a person.

pub(super) mod blame;
pub(super) mod checkout;
pub(super) mod manifest_diff;
pub(super) mod path_history;
pub(super) mod path_state;

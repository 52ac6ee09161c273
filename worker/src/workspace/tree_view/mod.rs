//! Read-only views of recorded trees: path states, differences, line authors and checkouts.

pub(super) mod blame;
pub(super) mod checkout;
pub(super) mod manifest_diff;
pub(super) mod path_history;
pub(super) mod path_state;

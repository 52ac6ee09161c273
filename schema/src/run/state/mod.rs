//! The state of a run: `RunState` and its parts, each the fold of some events.

pub(super) mod approvals;
pub(super) mod change_attribution;
pub(crate) mod checks;
pub(super) mod compaction;
pub(super) mod delegation;
pub(super) mod engine_state;
pub(super) mod failures;
pub(super) mod model_attempts;
pub(super) mod read_index;
pub(super) mod run_ledger;
pub(super) mod run_stage;
pub(super) mod run_state;
pub(super) mod run_totals;
pub(super) mod transcript;

pub use approvals::*;
pub use change_attribution::*;
pub use checks::*;
pub use compaction::*;
pub use delegation::*;
pub use engine_state::*;
pub use failures::*;
pub use model_attempts::*;
pub use read_index::*;
pub use run_ledger::*;
pub use run_stage::*;
pub use run_state::*;
pub use run_totals::*;
pub use transcript::*;

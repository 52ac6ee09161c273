//! The state of a run: `RunState`, and the parts that it consists of, each the fold of some events.

pub(super) mod asking;
pub(crate) mod checks;
pub(super) mod compaction;
pub(super) mod delegation;
pub(super) mod hands;
pub(super) mod ledger;
pub(super) mod permits;
pub(super) mod reads;
pub(super) mod run_state;
pub(super) mod stage;
pub(super) mod totals;
pub(super) mod transcript;
pub(super) mod troubles;
pub(super) mod work;

pub use asking::*;
pub use checks::*;
pub use compaction::*;
pub use delegation::*;
pub use hands::*;
pub use ledger::*;
pub use permits::*;
pub use reads::*;
pub use run_state::*;
pub use stage::*;
pub use totals::*;
pub use transcript::*;
pub use troubles::*;
pub use work::*;

//! What every engine is made of: decisions, the engine's own interface, and what the pins of a run and its log tell of the
//! next model call. Knows no rule of any engine.

pub(super) mod call_class;
pub(super) mod call_options;
pub(super) mod decision;
pub(super) mod definition;
pub(super) mod limits;
pub(super) mod model_choice;
pub(super) mod nudges;
pub(super) mod request_size;

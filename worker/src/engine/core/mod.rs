//! Building blocks of engines: decisions, the engine interface, and the parameters of the next model call derived
//! from a run's pins and log. Independent of the rules of any engine.

pub(super) mod call_class;
pub(super) mod call_options;
pub(super) mod decision;
pub(super) mod definition;
pub(super) mod limits;
pub(super) mod model_choice;
pub(super) mod nudges;
pub(super) mod request_size;

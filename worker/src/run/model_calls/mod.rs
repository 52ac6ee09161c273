//! Model calls: the request, the client that sends it, and the event that records the reply.

pub(super) mod effects;
pub(super) mod model_answer;
pub(super) mod model_clients;
pub(super) mod model_request;

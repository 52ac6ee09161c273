//! The scripted model server: Anthropic Messages, OpenAI Chat Completions and Responses over real HTTP
//! on loopback. It plays the same scripts as the `scripted` model, with faults that only a network
//! has.
//!
//! It is strict: it refuses every request that the real provider would refuse, so that a passing test
//! says something about the real one.

mod anthropic;
mod openai;
mod reply;
mod request_check;
mod responses;
mod responses_check;
mod server;

pub use server::{ModelServer, RecordedRequest};

#[cfg(test)]
mod compaction_tests;
#[cfg(test)]
mod tests;

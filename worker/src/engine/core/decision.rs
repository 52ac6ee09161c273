//! Decisions, and their canonical hash.
//!
//! A decision refers to large parts by blob and to its conversation by one digest: its hash costs the same however
//! long the run is.

use docket_schema::{
    content::{BlobRef, Content},
    ids::{DecisionHash, Turn},
    message::{CallId, ModelRef},
    run::{
        BlockedCall, BlockedReason, CallPurpose, Compacted, Conversation, EngineFact, FailureKind, GateSpec,
        GateStep, PolicyVerdict, ReasoningEffort, RunOutcome, RunPhase, RunState,
    },
    tool::RecoveryClass,
};
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

/// The next step of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// The phase of the run from here on.
    pub phase: RunPhase,
    /// The action.
    pub act: Action,
}

/// What the run executor is to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Call a model.
    CallModel(Box<ModelCall>),
    /// Run tools: reads in parallel, changes in order.
    RunTools(Vec<PlannedTool>),
    /// Run the final checks, or fix them, in order.
    RunGates(Vec<PlannedGate>),
    /// Shorten the conversation, and decide again.
    Compact(Box<Compacted>),
    /// Record derived facts, start a role, or both; and decide again.
    Conclude(Box<EngineUpdate>),
    /// Rest until the run is resumed.
    Pause,
    /// Wait for a person.
    Block {
        /// The question.
        question: Content,
        /// The cause.
        why: BlockedReason,
        /// The call that policy asks about.
        #[serde(skip_serializing_if = "Option::is_none")]
        about: Option<BlockedCall>,
    },
    /// End the run.
    End {
        /// The outcome.
        result: RunOutcome,
        /// The model's final message.
        summary: Option<Content>,
    },
}

/// Facts derived from the recorded state.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct EngineUpdate {
    /// Facts, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<EngineFact>,
    /// The role to start after them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<RoleStart>,
}

/// The start of a role.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoleStart {
    /// Its name.
    pub role: String,
    /// Its purpose, in one line.
    pub about: String,
    /// The first message, part by part.
    pub opening: Vec<Content>,
}

/// A model call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelCall {
    /// docket's id of the call.
    pub call: CallId,
    /// Its purpose.
    pub purpose: CallPurpose,
    /// The turn it opens or retries.
    pub turn: Turn,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// The model to call.
    pub model: ModelRef,
    /// The active role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// System prompt.
    pub system: BlobRef,
    /// Tool specifications.
    pub tools: BlobRef,
    /// The conversation.
    #[serde(serialize_with = "serialize_digest")]
    pub messages: Conversation,
    /// Runtime text added at its end.
    pub nudge: Option<String>,
    /// Longest reply, in tokens.
    pub output_tokens_max: u32,
    /// How long to wait first, as recorded with an earlier failure.
    pub wait_ms: u64,
    /// Its sampling options.
    #[serde(skip_serializing_if = "SamplingOptions::is_default")]
    pub manner: SamplingOptions,
}

/// Sampling options that differ from the provider's defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SamplingOptions {
    /// Reasoning effort.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// Sampling temperature in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// Whether Chat Completions limits its reply by `max_completion_tokens`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub completion_tokens: bool,
    /// Whether the reply with the calls began with reasoning of this model, if effort is set and call results are
    /// sent. Some providers require it unchanged until the calls are done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought: Option<bool>,
}

impl SamplingOptions {
    const fn is_default(&self) -> bool {
        self.effort.is_none() && self.temperature_milli.is_none() && !self.completion_tokens
    }
}

/// A tool call to run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedTool {
    /// The call; its arguments are in the reply that made it.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// What recovery may do with it.
    pub class: RecoveryClass,
    /// The policy verdict.
    pub policy: PolicyVerdict,
    /// Labels of a parsed command.
    pub labels: Vec<String>,
}

/// A final check to run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedGate {
    /// docket's id of the call.
    pub call: CallId,
    /// The check.
    pub gate: GateSpec,
    /// Whether to run or fix it.
    #[serde(skip_serializing_if = "GateStep::is_check")]
    pub step: GateStep,
}

impl Decision {
    /// Returns the BLAKE3 hash of the canonical JSON.
    pub fn hash(&self) -> DecisionHash {
        let json = serde_json::to_vec(self).expect("decisions have string keys only");
        DecisionHash::hash_bytes(&json)
    }

    /// Ends the run with its model's final message.
    pub(in crate::engine) fn end_run(run: &RunState, result: RunOutcome) -> Self {
        let phase = if result == RunOutcome::Succeeded { RunPhase::Verifying } else { run.phase };
        Self { phase, act: Action::End { result, summary: run.last_text.clone() } }
    }

    /// Ends the run as failed.
    pub(in crate::engine) fn fail_run(run: &RunState, why: FailureKind, message: &str) -> Self {
        Self::end_run(run, RunOutcome::Failed { why, message: message.to_owned() })
    }

    /// Asks a person.
    pub(in crate::engine) fn block_run(run: &RunState, question: Content, why: BlockedReason) -> Self {
        Self { phase: run.phase, act: Action::Block { question, why, about: None } }
    }
}

fn serialize_digest<S: Serializer>(messages: &Conversation, s: S) -> Result<S::Ok, S::Error> {
    let mut fields = s.serialize_struct("Conversation", 2)?;
    fields.serialize_field("count", &messages.len())?;
    fields.serialize_field("digest", blake3::Hash::from_bytes(messages.digest()).to_hex().as_str())?;
    fields.end()
}

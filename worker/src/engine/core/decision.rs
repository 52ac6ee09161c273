//! Decisions, and their canonical hash.
//!
//! A decision refers to large parts by blob and to its conversation by one digest: its hash costs the same
//! however long the run is.

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

/// What to do next.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decision {
    /// What the run is about from here on.
    pub phase: RunPhase,
    /// The act.
    pub act: Action,
}

/// What the driver is to do.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Ask a model.
    CallModel(Box<ModelCall>),
    /// Run tools: readers together, changers in order.
    RunTools(Vec<PlannedTool>),
    /// Run the final checks, or mend them, in order.
    RunGates(Vec<PlannedGate>),
    /// Make the conversation shorter, and decide again.
    Compact(Box<Compacted>),
    /// Record what follows from what is recorded, take up a role, or both; and decide again.
    Conclude(Box<EngineUpdate>),
    /// Rest until somebody unpauses the run.
    Pause,
    /// Wait for a person.
    Block {
        /// What is asked.
        question: Content,
        /// What led to it.
        why: BlockedReason,
        /// The call that policy asks about.
        #[serde(skip_serializing_if = "Option::is_none")]
        about: Option<BlockedCall>,
    },
    /// End the run.
    End {
        /// How.
        result: RunOutcome,
        /// The model's last words.
        summary: Option<Content>,
    },
}

/// What follows from what is recorded.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct EngineUpdate {
    /// Facts, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<EngineFact>,
    /// The role that is taken up after them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begins: Option<RoleStart>,
}

/// A role that is taken up.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoleStart {
    /// Its name.
    pub role: String,
    /// What for, in a line.
    pub about: String,
    /// The first message, part by part.
    pub opening: Vec<Content>,
}

/// A model to be asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelCall {
    /// docket's name of the call.
    pub call: CallId,
    /// What for.
    pub purpose: CallPurpose,
    /// The turn it opens, or repeats an attempt of.
    pub turn: Turn,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// Who is asked.
    pub model: ModelRef,
    /// In which role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// System prompt.
    pub system: BlobRef,
    /// Tool specifications.
    pub tools: BlobRef,
    /// The conversation.
    #[serde(serialize_with = "serialize_digest")]
    pub messages: Conversation,
    /// Words of the runtime added at its end.
    pub nudge: Option<String>,
    /// Largest answer.
    pub output_tokens_max: u32,
    /// How long to wait before, as an earlier failure recorded.
    pub wait_ms: u64,
    /// How it is to answer.
    #[serde(skip_serializing_if = "SamplingOptions::is_default")]
    pub manner: SamplingOptions,
}

/// How a model is to answer, where that is not as its provider has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct SamplingOptions {
    /// How hard it thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<ReasoningEffort>,
    /// Sampling temperature in thousandths.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_milli: Option<u32>,
    /// In Chat Completions its answer is limited by `max_completion_tokens`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub completion_tokens: bool,
    /// Where effort is asked for and results of calls are brought: whether the answer with the calls began with a
    /// thought of this model. Some providers want it to stay as it was until the calls are done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought: Option<bool>,
}

impl SamplingOptions {
    const fn is_default(&self) -> bool {
        self.effort.is_none() && self.temperature_milli.is_none() && !self.completion_tokens
    }
}

/// A tool to be run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedTool {
    /// The call; its arguments stand in the answer that made it.
    pub call: CallId,
    /// The tool.
    pub tool: String,
    /// What recovery may do with it.
    pub class: RecoveryClass,
    /// What policy says.
    pub policy: PolicyVerdict,
    /// Labels of a parsed command.
    pub labels: Vec<String>,
}

/// A final check to be run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PlannedGate {
    /// docket's name of the call.
    pub call: CallId,
    /// The check.
    pub gate: GateSpec,
    /// What is done about it.
    #[serde(skip_serializing_if = "GateStep::is_check")]
    pub step: GateStep,
}

impl Decision {
    /// BLAKE3 of the canonical JSON.
    pub fn hash(&self) -> DecisionHash {
        let json = serde_json::to_vec(self).expect("decisions have string keys only");
        DecisionHash::of(&json)
    }

    /// Ends the run, with the last words of its model.
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

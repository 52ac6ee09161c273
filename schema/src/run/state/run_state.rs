//! The state of a run: the fold of its stream. Independent of the engine; each engine interprets it.
//!
//! `apply` is total: an event that cannot follow the state is [`CorruptLog`], never ignored. Events that
//! others may write at any time (a message, a cancellation, a pause, a policy, a child's answer) are accepted
//! between an intent and its result.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    approvals::Approvals,
    change_attribution::ChangeAttribution,
    checks::known_failures::KnownFailures,
    compaction::{MeasuredSize, SummaryState, TokenMeasurement},
    delegation::DelegationState,
    engine_state::RoleEngineState,
    failures::UnresolvedFailures,
    model_attempts::ModelAttempts,
    read_index::ReadIndex,
    run_ledger::RunLedger,
    run_stage::RunStage,
    run_totals::RunTotals,
    transcript::Transcript,
};
use crate::run::{
    config::{
        role_spec::RoleSpec,
        run_config::{GateSpec, SandboxLayers},
    },
    events::{
        control_events::{LimitKind, RunBlocked, UnverifiedReason},
        run_event::{RunEvent, RunPhase, RunStarted},
        turn_events::{GateRequested, ModelFailed, SnapshotParts, ToolRequested},
    },
};
use crate::{
    content::{BlobRef, Content, WorkspacePath},
    event::{Envelope, EventRef, TypedEvent as _},
    ids::{BlobHash, Epoch, EventHash, RunId, Seq, TaskId, TreeHash, Turn},
    message::{CallId, MessagePart, ToolUse},
    policy::Policy,
    snapshot::{Entry, OmissionReason},
    tool::{ExceededResource, LintBaseline, NotRun, ToolSet},
};

/// An undecided check, which did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndecidedCheck {
    /// The check.
    pub gate: GateSpec,
    /// Why it did not run.
    pub why: NotRun,
}

/// A log that docket cannot have written.
#[derive(Debug, thiserror::Error)]
pub enum CorruptLog {
    /// An event has the wrong sequence number.
    #[error("found event {found} instead of {expected}")]
    Gap {
        /// The expected sequence number.
        expected: Seq,
        /// The sequence number found.
        found: Seq,
    },
    /// An event cannot follow the state.
    #[error("event {seq} (`{kind}`) is not possible: the run is {stage}{detail}")]
    Illegal {
        /// Its sequence number.
        seq: Seq,
        /// Its name.
        kind: &'static str,
        /// The run's stage.
        stage: &'static str,
        /// Details, if there are any.
        detail: String,
    },
    /// A payload cannot be decoded.
    #[error("event {seq} cannot be read")]
    Decode {
        /// Its sequence number.
        seq: Seq,
        /// The cause.
        #[source]
        source: crate::event::DecodeError,
    },
}

/// The envelope fields that the fold needs.
#[derive(Debug, Clone, Copy)]
pub struct EventMeta {
    /// Sequence number in the stream.
    pub seq: Seq,
    /// Hash of the event.
    pub hash: EventHash,
    /// Turn.
    pub turn: Turn,
    /// Epoch.
    pub epoch: Epoch,
}

impl From<&Envelope> for EventMeta {
    fn from(event: &Envelope) -> Self {
        (&event.as_event_ref()).into()
    }
}

impl From<&EventRef<'_>> for EventMeta {
    fn from(event: &EventRef<'_>) -> Self {
        Self { seq: event.seq, hash: event.hash, turn: event.turn, epoch: event.epoch }
    }
}

/// Paths that differ from the base, with their entries (`None` means deleted).
pub type Overlay = BTreeMap<WorkspacePath, Option<Entry>>;

/// State of a run. See the module documentation.
#[derive(Debug, Clone, Default)]
pub struct RunState {
    /// Sequence number of the last folded event.
    pub seq: Seq,
    /// Hash of the last folded event.
    pub hash: EventHash,
    /// Highest epoch seen.
    pub epoch: Epoch,
    /// The current turn; 0 before the first model call.
    pub turn: Turn,
    /// The current stage.
    pub stage: RunStage,
    /// The current phase.
    pub phase: RunPhase,
    /// The configuration pinned at the start, with a fork's changes.
    pub pins: Option<Arc<RunStarted>>,
    /// The runs whose history this one shares, nearest last.
    pub lineage: Vec<(RunId, Seq)>,
    /// The conversation.
    pub transcript: Transcript,
    /// Tool calls of the last answer that have no intent yet, in order.
    pub pending_calls: VecDeque<ToolUse>,
    /// Tool calls with an intent and no result, in order.
    pub open_tools: Vec<(ToolRequested, ToolUse)>,
    /// Final checks with an intent and no result, in order.
    pub open_gates: Vec<GateRequested>,
    /// Hash of each file as the run last read or wrote it.
    pub known_hashes: BTreeMap<WorkspacePath, BlobHash>,
    /// The file contents shown in the conversation.
    pub read_index: ReadIndex,
    /// Full outputs of calls and checks whose results are truncated.
    pub full_outputs: BTreeMap<CallId, BlobRef>,
    /// The work tree relative to the base.
    pub overlay: Overlay,
    /// `.git/` relative to the base.
    pub git_overlay: Overlay,
    /// Paths omitted from snapshots, as last recorded.
    pub left_out: BTreeMap<WorkspacePath, OmissionReason>,
    /// Hash of the tree at the last snapshot; before the first one, that of the base.
    pub tree: Option<TreeHash>,
    /// Totals of the run.
    pub totals: RunTotals,
    /// The model's last text.
    pub last_text: Option<Content>,
    /// Whether the last answer called no tool: the model reports that it is done, or blocked.
    pub answered_without_tools: bool,
    /// Consecutive answers with text and without tool calls.
    pub idle_answers: u32,
    /// Failed attempts at the pending decision.
    pub failed_attempts: u32,
    /// How many of these came before a person's last answer: they do not count toward the limit.
    pub forgiven_attempts: u32,
    /// The last failed attempt, until an answer follows.
    pub last_failure: Option<ModelFailed>,
    /// Consecutive empty answers.
    pub empty_answers: u32,
    /// Of the consecutive empty answers and of those without tool calls, the ones inherited from the run that
    /// this one continues: they do not count toward a limit.
    pub forgiven_answers: (u32, u32),
    /// Failed rounds of final checks.
    pub corrections: u32,
    /// How many of these came before a person's last message, or from the run that this one continues: they
    /// do not count toward the limit.
    pub forgiven_corrections: u32,
    /// Turns and correction rounds inherited from the run that this one continues: its limits are its own.
    pub before_fork: (Turn, u32),
    /// Whether all final checks of the last round passed, and nothing has happened since.
    pub gates_passed: bool,
    /// Failed checks of the last round to be fixed automatically before the round counts.
    pub fixes_due: Vec<GateSpec>,
    /// Whether a fix of this round changed anything, or may have.
    pub fix_changed_files: bool,
    /// Check intents since the last model call.
    pub gates_in_turn: u32,
    /// The checks that failed in the last round, in a few words each.
    pub failed_checks: Vec<String>,
    /// Undecided checks of the last round, which did not run.
    pub undecided: Vec<UndecidedCheck>,
    /// Whether the next decision is about these.
    pub undecided_due: bool,
    /// Names of checks that a person waived in this run: if they do not run, the run completes unverified.
    pub waived_checks: BTreeSet<String>,
    /// Why the run is unverified, once it has succeeded.
    pub unverified: Option<UnverifiedReason>,
    /// Linters that are not installed.
    pub linters_missing: BTreeSet<String>,
    /// How many times each linter timed out after a batch of edits.
    pub lint_timeouts: BTreeMap<String, u32>,
    /// Consecutive batches of edits with findings.
    pub lint_failures: u32,
    /// Linter findings, by linter, in files before this run changed them.
    pub lint_before: BTreeMap<String, LintBaseline>,
    /// A change failed its test, check or lint and no change has followed: the next one is a fix.
    pub fix_is_next: bool,
    /// All tests passed, nothing was run or changed since, and no check failed.
    pub tests_passed: bool,
    /// Tests that failed before the run changed anything, and in its last checks.
    pub known_failures: KnownFailures,
    /// Files written by file tools in this run.
    pub files_written: BTreeSet<WorkspacePath>,
    /// Failures that were not resolved since.
    pub unresolved_failures: UnresolvedFailures,
    /// Its question, while it is blocked.
    pub blocker: Option<RunBlocked>,
    /// Whether its cancellation was requested.
    pub cancel_requested: bool,
    /// Whether a pause was requested.
    pub pause_requested: bool,
    /// Commands killed for excessive resource use, each with its turn.
    pub exceeded: Vec<(Turn, ExceededResource)>,
    /// The limit that was reached.
    pub limit: Option<LimitKind>,
    /// The message about it, if the limit is not the run's own.
    pub limit_message: Option<String>,
    /// The policy in effect.
    pub policy: Option<BlobRef>,
    /// The parsed policies.
    pub policies: Vec<Policy>,
    /// The task's policy, if it was changed before the run started.
    pub requested_policy: Option<Policy>,
    /// People's decisions about calls that need approval.
    pub approvals: Approvals,
    /// Whether its final checks ran before it changed anything.
    pub base_checked: bool,
    /// Whether setup ran, and the snapshots contain its output in captured paths.
    pub is_set_up: bool,
    /// The current sandbox of its commands.
    pub sandbox: SandboxLayers,
    /// Calls that wait for a child.
    pub child_tasks: BTreeMap<CallId, TaskId>,
    /// Its delegated work.
    pub delegation: DelegationState,
    /// The ledger, which is independent of the conversation.
    pub ledger: RunLedger,
    /// Token count of the last answer; none before the first, or if the provider reports none.
    pub measured_tokens: Option<TokenMeasurement>,
    /// State of the summary of the oldest messages.
    pub summary: SummaryState,
    /// Number of summaries requested.
    pub summaries_requested: u32,
    /// Model attempts and their results.
    pub model_attempts: ModelAttempts,
    /// Roles, plans, verdicts.
    pub engine_state: RoleEngineState,
    /// Whether a check of the current round failed.
    pub(in crate::run) round_failed: bool,
    /// Author of the workspace change that is being folded.
    pub(in crate::run) attribution: ChangeAttribution,
    /// Failed checks of the current round that can be fixed automatically.
    pub(in crate::run) round_fixes: Vec<GateSpec>,
    /// What the model reads about the current round if nothing is fixed.
    pub(in crate::run) round_notes: Vec<MessagePart>,
    /// Whether the checks were fixed since the last model call: if they fail again, the model must act.
    pub(in crate::run) fix_tried: bool,
    /// Another engine continues, and its roles are not pinned yet.
    pub roles_due: bool,
    /// The run's original tool set.
    pub(in crate::run) tool_set: ToolSet,
    /// Parts of an incomplete snapshot.
    pub(in crate::run) snapshot_parts: SnapshotParts,
}

impl RunState {
    /// Decodes and applies one event of the log.
    ///
    /// # Errors
    ///
    /// [`CorruptLog`] if the event cannot be decoded or cannot follow.
    pub fn apply_envelope(&mut self, event: &Envelope) -> Result<(), CorruptLog> {
        let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())
            .map_err(|source| CorruptLog::Decode { seq: event.seq, source })?;
        self.apply(event.into(), typed)
    }

    /// Returns the number of failed check rounds that count toward the limit.
    pub const fn counted_corrections(&self) -> u32 {
        self.corrections.saturating_sub(self.forgiven_corrections)
    }

    /// Returns the number of consecutive empty answers that count toward the limit.
    pub const fn counted_empty_answers(&self) -> u32 {
        self.empty_answers.saturating_sub(self.forgiven_answers.0)
    }

    /// Returns the number of consecutive answers without tool calls that count toward the limit.
    pub const fn counted_idle_answers(&self) -> u32 {
        self.idle_answers.saturating_sub(self.forgiven_answers.1)
    }

    /// Returns the size of a request's prompt and tools, in bytes.
    pub fn prompt_bytes(&self) -> u64 {
        let Some(pins) = &self.pins else { return 0 };
        match self.current_role() {
            Some(role) => role.system.bytes + role.tools.bytes,
            None => pins.prompts.system.bytes + pins.prompts.tools.bytes,
        }
    }

    /// Returns the current role as pinned; none if the engine has a single conversation.
    pub fn current_role(&self) -> Option<&RoleSpec> {
        let name = self.engine_state.role.as_deref()?;
        self.pins.as_ref()?.roles.iter().find(|role| role.name == name)
    }

    /// Returns the measured size in bytes.
    pub fn measured_bytes(&self, measured: TokenMeasurement) -> u64 {
        match measured.size {
            MeasuredSize::Bytes(bytes) => bytes,
            MeasuredSize::Messages(messages) => self.prompt_bytes() + self.transcript.prefix_bytes(messages),
        }
    }

    /// Applies one event.
    ///
    /// # Errors
    ///
    /// [`CorruptLog`] if it cannot follow.
    pub fn apply(&mut self, meta: EventMeta, event: RunEvent) -> Result<(), CorruptLog> {
        // A child's stream starts again at 1, after its parent's history.
        let expected = match event {
            RunEvent::Forked(_) => Seq(1),
            _ => self.seq.next(),
        };
        if meta.seq != expected {
            return Err(CorruptLog::Gap { expected, found: meta.seq });
        }
        let kind = event.kind();
        self.model_attempts.apply_event(&event, (&self.stage, &self.totals, self.pins.as_deref()));
        self.apply_transition(meta, event).map_err(|detail| CorruptLog::Illegal {
            seq: meta.seq,
            kind,
            stage: self.stage.as_str(),
            detail,
        })?;
        self.seq = meta.seq;
        self.hash = meta.hash;
        self.epoch = self.epoch.max(meta.epoch);
        Ok(())
    }
}

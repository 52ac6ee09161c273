//! The state of a run: the fold of its stream. Engine-neutral; what an engine makes of it is its own.
//!
//! `apply` is total: an event that cannot follow the state is [`CorruptLog`], never ignored. Events
//! that others may write at any moment (the inbox: told, cancel, pause, policy, a child's answer)
//! are accepted between an intent and its result.

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

/// A check that decides nothing, because it did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndecidedCheck {
    /// The check.
    pub gate: GateSpec,
    /// Why it did not run.
    pub why: NotRun,
}

/// A log that cannot have been written by docket.
#[derive(Debug, thiserror::Error)]
pub enum CorruptLog {
    /// An event at the wrong place.
    #[error("event {found} stands where {expected} belongs")]
    Gap {
        /// The place that belongs there.
        expected: Seq,
        /// The place found.
        found: Seq,
    },
    /// An event that cannot follow.
    #[error("event {seq} (`{kind}`) cannot follow: the run is {stage}{detail}")]
    Illegal {
        /// Its place.
        seq: Seq,
        /// Its name.
        kind: &'static str,
        /// Where the run stands.
        stage: &'static str,
        /// More, if there is more to say.
        detail: String,
    },
    /// A payload that does not decode.
    #[error("event {seq} cannot be read")]
    Decode {
        /// Its place.
        seq: Seq,
        /// Why.
        #[source]
        source: crate::event::DecodeError,
    },
}

/// What of the envelope the fold needs.
#[derive(Debug, Clone, Copy)]
pub struct EventMeta {
    /// Place in the stream.
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

/// Paths that differ from the base, and what stands there (`None` = nothing).
pub type Overlay = BTreeMap<WorkspacePath, Option<Entry>>;

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct RunState {
    /// Head of the stream as folded.
    pub seq: Seq,
    /// Hash of the last event folded.
    pub hash: EventHash,
    /// Highest epoch seen.
    pub epoch: Epoch,
    /// The turn it is in; 0 before the first model call.
    pub turn: Turn,
    /// Where it stands.
    pub stage: RunStage,
    /// What it is about.
    pub phase: RunPhase,
    /// What was pinned at the start, with a fork's changes.
    pub pins: Option<Arc<RunStarted>>,
    /// The runs whose history this one shares, nearest last.
    pub lineage: Vec<(RunId, Seq)>,
    /// The conversation.
    pub transcript: Transcript,
    /// Tool calls of the last answer that have no intent yet, in order.
    pub pending_calls: VecDeque<ToolUse>,
    /// Tool calls with an intent and no result, in order, with what was asked.
    pub open_tools: Vec<(ToolRequested, ToolUse)>,
    /// Gates with an intent and no result, in order.
    pub open_gates: Vec<GateRequested>,
    /// Hash of each file as the run last read or wrote it.
    pub known_hashes: BTreeMap<WorkspacePath, BlobHash>,
    /// What of files stands in the conversation.
    pub read_index: ReadIndex,
    /// Whole outputs of calls and gates whose results show a part.
    pub full_outputs: BTreeMap<CallId, BlobRef>,
    /// Work tree against the base.
    pub overlay: Overlay,
    /// `.git/` against the base.
    pub git_overlay: Overlay,
    /// Paths that snapshots left out, as last recorded.
    pub left_out: BTreeMap<WorkspacePath, OmissionReason>,
    /// Hash of the tree at the last snapshot; the base's before the first.
    pub tree: Option<TreeHash>,
    /// Sums.
    pub totals: RunTotals,
    /// The model's last text.
    pub last_text: Option<Content>,
    /// The last answer called no tool: the model says it is done, or blocked.
    pub answered_without_tools: bool,
    /// Answers in a row that said something and called no tool.
    pub idle_answers: u32,
    /// Failed attempts at the decision now due.
    pub failed_attempts: u32,
    /// Of these, the ones before a person last said that asking again helps: they count for no cap.
    pub forgiven_attempts: u32,
    /// The last failed attempt, while no answer has followed it.
    pub last_failure: Option<ModelFailed>,
    /// Answers in a row that said nothing.
    pub empty_answers: u32,
    /// Of the answers in a row that said nothing, and of those that called no tool, the ones of a run that this one goes
    /// on from: they count for no limit.
    pub forgiven_answers: (u32, u32),
    /// Rounds of gates that failed.
    pub corrections: u32,
    /// Of these, the ones before a person spoke last, and those of a run that this one goes on from: they count for no
    /// limit.
    pub forgiven_corrections: u32,
    /// Turns and rounds of correction that a run had behind it when it began to go on from another: its cap is its own.
    pub before_fork: (Turn, u32),
    /// All gates of the last round passed, and nothing has happened since.
    pub gates_passed: bool,
    /// Failed checks of the last round that are to be mended before it counts.
    pub fixes_due: Vec<GateSpec>,
    /// Whether a mending of this round changed anything, or may have.
    pub fix_changed_files: bool,
    /// Gate intents since the model was last asked.
    pub gates_in_turn: u32,
    /// The checks that failed in the last round, in a few words each.
    pub failed_checks: Vec<String>,
    /// Checks of the last round that decide nothing, because they did not run.
    pub undecided: Vec<UndecidedCheck>,
    /// What to do about these is the next decision.
    pub undecided_due: bool,
    /// Names of checks that a person waived in this run: where they do not run, the run completes unverified.
    pub waived_checks: BTreeSet<String>,
    /// Why it is unverified, once it has succeeded.
    pub unverified: Option<UnverifiedReason>,
    /// Linters that were found not to be installed.
    pub linters_missing: BTreeSet<String>,
    /// How often each linter did not end in time after a batch of edits.
    pub lint_timeouts: BTreeMap<String, u32>,
    /// Batches of edits in a row that left findings.
    pub lint_failures: u32,
    /// What linters found, by name, in files before this run changed them.
    pub lint_before: BTreeMap<String, LintBaseline>,
    /// A change failed its test, gate or lint and no change has followed: what comes next is a fix.
    pub fix_is_next: bool,
    /// All tests passed, and nothing was run or changed since, and no check failed.
    pub tests_passed: bool,
    /// Which tests failed before the run changed anything, and which ones in its last checks.
    pub known_failures: KnownFailures,
    /// Files that file tools wrote, in this run.
    pub files_written: BTreeSet<WorkspacePath>,
    /// What went wrong and was not made good since.
    pub unresolved_failures: UnresolvedFailures,
    /// What it asks, while it is blocked.
    pub blocker: Option<RunBlocked>,
    /// Somebody wants it to end.
    pub cancel_requested: bool,
    /// Somebody wants it to rest.
    pub pause_requested: bool,
    /// Commands of this run that were ended for using too much, each with its turn.
    pub exceeded: Vec<(Turn, ExceededResource)>,
    /// A limit that was reached.
    pub limit: Option<LimitKind>,
    /// What was said of it, where it is not the run's own.
    pub limit_message: Option<String>,
    /// Policy in force.
    pub policy: Option<BlobRef>,
    /// What they say.
    pub policies: Vec<Policy>,
    /// The task's policy, where it was changed before the run began.
    pub requested_policy: Option<Policy>,
    /// What people said of calls that policy asked about.
    pub approvals: Approvals,
    /// Its final checks were run before it changed anything.
    pub base_checked: bool,
    /// Its workspace was made ready, and the snapshots hold what that left in captured paths.
    pub is_set_up: bool,
    /// The walls around its commands as they are now.
    pub sandbox: SandboxLayers,
    /// Calls that wait for a child.
    pub child_tasks: BTreeMap<CallId, TaskId>,
    /// What it gave away, and what came back.
    pub delegation: DelegationState,
    /// What is kept of the run whatever becomes of its conversation.
    pub ledger: RunLedger,
    /// What the last answer showed of tokens; none before the first, and where a provider counts none.
    pub measured_tokens: Option<TokenMeasurement>,
    /// Where a summary of the oldest messages stands.
    pub summary: SummaryState,
    /// Summaries that were asked for.
    pub summaries_requested: u32,
    /// Which models were asked, and how that went.
    pub model_attempts: ModelAttempts,
    /// Roles, plans, verdicts.
    pub engine_state: RoleEngineState,
    /// A gate of the round in hand failed.
    pub(in crate::run) round_failed: bool,
    /// Whose change of the workspace is being folded.
    pub(in crate::run) attribution: ChangeAttribution,
    /// Checks of the round in hand that failed and can be mended.
    pub(in crate::run) round_fixes: Vec<GateSpec>,
    /// What the model is to read of the round in hand, should nothing be mended.
    pub(in crate::run) round_notes: Vec<MessagePart>,
    /// The checks were mended since the model was last asked: it is the model's turn if they fail again.
    pub(in crate::run) fix_tried: bool,
    /// Another engine goes on, and its roles are not pinned yet.
    pub roles_due: bool,
    /// The tools that the run began with.
    pub(in crate::run) tool_set: ToolSet,
    /// Parts of a snapshot whose last one has not come.
    pub(in crate::run) snapshot_parts: SnapshotParts,
}

impl RunState {
    /// Decodes and applies one event of the log.
    ///
    /// # Errors
    /// [`CorruptLog`]: the event cannot be read or cannot follow.
    pub fn apply_envelope(&mut self, event: &Envelope) -> Result<(), CorruptLog> {
        let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())
            .map_err(|source| CorruptLog::Decode { seq: event.seq, source })?;
        self.apply(event.into(), typed)
    }

    /// Rounds of gates that failed and count for the limit of them.
    pub const fn counted_corrections(&self) -> u32 {
        self.corrections.saturating_sub(self.forgiven_corrections)
    }

    /// Answers in a row that said nothing and count for the limit of them.
    pub const fn counted_empty_answers(&self) -> u32 {
        self.empty_answers.saturating_sub(self.forgiven_answers.0)
    }

    /// Answers in a row that said something, called no tool, and count for the limit of them.
    pub const fn counted_idle_answers(&self) -> u32 {
        self.idle_answers.saturating_sub(self.forgiven_answers.1)
    }

    /// Bytes of what a request carries besides its conversation: prompt and tools.
    pub fn prompt_bytes(&self) -> u64 {
        let Some(pins) = &self.pins else { return 0 };
        match self.current_role() {
            Some(role) => role.system.bytes + role.tools.bytes,
            None => pins.prompts.system.bytes + pins.prompts.tools.bytes,
        }
    }

    /// The role in hand, as it was pinned; none where the engine has one conversation.
    pub fn current_role(&self) -> Option<&RoleSpec> {
        let name = self.engine_state.role.as_deref()?;
        self.pins.as_ref()?.roles.iter().find(|role| role.name == name)
    }

    /// Bytes of what the model counted.
    pub fn measured_bytes(&self, measured: TokenMeasurement) -> u64 {
        match measured.size {
            MeasuredSize::Bytes(bytes) => bytes,
            MeasuredSize::Messages(messages) => self.prompt_bytes() + self.transcript.prefix_bytes(messages),
        }
    }

    /// Applies one event.
    ///
    /// # Errors
    /// [`CorruptLog`]: it cannot follow.
    pub fn apply(&mut self, meta: EventMeta, event: RunEvent) -> Result<(), CorruptLog> {
        // A child's stream starts again at 1, on top of its parent's history.
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

//! The loop: decide on the state with its latest results, record results and intents in one append,
//! perform, and again. Two appends a turn.

use std::{borrow::Cow, time::Duration};

use docket_schema::{
    ids::Epoch,
    message::{CallId, ToolSpec},
    run::{
        FailureKind, ModelRequested, Purpose, RunEnded, RunOutcome, RunState, Stage, ToolRequested, Verdict,
    },
    tool::RecoveryClass,
    wire::WorkerFault,
};
use tokio::sync::watch;

use super::{
    act::Hands,
    causes,
    delegate::Resumed,
    faults,
    intent::{RequestProof, announce},
    journal::{Journal, JournalError, Outgoing, fold},
    material::Material,
    pace::Pace,
    paid::{Paid, Purse, are_counted},
    process::RunExit,
};
use crate::{
    engine::{
        Act, Decision, Engine, ModelCall, manner_of, role_of, summary_call, texts_of, usual_output_tokens,
    },
    model::{BEGIN_TIME_MAX, IDLE_TIMEOUT, ModelRequest, RenderError, Rendered, render, request_hash},
    progress::ProgressNote,
    workspace::{BlobError, Blobs, RestoreError, SnapshotError},
};

/// Why a driver gave up. The run is not lost: its log says where it stands.
#[derive(Debug, thiserror::Error)]
pub enum DriverError {
    /// An append failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A request cannot be rendered.
    #[error("the model request of this turn cannot be rendered")]
    Render(#[from] RenderError),
    /// A blob is not to be had.
    #[error("something the run's log refers to is not to be had")]
    Blob(#[from] BlobError),
    /// A tool specification does not decode.
    #[error("the pinned tool specifications do not decode")]
    Tools(#[source] serde_json::Error),
    /// The workspace cannot be looked at.
    #[error("the workspace cannot be looked at")]
    Snapshot(#[from] SnapshotError),
    /// A tree from which a child starts does not decode.
    #[error("the tree from which a child starts does not decode")]
    Start(#[source] serde_json::Error),
    /// What a child changed cannot be brought in.
    #[error("what a child changed cannot be brought into the workspace")]
    TakeOver(#[source] Box<RestoreError>),
    /// The rendered request of a resumed call is not the one that was recorded.
    #[error("the request of {call} renders to other bytes than were recorded; `docket verify` shows where")]
    Diverged {
        /// The call.
        call: String,
    },
    /// The engine concludes and concludes.
    #[error(
        "the engine comes to no decision: it concluded {CONCLUSIONS_MAX} times in a row; `docket verify` shows what"
    )]
    Endless,
    /// This worker cannot carry out the run, and the task is not to blame. Nothing is recorded of it.
    #[error("{0}")]
    Worker(Box<WorkerFault>),
    /// The engine decided nothing that can follow.
    #[error("the run is {0}; there is nothing to decide")]
    NotDeciding(&'static str),
}

impl DriverError {
    /// Whether another process would only pay for the same end again: it is the run's end then. The
    /// rest is a crash's to mend, or the coordinator's return.
    const fn is_final(&self) -> bool {
        match self {
            Self::Journal(JournalError::Refused(_))
            | Self::Render(_)
            | Self::Tools(_)
            | Self::Start(_)
            | Self::Diverged { .. }
            | Self::Endless
            | Self::Blob(BlobError::Missing(_) | BlobError::Damaged(_)) => true,
            Self::Journal(
                JournalError::LeaseLost(_)
                | JournalError::Unreachable(_)
                | JournalError::Corrupt(_)
                | JournalError::Contended,
            )
            | Self::Blob(BlobError::Unavailable(_))
            | Self::Snapshot(_)
            | Self::TakeOver(_)
            | Self::Worker(_)
            | Self::NotDeciding(_) => false,
        }
    }
}

/// What the driver does with an answer once it is there, in the same step: it is folded, and its parts are placed.
const ANSWER_SLACK: Duration = Duration::from_secs(10);
/// Longest that a model call takes until its answer begins.
const ASK_AT_MOST: Duration = BEGIN_TIME_MAX.saturating_add(ANSWER_SLACK);
/// Longest silence within an answer.
pub(super) const SILENCE_AT_MOST: Duration = IDLE_TIMEOUT.saturating_add(ANSWER_SLACK);
/// Longest that an append may take with all its uploads, or a walk of the workspace: the coordinator may be
/// away for a whole lease, a disk may be slow.
pub(super) const RECORD_AT_MOST: Duration = Duration::from_secs(900);
/// What a call takes beyond its own time limit: ending its processes, reading what it left.
const CALL_SLACK: Duration = Duration::from_secs(60);

/// See the module.
pub struct Driver {
    pub(super) journal: Journal,
    pub(super) engine: Box<dyn Engine>,
    pub(super) material: Material,
    pub(super) hands: Hands,
    pub(super) drain: watch::Receiver<bool>,
    pub(super) pace: Pace,
}

/// What is to be performed once the intents are durable.
enum Next {
    Ask(Box<ModelCall>, Rendered),
    Tools,
    Gates,
    /// Nothing: what was recorded is all, and the next decision follows from it.
    Again,
    Wait(Duration),
    Leave(RunExit),
}

impl Driver {
    /// Runs until the run rests, ends, or the supervisor drains.
    ///
    /// # Errors
    /// [`DriverError`].
    pub async fn run(mut self, progress: &ProgressNote) -> Result<RunExit, DriverError> {
        match self.turns(progress).await {
            Err(error) if error.is_final() => {
                let message = causes::told(&error);
                tracing::error!(%message, "the run cannot go on");
                let result = RunOutcome::Failed { why: FailureKind::Environment, message };
                let tree = self.journal.state().tree;
                let mut out = Outgoing::default();
                out.push(
                    self.journal.state().turn,
                    RunEnded { result, summary: None, tree, unverified: None, decision: None },
                );
                self.journal.append_results(&out).await?;
                Ok(RunExit::Done)
            }
            other => other,
        }
    }

    async fn turns(&mut self, progress: &ProgressNote) -> Result<RunExit, DriverError> {
        progress.at_most(calls_at_most(self.journal.state()));
        let Some(mut results) = self.resume_open_effects(progress).await? else {
            return Ok(RunExit::Drained);
        };
        let mut waited = false;
        loop {
            progress.at_most(RECORD_AT_MOST);
            let next = self.record(&results, waited).await?;
            waited = matches!(next, Next::Wait(_));
            let state = self.journal.state();
            progress.at_most(calls_at_most(state));
            match next {
                Next::Ask(call, rendered) => match self.ask(&call, &rendered, progress).await? {
                    Some(answer) => results = answer,
                    None => return Ok(RunExit::Drained),
                },
                Next::Tools => results = self.tools(Resumed::No, progress).await?,
                Next::Gates => results = self.gates().await?,
                Next::Again => results = Outgoing::default(),
                Next::Wait(wait) => {
                    progress.at_most(wait);
                    results = Outgoing::default();
                    self.wait(wait).await;
                }
                Next::Leave(exit) => return Ok(exit),
            }
        }
    }

    /// Asks the model, once it may be asked; none where a drain came first.
    async fn ask(
        &mut self,
        call: &ModelCall,
        rendered: &Rendered,
        progress: &ProgressNote,
    ) -> Result<Option<Outgoing>, DriverError> {
        if !self.may_ask(call, rendered, progress).await? {
            return Ok(None);
        }
        let state = self.journal.state();
        progress.at_most(ASK_AT_MOST);
        let results = self.hands.ask(call, rendered, state, &self.material, progress).await;
        self.pace.answered(&results);
        match faults::fault_of_call(call, &results) {
            // The request stays open: another worker makes it, to the byte.
            Some(fault) => Err(DriverError::Worker(Box::new(fault))),
            None => Ok(Some(results)),
        }
    }

    /// Runs the open final checks.
    async fn gates(&mut self) -> Result<Outgoing, DriverError> {
        let state = self.journal.state();
        let results = self.hands.bench.run_gates(state).await?;
        match faults::fault_of_checks(state, &results) {
            // The checks stay open: another worker runs them.
            Some(fault) => Err(DriverError::Worker(Box::new(fault))),
            None => Ok(results),
        }
    }

    /// What a crash left open: intents without results. The fold says which; each call's recovery
    /// class says what to do.
    /// None where a drain came first.
    async fn resume_open_effects(
        &mut self,
        progress: &ProgressNote,
    ) -> Result<Option<Outgoing>, DriverError> {
        match &self.journal.state().stage {
            Stage::Model(open) => {
                let open = ModelRequested::clone(open);
                let call = reopened(self.journal.state(), &open);
                let rendered = rendered(&self.material, &call).await?;
                if request_hash(&rendered.body) != open.request {
                    return Err(DriverError::Diverged { call: open.call.to_string() });
                }
                self.ask(&call, &rendered, progress).await
            }
            Stage::Tools => Ok(Some(self.tools(Resumed::Yes, progress).await?)),
            Stage::Gates => Ok(Some(self.gates().await?)),
            Stage::Deciding => Ok(Some(Outgoing::default())),
            other @ (Stage::Unstarted | Stage::Paused | Stage::Blocked | Stage::Ended(_)) => {
                Err(DriverError::NotDeciding(other.as_str()))
            }
        }
    }

    /// Appends `results` and the intents of the decision that follows from them. A decision that
    /// must wait first appends nothing but the results: the failure is durable while it waits.
    /// What an engine concludes on the way goes with them: it is derived, and needs no append of its own.
    async fn record(&mut self, results: &Outgoing, waited: bool) -> Result<Next, DriverError> {
        let purse = Purse::of(&self.journal);
        let epoch = self.journal.epoch;
        let Self { journal, engine, material, drain, .. } = self;
        journal
            .append(results, async |state| {
                if state.stage == Stage::Tools {
                    // Its last child answered just now: the calls that waited are open.
                    return Ok((Outgoing::default(), Next::Tools));
                }
                let Concluded { mut out, state, decision } = concluded(engine.as_ref(), state, epoch)?;
                let with = |mut out: Outgoing, more: Outgoing| {
                    out.join(more);
                    out
                };
                if let Act::CallModel(call) = &decision.act {
                    if *drain.borrow() {
                        return Ok((out, Next::Leave(RunExit::Drained)));
                    }
                    if call.wait_ms > 0 && !waited {
                        return Ok((out, Next::Wait(Duration::from_millis(call.wait_ms))));
                    }
                    if let Some(purse) = &purse {
                        if !are_counted(results) {
                            return Ok((out, Next::Again));
                        }
                        match purse.pays(&state, call).await? {
                            Paid::Yes => {}
                            Paid::Later(wait) => return Ok((out, Next::Wait(wait))),
                            Paid::No(which, message) => {
                                let (over, after) = purse.over(&state, which, message)?;
                                out.join(over);
                                let (rests, next) = intents(material, &after, engine.decide(&after)).await?;
                                return Ok((with(out, rests), next));
                            }
                        }
                    }
                }
                let (more, next) = intents(material, &state, decision).await?;
                Ok((with(out, more), next))
            })
            .await
    }

    pub(super) async fn wait(&self, wait: Duration) {
        let mut drain = self.drain.clone();
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = drain.wait_for(|drains| *drains) => {}
        }
    }
}

/// What an engine concluded, and the first decision after it that is more than a conclusion.
struct Concluded<'a> {
    out: Outgoing,
    state: Cow<'a, RunState>,
    decision: Decision,
}

/// Conclusions in a row, at most: an engine that concludes without end is wrong.
const CONCLUSIONS_MAX: usize = 64;

fn concluded<'a>(
    engine: &dyn Engine,
    state: &'a RunState,
    epoch: Epoch,
) -> Result<Concluded<'a>, DriverError> {
    let (mut out, mut state) = (Outgoing::default(), Cow::Borrowed(state));
    for _ in 0..CONCLUSIONS_MAX {
        let decision = engine.decide(&state);
        if !matches!(decision.act, Act::Conclude(_)) {
            return Ok(Concluded { out, state, decision });
        }
        let mut said = Outgoing::default();
        for (turn, event) in announce(&state, &decision, None) {
            said.push(turn, event);
        }
        fold(state.to_mut(), epoch, said.events()).map_err(JournalError::from)?;
        out.join(said);
    }
    Err(DriverError::Endless)
}

/// The longest that the open calls and checks may take, from the limits that were pinned: one after the other, and a look
/// at the workspace after them. A model call has a limit of its own.
fn calls_at_most(state: &RunState) -> Duration {
    let settings = state.pins.as_ref().map(|pins| &pins.settings);
    let call =
        settings.map_or(0, |settings| settings.command_timeout_ms_max.max(settings.command_timeout_ms));
    // A mending is a fix, the check once more, and the fix behind what patterns wrote.
    let mends = 2 * state.open_gates.iter().filter(|open| !open.step.is_check()).count();
    let calls = u32::try_from(state.open_tools.len() + state.open_gates.len() + mends).unwrap_or(u32::MAX);
    let calls = (Duration::from_millis(call) + CALL_SLACK).saturating_mul(calls);
    calls.saturating_add(lint_at_most(state)).saturating_add(RECORD_AT_MOST)
}

/// The longest that the linters of a batch of edits may take.
fn lint_at_most(state: &RunState) -> Duration {
    let Some(pins) = state.pins.as_ref().filter(|_| !state.open_tools.is_empty()) else {
        return Duration::ZERO;
    };
    // Once before the edits, once behind them.
    let linters = u32::try_from(pins.linters.len()).unwrap_or(u32::MAX).saturating_mul(2);
    (Duration::from_millis(pins.settings.lint_timeout_ms) + CALL_SLACK).saturating_mul(linters)
}

/// The events that announce a decision, and what to perform once they are durable.
async fn intents(
    material: &Material,
    state: &RunState,
    decision: Decision,
) -> Result<(Outgoing, Next), DriverError> {
    let request = match &decision.act {
        Act::CallModel(call) => Some(rendered(material, call).await?),
        Act::RunTools(_)
        | Act::RunGates(_)
        | Act::Compact(_)
        | Act::Conclude(_)
        | Act::Pause
        | Act::Block { .. }
        | Act::End { .. } => None,
    };
    let mut out = Outgoing::default();
    for (turn, event) in announce(state, &decision, request.as_ref().map(RequestProof::of)) {
        out.push(turn, event);
    }
    let next = match (decision.act, request) {
        (Act::CallModel(call), Some(rendered)) => Next::Ask(call, rendered),
        (Act::RunTools(_), _) => Next::Tools,
        (Act::RunGates(_), _) => Next::Gates,
        (Act::Compact(_) | Act::Conclude(_), _) => Next::Again,
        (Act::CallModel(_), None) | (Act::Pause | Act::Block { .. } | Act::End { .. }, _) => {
            Next::Leave(RunExit::Done)
        }
    };
    Ok((out, next))
}

/// The call that an open `ModelRequested` announced, from the state in which it is sealed.
pub(crate) fn reopened(state: &RunState, open: &ModelRequested) -> ModelCall {
    let pins = state.pins.as_ref().expect("a model is asked only after RunStarted");
    let usual = usual_output_tokens(pins, open.purpose, &open.model);
    let output_tokens_max = open.output_tokens_max.unwrap_or(usual);
    if open.purpose == Purpose::Compact
        && let Some(call) = summary_call(state, pins)
    {
        return ModelCall { call: open.call.clone(), model: open.model.clone(), output_tokens_max, ..call };
    }
    let messages = state.transcript.sealed_conversation();
    let (system, tools) = texts_of(state, pins);
    ModelCall {
        call: open.call.clone(),
        purpose: open.purpose,
        turn: state.turn,
        attempt: open.attempt,
        model: open.model.clone(),
        role: open.role.clone(),
        system,
        tools,
        nudge: open.nudge.clone(),
        output_tokens_max,
        wait_ms: 0,
        manner: manner_of((pins, role_of(state, pins)), open.purpose, &open.model, &messages),
        messages,
    }
}

/// Open calls that may have reached beyond the workspace, and so are not run again after a crash.
/// Such a call is a batch of its own; should a batch ever hold one, none of it is run again. What policy refused reached
/// nowhere, and is refused again.
pub(super) fn unknown_after_crash(state: &RunState) -> Vec<CallId> {
    let reaches = |open: &ToolRequested| {
        open.class == RecoveryClass::External && !matches!(open.policy, Verdict::Deny { .. })
    };
    if state.open_tools.iter().any(|(open, _)| reaches(open)) {
        state.open_tools.iter().map(|(open, _)| open.call.clone()).collect()
    } else {
        Vec::new()
    }
}

/// The request that a call stands for, with everything it refers to.
///
/// # Errors
/// A blob is not to be had, or the pinned tools do not decode.
pub async fn model_request<S: Blobs>(
    material: &Material<S>,
    call: &ModelCall,
) -> Result<ModelRequest, DriverError> {
    material.gather(call.messages.iter()).await?;
    let system = material.fetch(&call.system).await?;
    let tools = material.fetch(&call.tools).await?;
    let tools: Vec<ToolSpec> = serde_json::from_slice(&tools).map_err(DriverError::Tools)?;
    Ok(ModelRequest {
        model: call.model.clone(),
        system: String::from_utf8_lossy(&system).into_owned(),
        tools: if call.purpose == Purpose::Compact { Vec::new() } else { tools },
        messages: call.messages.iter().map(|said| said.message.clone()).collect(),
        max_output_tokens: call.output_tokens_max,
        temperature_milli: call.manner.temperature_milli,
        effort: call.manner.effort,
        completion_tokens: call.manner.completion_tokens,
        thought: call.manner.thought,
    })
}

/// The exact body of a call.
///
/// # Errors
/// As [`model_request`]; or the conversation is one that providers refuse.
pub async fn rendered<S: Blobs>(material: &Material<S>, call: &ModelCall) -> Result<Rendered, DriverError> {
    let request = model_request(material, call).await?;
    let body = render(&request, material)?;
    Ok(Rendered { model: call.model.clone(), body: body.into() })
}

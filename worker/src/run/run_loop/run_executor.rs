//! The run loop: decide on the state with its latest results, record results and intents in one append, act, repeat.
//! Two appends per turn.

use std::{borrow::Cow, time::Duration};

use docket_schema::{
    ids::Epoch,
    run::{FailureKind, ModelRequested, RunStage, RunState},
};
use tokio::sync::watch;

use super::intents::{RequestProof, intent_events};
use crate::run::{
    delegation::open_calls::{OpenCalls, ResumeMode},
    errors::{
        error_chain,
        executor_error::{CONCLUSIONS_MAX, RunExecutorError},
        worker_faults,
    },
    log::{
        blob_cache::BlobCache,
        journal::{Journal, JournalError, fold_unrecorded},
        pending_append::PendingAppend,
    },
    model_calls::{
        effects::EffectRunner,
        model_request::{rebuild_open_call, render_call},
    },
    permits::{
        budget::{BudgetClient, BudgetPermit, is_usage_recorded},
        rate_limit::{ProviderPermit, wait_unless_drained},
    },
    time_limits::{CALL_START_TIME_MAX, RECORD_TIME_MAX, calls_time_max},
};
use crate::{
    engine::{Action, Decision, Engine, ModelCall},
    model::{RenderedRequest, request_hash},
    progress::ProgressNote,
};

/// How a run process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunExit {
    /// The run ended, blocked or paused; everything is recorded.
    Done,
    /// The turn is finished; the lease is to be released.
    Drained,
}

/// Executes one run.
pub struct RunExecutor {
    pub(in crate::run) journal: Journal,
    pub(in crate::run) engine: Box<dyn Engine>,
    pub(in crate::run) blob_cache: BlobCache,
    pub(in crate::run) effects: EffectRunner,
    pub(in crate::run) drain: watch::Receiver<bool>,
    pub(in crate::run) permit: ProviderPermit,
}

/// The effect to perform once the intents are durable.
enum NextEffect {
    CallModel(Box<ModelCall>, RenderedRequest),
    RunTools,
    RunGates,
    /// None: the next decision follows from the recorded events alone.
    DecideAgain,
    Wait(Duration),
    Exit(RunExit),
}

impl RunExecutor {
    /// Runs until the run rests or ends, or the supervisor drains.
    ///
    /// # Errors
    /// [`RunExecutorError`]: the run cannot continue in this process.
    pub async fn run(mut self, progress: &ProgressNote) -> Result<RunExit, RunExecutorError> {
        match self.run_turns(progress).await {
            Err(error) if error.is_final() => {
                let message = error_chain::format_chain(&error);
                tracing::error!(%message, "the run cannot continue");
                let tree = self.journal.state().tree;
                self.journal.append_failure(FailureKind::Environment, message, tree).await?;
                Ok(RunExit::Done)
            }
            other => other,
        }
    }

    async fn run_turns(&mut self, progress: &ProgressNote) -> Result<RunExit, RunExecutorError> {
        progress.set_step_limit(calls_time_max(self.journal.state()));
        let Some(mut results) = self.resume_open_effects(progress).await? else {
            return Ok(RunExit::Drained);
        };
        let mut waited = false;
        loop {
            progress.set_step_limit(RECORD_TIME_MAX);
            let next = self.record_and_decide(&results, waited).await?;
            waited = matches!(next, NextEffect::Wait(_));
            let state = self.journal.state();
            progress.set_step_limit(calls_time_max(state));
            match next {
                NextEffect::CallModel(call, rendered) => {
                    match self.call_model(&call, &rendered, progress).await? {
                        Some(answer) => results = answer,
                        None => return Ok(RunExit::Drained),
                    }
                }
                NextEffect::RunTools => results = self.run_tools(ResumeMode::Fresh, progress).await?,
                NextEffect::RunGates => results = self.run_gates().await?,
                NextEffect::DecideAgain => results = PendingAppend::default(),
                NextEffect::Wait(wait) => {
                    progress.set_step_limit(wait);
                    results = PendingAppend::default();
                    wait_unless_drained(&self.drain, wait).await;
                }
                NextEffect::Exit(exit) => return Ok(exit),
            }
        }
    }

    /// Calls the model once permitted; `None` if a drain came first.
    async fn call_model(
        &mut self,
        call: &ModelCall,
        rendered: &RenderedRequest,
        progress: &ProgressNote,
    ) -> Result<Option<PendingAppend>, RunExecutorError> {
        let Self { journal, permit: pace, drain, .. } = self;
        if !pace.wait_for_permit(journal, drain, call, rendered, progress).await? {
            return Ok(None);
        }
        let state = self.journal.state();
        progress.set_step_limit(CALL_START_TIME_MAX);
        let results = self.effects.call_model(call, rendered, state, &self.blob_cache, progress).await;
        self.permit.record_usage(&results);
        match worker_faults::model_call_fault(call, &results) {
            // The request stays open: another worker sends it, byte for byte.
            Some(fault) => Err(RunExecutorError::WorkerFault(Box::new(fault))),
            None => Ok(Some(results)),
        }
    }

    /// Runs the open tool calls.
    async fn run_tools(
        &mut self,
        resumed: ResumeMode,
        progress: &ProgressNote,
    ) -> Result<PendingAppend, RunExecutorError> {
        let Self { journal, engine, blob_cache: material, effects: hands, .. } = self;
        let mut calls = OpenCalls {
            engine: engine.as_ref(),
            journal,
            executor: &mut hands.executor,
            blob_cache: material,
        };
        calls.run_all(resumed, progress).await
    }

    /// Runs the open final checks.
    async fn run_gates(&mut self) -> Result<PendingAppend, RunExecutorError> {
        let state = self.journal.state();
        let results = self.effects.executor.run_gates(state).await?;
        match worker_faults::final_checks_fault(state, &results) {
            // The checks stay open: another worker runs them.
            Some(fault) => Err(RunExecutorError::WorkerFault(Box::new(fault))),
            None => Ok(results),
        }
    }

    /// Resumes what a crash left open: intents without results. The fold lists them; the recovery class of each call
    /// says what to do. Returns `None` if a drain came first.
    async fn resume_open_effects(
        &mut self,
        progress: &ProgressNote,
    ) -> Result<Option<PendingAppend>, RunExecutorError> {
        match &self.journal.state().stage {
            RunStage::Model(open) => {
                let open = ModelRequested::clone(open);
                let call = rebuild_open_call(self.journal.state(), &open);
                let rendered = render_call(&self.blob_cache, &call).await?;
                if request_hash(&rendered.body) != open.request {
                    return Err(RunExecutorError::RequestDiverged { call: open.call.to_string() });
                }
                self.call_model(&call, &rendered, progress).await
            }
            RunStage::Tools => Ok(Some(self.run_tools(ResumeMode::Resumed, progress).await?)),
            RunStage::Gates => Ok(Some(self.run_gates().await?)),
            RunStage::Deciding => Ok(Some(PendingAppend::default())),
            other @ (RunStage::Unstarted | RunStage::Paused | RunStage::Blocked | RunStage::Ended(_)) => {
                Err(RunExecutorError::NotDeciding(other.as_str()))
            }
        }
    }

    /// Appends `results` and the intents of the decision that follows from them. If the decision must wait first,
    /// only the results are appended, so that a failure is durable during the wait. Conclusions of the engine on the
    /// way are appended with them: they are derived and need no separate append.
    async fn record_and_decide(
        &mut self,
        results: &PendingAppend,
        waited: bool,
    ) -> Result<NextEffect, RunExecutorError> {
        let purse = BudgetClient::for_journal(&self.journal);
        let epoch = self.journal.epoch;
        let Self { journal, engine, blob_cache: material, drain, .. } = self;
        journal
            .append(results, async |state| {
                if state.stage == RunStage::Tools {
                    // Its last child has just replied: the waiting calls are open.
                    return Ok((PendingAppend::default(), NextEffect::RunTools));
                }
                let EffectDecision { update_events: mut out, state, decision } =
                    decide_effect(engine.as_ref(), state, epoch)?;
                let with = |mut out: PendingAppend, more: PendingAppend| {
                    out.append_all(more);
                    out
                };
                if let Action::CallModel(call) = &decision.act {
                    if *drain.borrow() {
                        return Ok((out, NextEffect::Exit(RunExit::Drained)));
                    }
                    if call.wait_ms > 0 && !waited {
                        return Ok((out, NextEffect::Wait(Duration::from_millis(call.wait_ms))));
                    }
                    if let Some(purse) = &purse {
                        if !is_usage_recorded(results) {
                            return Ok((out, NextEffect::DecideAgain));
                        }
                        match purse.request_permit(&state, call).await? {
                            BudgetPermit::Granted => {}
                            BudgetPermit::RetryAfter(wait) => return Ok((out, NextEffect::Wait(wait))),
                            BudgetPermit::Denied(which, message) => {
                                let (over, after) = purse.record_limit_reached(&state, which, message)?;
                                out.append_all(over);
                                let (rests, next) =
                                    prepare_intents(material, &after, engine.decide(&after)).await?;
                                return Ok((with(out, rests), next));
                            }
                        }
                    }
                }
                let (more, next) = prepare_intents(material, &state, decision).await?;
                Ok((with(out, more), next))
            })
            .await
    }
}

/// The engine's conclusions, and the first decision after them that is not a conclusion.
struct EffectDecision<'a> {
    update_events: PendingAppend,
    state: Cow<'a, RunState>,
    decision: Decision,
}

fn decide_effect<'a>(
    engine: &dyn Engine,
    state: &'a RunState,
    epoch: Epoch,
) -> Result<EffectDecision<'a>, RunExecutorError> {
    let (mut out, mut state) = (PendingAppend::default(), Cow::Borrowed(state));
    for _ in 0..CONCLUSIONS_MAX {
        let decision = engine.decide(&state);
        if !matches!(decision.act, Action::Conclude(_)) {
            return Ok(EffectDecision { update_events: out, state, decision });
        }
        let mut said = PendingAppend::default();
        for (turn, event) in intent_events(&state, &decision, None) {
            said.push(turn, event);
        }
        fold_unrecorded(state.to_mut(), epoch, said.events()).map_err(JournalError::from)?;
        out.append_all(said);
    }
    Err(RunExecutorError::TooManyUpdates)
}

/// Returns the events that announce a decision, and the effect to perform once they are durable.
async fn prepare_intents(
    material: &BlobCache,
    state: &RunState,
    decision: Decision,
) -> Result<(PendingAppend, NextEffect), RunExecutorError> {
    let request = match &decision.act {
        Action::CallModel(call) => Some(render_call(material, call).await?),
        Action::RunTools(_)
        | Action::RunGates(_)
        | Action::Compact(_)
        | Action::Conclude(_)
        | Action::Pause
        | Action::Block { .. }
        | Action::End { .. } => None,
    };
    let mut out = PendingAppend::default();
    for (turn, event) in intent_events(state, &decision, request.as_ref().map(RequestProof::from_rendered)) {
        out.push(turn, event);
    }
    let next = match (decision.act, request) {
        (Action::CallModel(call), Some(rendered)) => NextEffect::CallModel(call, rendered),
        (Action::RunTools(_), _) => NextEffect::RunTools,
        (Action::RunGates(_), _) => NextEffect::RunGates,
        (Action::Compact(_) | Action::Conclude(_), _) => NextEffect::DecideAgain,
        (Action::CallModel(_), None) | (Action::Pause | Action::Block { .. } | Action::End { .. }, _) => {
            NextEffect::Exit(RunExit::Done)
        }
    };
    Ok((out, next))
}

//! The loop: decide on the state with its latest results, record results and intents in one append,
//! perform, and again. Two appends a turn.

use std::{borrow::Cow, time::Duration};

use docket_schema::{
    ids::Epoch,
    run::{FailureKind, ModelRequested, RunState, Stage},
};
use tokio::sync::watch;

use super::intent::{RequestProof, announce};
use crate::run::{
    delegation::delegate::{OpenCalls, Resumed},
    errors::{
        causes,
        driver_error::{CONCLUSIONS_MAX, DriverError},
        faults,
    },
    log::{
        journal::{Journal, JournalError, fold},
        material::Material,
        outgoing::Outgoing,
    },
    model_calls::{
        act::Hands,
        model_request::{rendered, reopened},
    },
    permits::{
        pace::{Pace, wait_unless_drained},
        paid::{Paid, Purse, are_counted},
    },
    time_limits::{ASK_AT_MOST, RECORD_AT_MOST, calls_at_most},
};
use crate::{
    engine::{Act, Decision, Engine, ModelCall},
    model::{Rendered, request_hash},
    progress::ProgressNote,
};

/// How a run process left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunExit {
    /// The run ended, blocked or paused; all is recorded.
    Done,
    /// The turn is ended; the lease is to be released.
    Drained,
}

/// See the module.
pub struct Driver {
    pub(in crate::run) journal: Journal,
    pub(in crate::run) engine: Box<dyn Engine>,
    pub(in crate::run) material: Material,
    pub(in crate::run) hands: Hands,
    pub(in crate::run) drain: watch::Receiver<bool>,
    pub(in crate::run) pace: Pace,
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
                let tree = self.journal.state().tree;
                self.journal.append_failure(FailureKind::Environment, message, tree).await?;
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
                    wait_unless_drained(&self.drain, wait).await;
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
        let Self { journal, pace, drain, .. } = self;
        if !pace.may_ask(journal, drain, call, rendered, progress).await? {
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

    /// Runs the open tool calls.
    async fn tools(&mut self, resumed: Resumed, progress: &ProgressNote) -> Result<Outgoing, DriverError> {
        let Self { journal, engine, material, hands, .. } = self;
        let mut calls = OpenCalls { engine: engine.as_ref(), journal, bench: &mut hands.bench, material };
        calls.run(resumed, progress).await
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
}

/// What an engine concluded, and the first decision after it that is more than a conclusion.
struct Concluded<'a> {
    out: Outgoing,
    state: Cow<'a, RunState>,
    decision: Decision,
}

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

//! A run's log as tests read it: complete, grouped into appends, and checked for its invariants.

use std::ops::RangeInclusive;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    event::{Envelope, Head, TypedEvent as _, verify_and_advance},
    ids::{Seq, TreeHash},
    run::{RunEvent, RunStage, RunState},
};
use docket_worker::{client::CoordinatorClient, replay, run::BlobCache};

/// Events that became durable together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedAppend {
    /// Their seqs.
    pub seqs: RangeInclusive<u64>,
    /// Their kinds.
    pub kinds: Vec<String>,
}

/// A run's events, with a checked chain.
#[derive(Debug, Clone)]
pub struct RunHistory {
    pub envelopes: Vec<Envelope>,
    /// The same, decoded.
    pub events: Vec<RunEvent>,
}

/// How often work was repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RepeatedWork {
    /// Model calls without a reply at a recovery.
    pub model_calls: usize,
    /// Batches of tools or gates without results at a recovery.
    pub batches: usize,
}

impl RunHistory {
    /// Builds the history from a run's events.
    ///
    /// # Errors
    /// Returns an error if seqs, hashes or epochs are inconsistent, or an event does not decode.
    pub fn new(envelopes: Vec<Envelope>) -> Result<Self> {
        let mut head = Head::EMPTY;
        let mut epoch = 0;
        let mut events = Vec::with_capacity(envelopes.len());
        for envelope in &envelopes {
            if envelope.kind == "Forked" {
                // Another stream, continuing from the previous hash; a fork is another task with its own
                // epochs.
                (head.seq, epoch) = (Seq(0), 0);
            }
            head = verify_and_advance(head, envelope)?;
            // Events of other writers (a user message) have the current epoch, or none.
            ensure!(envelope.epoch.0 >= epoch || envelope.epoch.0 == 0, "epochs only rise: {envelope:?}");
            epoch = epoch.max(envelope.epoch.0);
            events.push(RunEvent::decode(&envelope.kind, envelope.version, envelope.payload.as_str())?);
        }
        Ok(Self { envelopes, events })
    }

    /// Returns the appends, in order. Events of one append are recorded at the same time and have
    /// adjacent positions in the log.
    pub fn appends(&self) -> Vec<RecordedAppend> {
        let mut appends: Vec<RecordedAppend> = Vec::new();
        let mut last: Option<&Envelope> = None;
        for envelope in &self.envelopes {
            let same = last.is_some_and(|last| {
                last.recorded_at == envelope.recorded_at && last.position.0 + 1 == envelope.position.0
            });
            match appends.last_mut() {
                Some(append) if same => {
                    append.seqs = *append.seqs.start()..=envelope.seq.0;
                    append.kinds.push(envelope.kind.clone());
                }
                Some(_) | None => appends.push(RecordedAppend {
                    seqs: envelope.seq.0..=envelope.seq.0,
                    kinds: vec![envelope.kind.clone()],
                }),
            }
            last = Some(envelope);
        }
        appends
    }

    /// Returns the number of events of this kind.
    pub fn count_kind(&self, kind: &str) -> usize {
        self.envelopes.iter().filter(|envelope| envelope.kind == kind).count()
    }

    /// Returns the tree that the run ended with.
    pub fn final_tree(&self) -> Option<TreeHash> {
        self.events.iter().rev().find_map(|event| match event {
            RunEvent::RunEnded(ended) => ended.tree,
            _ => None,
        })
    }

    /// Returns the events' kinds, for messages.
    pub fn format_kinds(&self) -> String {
        let one = |e: &Envelope| format!("{}:{}/{}", e.seq, e.kind, e.epoch);
        self.envelopes.iter().map(one).collect::<Vec<_>>().join(" ")
    }

    /// Returns the work that was open at each recovery, and therefore repeated.
    ///
    /// # Errors
    /// Returns an error if the log does not fold.
    pub fn repeated_work(&self) -> Result<RepeatedWork> {
        let (mut state, mut again) = (RunState::default(), RepeatedWork::default());
        for (envelope, event) in self.envelopes.iter().zip(&self.events) {
            if matches!(event, RunEvent::RunRecovered(_)) {
                match state.stage {
                    RunStage::Model(_) => again.model_calls += 1,
                    RunStage::Tools | RunStage::Gates => again.batches += 1,
                    RunStage::Unstarted
                    | RunStage::Deciding
                    | RunStage::Paused
                    | RunStage::Blocked
                    | RunStage::Ended(_) => {}
                }
            }
            state.apply(envelope.into(), event.clone())?;
        }
        Ok(again)
    }

    /// Derives every decision and renders every request again.
    ///
    /// # Errors
    /// Returns an error if one differs.
    pub async fn verify(&self, client: &CoordinatorClient) -> Result<()> {
        let verified = replay::verify(&self.envelopes, &BlobCache::new(client.clone())).await;
        let verified = verified.map_err(anyhow::Error::from).context("decisions derived again")?;
        ensure!(verified.decisions > 0 && verified.requests > 0, "nothing was compared: {verified:?}");
        Ok(())
    }
}

//! How fast model providers may be asked, as a coordinator knows it: the fold of `system/limits`, tailed.

mod waits;

use std::sync::{PoisonError, RwLock};

use docket_schema::{
    event::TypedEvent as _,
    ids::{Epoch, RunId, StreamId, SystemTopic, Timestamp, Turn},
    system::{Limits, PermitCost, SystemEvent, TopicError},
    wire::{PAGE_EVENTS_MAX, PERMIT_WAIT_MS_MAX, PermitRequest, PermitResponse},
};

pub(crate) use self::waits::Waits;
use crate::store::{Append, AppendError, Condition, Permitted, Store, StoreError};

/// The stream.
pub const STREAM: StreamId = StreamId::System(SystemTopic::Limits);

/// How often what another was faster with is decided anew.
const TRIES: u32 = 8;

/// Wait of whoever finds as many calls under way as may be: one ends any moment, and nobody is woken by it.
const CROWDED_MS: u64 = 250;

/// Least wait of whoever is to ask again.
const WAIT_MS_MIN: u64 = 50;

/// Limits could not be read, or written.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What it holds does not fold.
    #[error("the log's limits cannot be read; `docket verify` says more, a newer docket may know them")]
    Log(#[from] TopicError),
    /// An append was refused.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Others were faster, again and again.
    #[error("many change limits at once; try again")]
    Contended,
}

/// The fold, as far as this coordinator has read it.
#[derive(Debug, Default)]
pub struct LimitTable(RwLock<Limits>, Waits);

impl LimitTable {
    /// What was read.
    pub fn known(&self) -> Limits {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Which runs wait.
    pub(crate) const fn waits(&self) -> &Waits {
        &self.1
    }

    /// The providers with limits, by name.
    pub fn providers(&self) -> Vec<String> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.all().map(|(set, _)| set.provider.clone()).collect()
    }

    /// Whether the calls under way are counted for any provider.
    pub fn counts_calls(&self) -> bool {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.all().any(|(set, _)| set.limits.concurrent.is_some())
    }

    /// Reads what the log has that the table lacks.
    ///
    /// # Errors
    /// [`LimitError`].
    pub async fn catch_up(&self, store: &dyn Store) -> Result<(), LimitError> {
        loop {
            let head = self.0.read().unwrap_or_else(PoisonError::into_inner).head();
            let page = store.read(STREAM, head, PAGE_EVENTS_MAX).await?;
            let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
            for event in &page {
                // Another may have read the same meanwhile.
                if event.seq > known.head() {
                    known.apply(&event.by_ref())?;
                }
            }
            if page.len() < PAGE_EVENTS_MAX as usize {
                return Ok(());
            }
        }
    }

    /// Appends what `decide` makes of the fold; nothing where it makes nothing.
    ///
    /// # Errors
    /// What `decide` says, or [`LimitError`].
    pub async fn change<E: From<LimitError>>(
        &self,
        store: &dyn Store,
        now: Timestamp,
        decide: impl Fn(&Limits) -> Result<Option<SystemEvent>, E>,
    ) -> Result<Limits, E> {
        for _ in 0..TRIES {
            self.catch_up(store).await?;
            let known = self.known();
            let Some(event) = decide(&known)? else { return Ok(known) };
            let append = Append {
                stream: STREAM,
                condition: Condition::Expected(known.head()),
                events: vec![event.encode(Turn(0))],
                blobs: Vec::new(),
                names: Vec::new(),
                now,
            };
            match store.append(append).await {
                Ok(_) => {
                    self.catch_up(store).await?;
                    return Ok(self.known());
                }
                Err(AppendError::WrongSeq { .. }) => {}
                Err(error) => return Err(LimitError::from(error).into()),
            }
        }
        Err(LimitError::Contended.into())
    }

    /// Whether, and when, a call may be made. Whoever is told a moment has it for itself.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn permit(
        &self,
        store: &dyn Store,
        caller: (RunId, Epoch),
        request: &PermitRequest,
        now: Timestamp,
    ) -> Result<PermitResponse, StoreError> {
        let Some(limits) = self.known().get(&request.provider).map(|(set, _)| set.limits) else {
            self.1.goes_on(caller.0);
            return Ok(PermitResponse::GRANTED);
        };
        let cost: PermitCost = limits.cost(request.tokens, request.correction);
        let until = now.plus_ms(PERMIT_WAIT_MS_MAX);
        let wait = |at: Timestamp, from: Timestamp| {
            // Rounded up: never early.
            u64::try_from(at.0.saturating_sub(from.0)).unwrap_or(0).div_ceil(1000).min(PERMIT_WAIT_MS_MAX)
        };
        let permitted = store.permit(request.provider.clone(), caller, cost, now, until).await?;
        let not_before = match permitted {
            Permitted::At(at) | Permitted::NotBefore(at) => Some(at),
            Permitted::Crowded => None,
        };
        let response = match permitted {
            Permitted::At(at) => {
                PermitResponse { granted: true, wait_ms: wait(at, now), over: None, alone: false }
            }
            Permitted::Crowded => {
                PermitResponse { granted: false, wait_ms: CROWDED_MS, over: None, alone: false }
            }
            Permitted::NotBefore(at) => PermitResponse {
                granted: false,
                wait_ms: wait(at, until).max(WAIT_MS_MIN),
                over: None,
                alone: false,
            },
        };
        if response.wait_ms == 0 {
            self.1.goes_on(caller.0);
        } else {
            let of = (request.provider.as_str(), limits);
            self.1.waits(caller, of, (now, response.wait_ms), not_before);
        }
        Ok(response)
    }
}

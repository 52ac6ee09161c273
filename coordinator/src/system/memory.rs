//! What is remembered beyond runs, as a coordinator knows it: the fold of `system/memory`, tailed. Values are blobs and
//! are read when they are asked for.
//!
//! Invariants: what is acknowledged is in the log; a call of a run changes something once, however often it is sent.

use std::sync::{PoisonError, RwLock};

use docket_schema::{
    content::BlobRef,
    event::TypedEvent as _,
    ids::{StreamId, SystemTopic, Timestamp, Turn},
    system::{
        MEMORY_KEYS_MAX, Memories, MemoryCall, MemoryForgotten, MemorySaved, MemoryScope, Remembered,
        SystemEvent, TopicError, memory_begin,
    },
    wire::PAGE_EVENTS_MAX,
};

use crate::store::{Append, AppendError, Condition, NewBlob, Store, StoreError};

/// The stream.
pub const STREAM: StreamId = StreamId::System(SystemTopic::Memory);

/// How often what another coordinator was faster with is decided anew.
const TRIES: u32 = 8;

/// Memory could not be read, or written.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What it holds does not fold.
    #[error("what the log remembers cannot be read; `docket verify` says more, a newer docket may know it")]
    Log(#[from] TopicError),
    /// An append was refused.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Others were faster, again and again.
    #[error("many change what is remembered at once; try again")]
    Contended,
    /// The scope has as many keys as it may have.
    #[error(
        "{MEMORY_KEYS_MAX} keys are remembered here, and there is no room for another: forget some first"
    )]
    Full,
}

/// What came of forgetting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgotten {
    /// It is forgotten: now, or by the same call before.
    Yes,
    /// Nothing was remembered.
    Absent,
}

/// See the module.
#[derive(Debug, Default)]
pub struct MemoryTable {
    known: RwLock<Memories>,
    /// One change at a time: others of this process wait for it in place of being refused for their seq.
    changing: tokio::sync::Mutex<()>,
}

impl MemoryTable {
    /// What was read.
    fn read<T>(&self, look: impl FnOnce(&Memories) -> T) -> T {
        look(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads what the log has that the table lacks.
    async fn catch_up(&self, store: &dyn Store) -> Result<(), MemoryError> {
        loop {
            let page = store.read(STREAM, self.read(Memories::head), PAGE_EVENTS_MAX).await?;
            let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
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

    /// What is remembered under a key.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub async fn get(
        &self,
        store: &dyn Store,
        scope: &MemoryScope,
        key: &str,
    ) -> Result<Option<Remembered>, MemoryError> {
        self.catch_up(store).await?;
        Ok(self.read(|known| known.get(scope, key).cloned()))
    }

    /// What is remembered in a scope, or in all, by scope and key; at most `most`.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub async fn list(
        &self,
        store: &dyn Store,
        scope: Option<&MemoryScope>,
        most: usize,
    ) -> Result<Vec<Remembered>, MemoryError> {
        self.catch_up(store).await?;
        Ok(self.read(|known| match scope {
            Some(scope) => known.of(scope).take(most).cloned().collect(),
            None => known.all().take(most).cloned().collect(),
        }))
    }

    /// Remembers a value; answers how many keys its scope has.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub async fn save(
        &self,
        store: &dyn Store,
        now: Timestamp,
        (scope, key): (&MemoryScope, &str),
        value: &str,
        by: MemoryCall,
    ) -> Result<usize, MemoryError> {
        let blob = BlobRef::of(value.as_bytes());
        let decide = |known: &Memories| {
            if known.knows(&by) {
                return Ok(None);
            }
            if known.get(scope, key).is_none() && known.count(scope) >= MEMORY_KEYS_MAX {
                return Err(MemoryError::Full);
            }
            let saved = MemorySaved {
                scope: scope.clone(),
                key: key.to_owned(),
                value: blob,
                begins: memory_begin(value),
                by: by.clone(),
            };
            Ok(Some(SystemEvent::from(saved)))
        };
        let bytes = NewBlob { blob, bytes: value.as_bytes().to_vec().into() };
        self.change(store, now, decide, &[bytes]).await?;
        Ok(self.read(|known| known.count(scope)))
    }

    /// Forgets a key; `call` is that of a run, `by` who does it.
    ///
    /// # Errors
    /// [`MemoryError`].
    pub async fn forget(
        &self,
        store: &dyn Store,
        now: Timestamp,
        (scope, key): (&MemoryScope, &str),
        call: Option<MemoryCall>,
        by: String,
    ) -> Result<Forgotten, MemoryError> {
        let mut found = Forgotten::Yes;
        let decide = |known: &Memories| {
            found = Forgotten::Yes;
            if call.as_ref().is_some_and(|call| known.knows(call)) {
                return Ok(None);
            }
            if known.get(scope, key).is_none() {
                found = Forgotten::Absent;
                return Ok(None);
            }
            let (scope, key) = (scope.clone(), key.to_owned());
            Ok(Some(MemoryForgotten { scope, key, call: call.clone(), by: by.clone() }.into()))
        };
        self.change(store, now, decide, &[]).await?;
        Ok(found)
    }

    /// Appends what `decide` makes of the fold; nothing where it makes nothing.
    async fn change(
        &self,
        store: &dyn Store,
        now: Timestamp,
        mut decide: impl FnMut(&Memories) -> Result<Option<SystemEvent>, MemoryError>,
        blobs: &[NewBlob],
    ) -> Result<(), MemoryError> {
        let _alone = self.changing.lock().await;
        for _ in 0..TRIES {
            self.catch_up(store).await?;
            let (head, decided) = self.read(|known| (known.head(), decide(known)));
            let Some(event) = decided? else { return Ok(()) };
            let append = Append {
                stream: STREAM,
                condition: Condition::Expected(head),
                events: vec![event.encode(Turn(0))],
                blobs: blobs.to_vec(),
                names: Vec::new(),
                now,
            };
            match store.append(append).await {
                Ok(_) => return self.catch_up(store).await,
                Err(AppendError::WrongSeq { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(MemoryError::Contended)
    }
}

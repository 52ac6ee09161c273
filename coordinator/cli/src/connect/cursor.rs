//! A durable cursor into the log: a position together with the hash of its event.
//!
//! A position alone could refer to a different log: after a backup was restored, or when the home was pointed
//! at another store, there would be nothing behind it, or other tasks. The event's hash is therefore stored
//! with it and checked before the position is trusted. The owner of the cursor decides what to do when the
//! check fails.

use std::path::{Path, PathBuf};

use docket_schema::{
    event::Envelope,
    ids::{EventHash, Position},
};
use docket_worker::client::{ClientError, CoordinatorClient};

/// A position in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogMark {
    pub(crate) position: Position,
    /// Hash of the event at the position; zero before the first event.
    hash: EventHash,
}

impl LogMark {
    pub(crate) const START: Self = Self { position: Position(0), hash: EventHash::ZERO };

    /// The mark of `event`.
    pub(crate) const fn from_event(event: &Envelope) -> Self {
        Self { position: event.position, hash: event.hash }
    }

    fn parse(text: &str) -> Option<Self> {
        let (position, hash) = text.trim().split_once(' ')?;
        Some(Self { position: Position(position.parse().ok()?), hash: hash.parse().ok()? })
    }
}

impl std::fmt::Display for LogMark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.position, self.hash)
    }
}

/// What the log contains at a saved mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CursorCheck {
    /// The same event.
    Unchanged(LogMark),
    /// No event, but later ones exist: the event was archived.
    Archived(LogMark),
    /// A different event, or the log ends earlier: a backup was restored, or this is another store.
    Replaced(LogMark),
}

/// A file in the home that stores how far a job has processed the log.
pub(crate) struct LogCursor {
    path: PathBuf,
    work: &'static str,
    saved: Option<LogMark>,
}

impl LogCursor {
    /// Opens the cursor file `name`; `work` names the job in one word. A missing or damaged file counts as
    /// empty.
    pub(crate) fn open(home: &Path, name: &str, work: &'static str) -> Self {
        let path = home.join(name);
        let written = LogMark::parse(&std::fs::read_to_string(&path).unwrap_or_default());
        Self { path, work, saved: written }
    }

    /// Whether a mark was ever saved.
    pub(crate) const fn has_mark(&self) -> bool {
        self.saved.is_some()
    }

    /// Compares the saved mark with this log.
    pub(crate) async fn check_mark(&self, client: &CoordinatorClient) -> Result<CursorCheck, ClientError> {
        let Some(kept) = self.saved.filter(|mark| mark.position > Position(0)) else {
            return Ok(CursorCheck::Unchanged(LogMark::START));
        };
        let page = client.list_log_events(Position(kept.position.0 - 1), Some(1)).await?;
        Ok(match page.events.first() {
            Some(event) if LogMark::from_event(event) == kept => CursorCheck::Unchanged(kept),
            Some(event) if event.position > kept.position => CursorCheck::Archived(kept),
            Some(_) | None => CursorCheck::Replaced(kept),
        })
    }

    /// Returns where to continue reading: the saved mark if this log contains that event, else the beginning.
    pub(crate) async fn verified_mark(&self, client: &CoordinatorClient) -> Result<LogMark, ClientError> {
        match self.check_mark(client).await? {
            CursorCheck::Unchanged(mark) => Ok(mark),
            CursorCheck::Archived(kept) | CursorCheck::Replaced(kept) => {
                tracing::warn!(
                    position = %kept.position,
                    work = self.work,
                    "this is a different log than before, or the event was archived: it is read again from the \
                     beginning"
                );
                Ok(LogMark::START)
            }
        }
    }

    /// Saves the mark if it changed.
    pub(crate) fn save(&mut self, mark: LogMark) {
        if self.saved == Some(mark) {
            return;
        }
        // Written to a temporary file first: a truncated cursor file would count as empty.
        let aside = self.path.with_extension("new");
        let written =
            std::fs::write(&aside, mark.to_string()).and_then(|()| std::fs::rename(&aside, &self.path));
        match written {
            Ok(()) => self.saved = Some(mark),
            Err(error) => {
                tracing::warn!(%error, work = self.work, "the cursor cannot be saved; some work will be repeated");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_round_trips_and_malformed_text_is_ignored() {
        let mark = LogMark { position: Position(95), hash: EventHash([7; 32]) };
        assert_eq!(LogMark::parse(&format!("{mark}\n")), Some(mark));
        for none in ["", "95", "95 x", "x 07", "95  "] {
            assert_eq!(LogMark::parse(none), None, "{none}");
        }
    }
}

//! Up to where somebody has done its work along the log: a place in it, and which event stands there.
//!
//! The place alone would be of another log where a backup took the database's place, or where the home was pointed at
//! another store: behind it nothing, or other tasks. So the event's hash stands beside it, and is looked for before the
//! place is believed. What is done where it is not there, whoever keeps it says.

use std::path::{Path, PathBuf};

use docket_schema::{
    event::Envelope,
    ids::{EventHash, Position},
};
use docket_worker::client::{ClientError, CoordinatorClient};

/// A place in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogMark {
    /// Where.
    pub(crate) position: Position,
    /// Of the event that stands there; zero before the first.
    hash: EventHash,
}

impl LogMark {
    pub(crate) const START: Self = Self { position: Position(0), hash: EventHash::ZERO };

    /// Where `event` stands.
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

/// What a log has at a place that was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CursorCheck {
    /// The event that stood there.
    Unchanged(LogMark),
    /// Nothing there, and later ones: it was archived.
    Archived(LogMark),
    /// Another event, or the log ends before: a backup took its place, or it is another store's.
    Replaced(LogMark),
}

/// A file in the home, and what is done up to there.
pub(crate) struct LogCursor {
    path: PathBuf,
    work: &'static str,
    saved: Option<LogMark>,
}

impl LogCursor {
    /// What the file `name` says; `work` is what is done up to there, in a word. One that is missing or damaged
    /// says nothing.
    pub(crate) fn open(home: &Path, name: &str, work: &'static str) -> Self {
        let path = home.join(name);
        let written = LogMark::parse(&std::fs::read_to_string(&path).unwrap_or_default());
        Self { path, work, saved: written }
    }

    /// Whether it was ever kept.
    pub(crate) const fn has_mark(&self) -> bool {
        self.saved.is_some()
    }

    /// What this log has where the place was kept.
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

    /// Where to read on: the place that was kept, if this log has that event there; else the begin.
    pub(crate) async fn verified_mark(&self, client: &CoordinatorClient) -> Result<LogMark, ClientError> {
        match self.check_mark(client).await? {
            CursorCheck::Unchanged(mark) => Ok(mark),
            CursorCheck::Archived(kept) | CursorCheck::Replaced(kept) => {
                tracing::warn!(
                    position = %kept.position,
                    work = self.work,
                    "this is not the log that this was done of before, or the event was archived: it is looked \
                     through from the begin"
                );
                Ok(LogMark::START)
            }
        }
    }

    /// Keeps it, if it is another.
    pub(crate) fn save(&mut self, mark: LogMark) {
        if self.saved == Some(mark) {
            return;
        }
        // Aside first: a file that was cut would say nothing.
        let aside = self.path.with_extension("new");
        let written =
            std::fs::write(&aside, mark.to_string()).and_then(|()| std::fs::rename(&aside, &self.path));
        match written {
            Ok(()) => self.saved = Some(mark),
            Err(error) => {
                tracing::warn!(%error, work = self.work, "how far it is done cannot be written; it is looked at again");
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

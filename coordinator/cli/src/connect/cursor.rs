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
use docket_worker::client::{Client, ClientError};

/// A place in a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    /// Where.
    pub(crate) position: Position,
    /// Of the event that stands there; zero before the first.
    hash: EventHash,
}

impl Mark {
    pub(crate) const BEGIN: Self = Self { position: Position(0), hash: EventHash::ZERO };

    /// Where `event` stands.
    pub(crate) const fn of(event: &Envelope) -> Self {
        Self { position: event.position, hash: event.hash }
    }

    fn parse(text: &str) -> Option<Self> {
        let (position, hash) = text.trim().split_once(' ')?;
        Some(Self { position: Position(position.parse().ok()?), hash: hash.parse().ok()? })
    }
}

impl std::fmt::Display for Mark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.position, self.hash)
    }
}

/// What a log has at a place that was kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The event that stood there.
    Same(Mark),
    /// Nothing there, and later ones: it was archived.
    Beyond(Mark),
    /// Another event, or the log ends before: a backup took its place, or it is another store's.
    Another(Mark),
}

/// A file in the home, and what is done up to there.
pub(crate) struct Cursor {
    path: PathBuf,
    work: &'static str,
    written: Option<Mark>,
}

impl Cursor {
    /// What the file `name` says; `work` is what is done up to there, in a word. One that is missing or damaged
    /// says nothing.
    pub(crate) fn open(home: &Path, name: &str, work: &'static str) -> Self {
        let path = home.join(name);
        let written = Mark::parse(&std::fs::read_to_string(&path).unwrap_or_default());
        Self { path, work, written }
    }

    /// Whether it was ever kept.
    pub(crate) const fn is_known(&self) -> bool {
        self.written.is_some()
    }

    /// What this log has where the place was kept.
    pub(crate) async fn found(&self, client: &Client) -> Result<Found, ClientError> {
        let Some(kept) = self.written.filter(|mark| mark.position > Position(0)) else {
            return Ok(Found::Same(Mark::BEGIN));
        };
        let page = client.feed(Position(kept.position.0 - 1), Some(1)).await?;
        Ok(match page.events.first() {
            Some(event) if Mark::of(event) == kept => Found::Same(kept),
            Some(event) if event.position > kept.position => Found::Beyond(kept),
            Some(_) | None => Found::Another(kept),
        })
    }

    /// Where to read on: the place that was kept, if this log has that event there; else the begin.
    pub(crate) async fn proven(&self, client: &Client) -> Result<Mark, ClientError> {
        match self.found(client).await? {
            Found::Same(mark) => Ok(mark),
            Found::Beyond(kept) | Found::Another(kept) => {
                tracing::warn!(
                    position = %kept.position,
                    work = self.work,
                    "this is not the log that this was done of before, or the event was archived: it is looked \
                     through from the begin"
                );
                Ok(Mark::BEGIN)
            }
        }
    }

    /// Keeps it, if it is another.
    pub(crate) fn keep(&mut self, mark: Mark) {
        if self.written == Some(mark) {
            return;
        }
        // Aside first: a file that was cut would say nothing.
        let aside = self.path.with_extension("new");
        let written =
            std::fs::write(&aside, mark.to_string()).and_then(|()| std::fs::rename(&aside, &self.path));
        match written {
            Ok(()) => self.written = Some(mark),
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
    fn a_mark_is_read_as_it_was_written_and_an_older_file_says_nothing() {
        let mark = Mark { position: Position(95), hash: EventHash([7; 32]) };
        assert_eq!(Mark::parse(&format!("{mark}\n")), Some(mark));
        for none in ["", "95", "95 x", "x 07", "95  "] {
            assert_eq!(Mark::parse(none), None, "{none}");
        }
    }
}

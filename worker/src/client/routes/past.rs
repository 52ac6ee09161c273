//! A run's past, as the coordinator derives it: its turns, what each of them was, what differs.

use docket_schema::{
    ids::RunId,
    wire::{DiffQuery, DiffView, Timeline, TurnAnswer},
};
use reqwest::Method;

use crate::client::{Client, ClientError};

impl Client {
    /// A run turn by turn, in a line each.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn timeline(&self, run: RunId) -> Result<Timeline, ClientError> {
        self.call("read a run's timeline", Method::GET, &format!("/v1/runs/{run}/timeline")).answer().await
    }

    /// One turn of a run, and what the run knew after it; the newest where none is named.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn turn(&self, run: RunId, turn: Option<u32>) -> Result<TurnAnswer, ClientError> {
        let path = format!("/v1/runs/{run}/turn");
        self.call("read a turn", Method::GET, &path).maybe("turn", turn).answer().await
    }

    /// What differs between two moments of a run. For administrators.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn difference(&self, run: RunId, query: &DiffQuery) -> Result<DiffView, ClientError> {
        let call = self.call("read what differs", Method::GET, &format!("/v1/runs/{run}/diff"));
        call.maybe("from", query.from).maybe("to", query.to).maybe("with", query.with).answer().await
    }
}

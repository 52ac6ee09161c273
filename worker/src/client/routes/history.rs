//! A run's past, as the coordinator derives it: its turns, what each of them was, what differs.

use docket_schema::{
    api::{DiffQuery, DiffView, RunTimeline, TurnResponse},
    ids::RunId,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// A run turn by turn, in a line each.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_timeline(&self, run: RunId) -> Result<RunTimeline, ClientError> {
        self.build_call("read a run's timeline", Method::GET, &format!("/v1/runs/{run}/timeline"))
            .send_for_json()
            .await
    }

    /// One turn of a run, and what the run knew after it; the newest where none is named.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_turn(&self, run: RunId, turn: Option<u32>) -> Result<TurnResponse, ClientError> {
        let path = format!("/v1/runs/{run}/turn");
        self.build_call("read a turn", Method::GET, &path)
            .with_optional_query("turn", turn)
            .send_for_json()
            .await
    }

    /// What differs between two moments of a run. For administrators.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_diff(&self, run: RunId, query: &DiffQuery) -> Result<DiffView, ClientError> {
        let call = self.build_call("read what differs", Method::GET, &format!("/v1/runs/{run}/diff"));
        call.with_optional_query("from", query.from)
            .with_optional_query("to", query.to)
            .with_optional_query("with", query.with)
            .send_for_json()
            .await
    }
}

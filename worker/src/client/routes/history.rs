//! A run's history, as derived by the coordinator: its turns, their content, and differences.

use docket_schema::{
    api::{DiffQuery, DiffView, RunTimeline, TurnResponse},
    ids::RunId,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// Returns the turns of a run, one line each.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn get_timeline(&self, run: RunId) -> Result<RunTimeline, ClientError> {
        self.build_call("read a run's timeline", Method::GET, &format!("/v1/runs/{run}/timeline"))
            .send_for_json()
            .await
    }

    /// Returns one turn of a run and the run's state after it; the latest turn if `None`.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn get_turn(&self, run: RunId, turn: Option<u32>) -> Result<TurnResponse, ClientError> {
        let path = format!("/v1/runs/{run}/turn");
        self.build_call("read a turn", Method::GET, &path)
            .with_optional_query("turn", turn)
            .send_for_json()
            .await
    }

    /// Returns the differences between two points of a run. Requires an administrator's token.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn get_diff(&self, run: RunId, query: &DiffQuery) -> Result<DiffView, ClientError> {
        let call = self.build_call("read a diff", Method::GET, &format!("/v1/runs/{run}/diff"));
        call.with_optional_query("from", query.from)
            .with_optional_query("to", query.to)
            .with_optional_query("with", query.with)
            .send_for_json()
            .await
    }
}

//! Calls about results: deliveries, and a person's acceptance or rejection.

use docket_schema::{
    api::{AcceptRequest, DeliveryRequest, DeliveryStep, RejectRequest, ResumeResponse},
    ids::{RunId, TaskId},
    task::TaskRecord,
};
use reqwest::Method;

use crate::client::{error::ClientError, transport::CoordinatorClient};

impl CoordinatorClient {
    /// Records a delivery step of `run`'s result; returns the updated task.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn record_delivery(
        &self,
        task: TaskId,
        run: RunId,
        step: DeliveryStep,
    ) -> Result<TaskRecord, ClientError> {
        let path = format!("/v1/tasks/{task}/delivery");
        self.build_call("record a delivery", Method::POST, &path)
            .with_json(&DeliveryRequest { run, step })?
            .send_for_json()
            .await
    }

    /// Accepts a run's result.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `wrong_state` if its task was not completed by this run.
    pub async fn accept(&self, run: RunId, comment: &str) -> Result<TaskRecord, ClientError> {
        let request = AcceptRequest { comment: comment.to_owned() };
        self.build_call("accept a run", Method::POST, &format!("/v1/runs/{run}/accept"))
            .with_json(&request)?
            .send_for_json()
            .await
    }

    /// Rejects a run's result: a new run of its task continues from the last finished turn, with the reason
    /// and the additional text as a message.
    ///
    /// # Errors
    /// Those of [`CoordinatorClient::accept`].
    pub async fn reject(
        &self,
        run: RunId,
        comment: &str,
        beside: Option<String>,
    ) -> Result<ResumeResponse, ClientError> {
        let request = RejectRequest { comment: comment.to_owned(), beside };
        self.build_call("reject a run", Method::POST, &format!("/v1/runs/{run}/reject"))
            .with_json(&request)?
            .send_for_json()
            .await
    }
}

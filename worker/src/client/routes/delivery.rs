//! Calls about results: what was delivered, and what a person says of it.

use docket_schema::{
    api::{AcceptRequest, DeliveryRequest, DeliveryStep, RejectRequest, ResumeResponse},
    ids::{RunId, TaskId},
    task::TaskRecord,
};
use reqwest::Method;

use crate::client::{error::ClientError, transport::CoordinatorClient};

impl CoordinatorClient {
    /// Records a step of delivering `run`'s result; gives its task as it is then.
    ///
    /// # Errors
    /// [`ClientError`].
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

    /// Takes a run's result.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where its task is not completed by it.
    pub async fn accept(&self, run: RunId, comment: &str) -> Result<TaskRecord, ClientError> {
        let request = AcceptRequest { comment: comment.to_owned() };
        self.build_call("accept a run", Method::POST, &format!("/v1/runs/{run}/accept"))
            .with_json(&request)?
            .send_for_json()
            .await
    }

    /// Does not take a run's result: a new run of its task goes on from the last turn that ended, and is told why, and
    /// what stands `beside` that.
    ///
    /// # Errors
    /// As [`Client::accept`].
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

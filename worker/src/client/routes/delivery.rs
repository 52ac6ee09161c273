//! Calls about results: what was delivered, and what a person says of it.

use docket_schema::{
    ids::{RunId, TaskId},
    task::TaskRecord,
    wire::{AcceptRequest, DeliveryRequest, DeliveryStep, RejectRequest, ResumeResponse},
};
use reqwest::Method;

use crate::client::{error::ClientError, transport::Client};

impl Client {
    /// Records a step of delivering `run`'s result; gives its task as it is then.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn delivery(
        &self,
        task: TaskId,
        run: RunId,
        step: DeliveryStep,
    ) -> Result<TaskRecord, ClientError> {
        let path = format!("/v1/tasks/{task}/delivery");
        self.call("record a delivery", Method::POST, &path)
            .json(&DeliveryRequest { run, step })?
            .answer()
            .await
    }

    /// Takes a run's result.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where its task is not completed by it.
    pub async fn accept(&self, run: RunId, comment: &str) -> Result<TaskRecord, ClientError> {
        let request = AcceptRequest { comment: comment.to_owned() };
        self.call("accept a run", Method::POST, &format!("/v1/runs/{run}/accept"))
            .json(&request)?
            .answer()
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
        self.call("reject a run", Method::POST, &format!("/v1/runs/{run}/reject"))
            .json(&request)?
            .answer()
            .await
    }
}

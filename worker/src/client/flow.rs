//! Queues and workers: how they stand, pause, limit, drain; and why a task does not run.

use docket_schema::{
    ids::{IncarnationId, QueueName, TaskId},
    wire::{DrainWorkerRequest, QueueList, QueueView, SetQueueRequest, WhyView},
};
use reqwest::Method;

use super::{Client, ClientError};

impl Client {
    /// What keeps a task from running.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn why(&self, task: TaskId) -> Result<WhyView, ClientError> {
        self.call("ask why a task does not run", Method::GET, &format!("/v1/tasks/{task}/why")).answer().await
    }

    /// Every queue with tasks or settings.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn queues(&self) -> Result<QueueList, ClientError> {
        self.call("list queues", Method::GET, "/v1/queues").answer().await
    }

    /// Sets what is named of a queue. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn set_queue(
        &self,
        name: &QueueName,
        request: &SetQueueRequest,
    ) -> Result<QueueView, ClientError> {
        self.call("set a queue", Method::POST, &format!("/v1/queues/{name}")).json(request)?.answer().await
    }

    /// Lets a worker take no more and end. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn drain_worker(&self, incarnation: IncarnationId) -> Result<(), ClientError> {
        let path = format!("/v1/workers/{incarnation}/drain");
        let answer = self.call("drain a worker", Method::POST, &path).json(&DrainWorkerRequest {})?;
        answer.answer::<DrainWorkerRequest>().await.map(drop)
    }
}

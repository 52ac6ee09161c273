//! Queues, workers, the inbox: how they stand, pause, limit, drain; and why a task does not run.

use std::fmt::Write as _;

use docket_schema::{
    ids::{IncarnationId, QueueName, TaskId},
    wire::{DrainWorkerRequest, InboxActRequest, InboxList, QueueList, QueueView, SetQueueRequest, WhyView},
};
use reqwest::Method;

use crate::client::{Client, ClientError};

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

    /// What applications enqueued and no coordinator has made tasks of.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn inbox(&self) -> Result<InboxList, ClientError> {
        self.call("list the inbox", Method::GET, "/v1/inbox").answer().await
    }

    /// Drops a row of the inbox.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn drop_inbox(&self, row: &str) -> Result<(), ClientError> {
        self.act_inbox("drop what was enqueued", row, "drop").await
    }

    /// Has a row of the inbox looked at once more. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn retry_inbox(&self, row: &str) -> Result<(), ClientError> {
        self.act_inbox("look at what was enqueued once more", row, "retry").await
    }

    async fn act_inbox(&self, doing: &'static str, row: &str, act: &str) -> Result<(), ClientError> {
        let path = format!("/v1/inbox/{}/{act}", in_path(row));
        let answer = self.call(doing, Method::POST, &path).json(&InboxActRequest {})?;
        answer.answer::<InboxActRequest>().await.map(drop)
    }
}

/// A row's id is whatever an application wrote.
fn in_path(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string cannot fail");
        }
        out
    })
}

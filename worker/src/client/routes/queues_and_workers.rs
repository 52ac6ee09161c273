//! Queues, workers and the inbox: list, pause, limit, drain; and why a task does not run.

use std::fmt::Write as _;

use docket_schema::{
    api::{DrainWorkerRequest, InboxActRequest, InboxList, QueueList, QueueView, SetQueueRequest, WhyView},
    ids::{IncarnationId, QueueName, TaskId},
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// Returns what keeps a task from running.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if there is no such task.
    pub async fn explain_task(&self, task: TaskId) -> Result<WhyView, ClientError> {
        self.build_call("explain why a task does not run", Method::GET, &format!("/v1/tasks/{task}/why"))
            .send_for_json()
            .await
    }

    /// Lists every queue with tasks or settings.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_queues(&self) -> Result<QueueList, ClientError> {
        self.build_call("list queues", Method::GET, "/v1/queues").send_for_json().await
    }

    /// Changes the given settings of a queue. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn set_queue(
        &self,
        name: &QueueName,
        request: &SetQueueRequest,
    ) -> Result<QueueView, ClientError> {
        self.build_call("set a queue", Method::POST, &format!("/v1/queues/{name}"))
            .with_json(request)?
            .send_for_json()
            .await
    }

    /// Drains a worker: it takes no more tasks and then exits. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if there is no such worker.
    pub async fn drain_worker(&self, incarnation: IncarnationId) -> Result<(), ClientError> {
        let path = format!("/v1/workers/{incarnation}/drain");
        let answer =
            self.build_call("drain a worker", Method::POST, &path).with_json(&DrainWorkerRequest {})?;
        answer.send_for_json::<DrainWorkerRequest>().await.map(drop)
    }

    /// Lists inbox entries that have not become tasks.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_inbox(&self) -> Result<InboxList, ClientError> {
        self.build_call("list the inbox", Method::GET, "/v1/inbox").send_for_json().await
    }

    /// Deletes an inbox row.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if there is no such row.
    pub async fn drop_inbox_row(&self, row: &str) -> Result<(), ClientError> {
        self.update_inbox_row("drop an inbox row", row, "drop").await
    }

    /// Schedules an inbox row for another attempt. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if there is no such row.
    pub async fn retry_inbox_row(&self, row: &str) -> Result<(), ClientError> {
        self.update_inbox_row("retry an inbox row", row, "retry").await
    }

    async fn update_inbox_row(&self, doing: &'static str, row: &str, act: &str) -> Result<(), ClientError> {
        let path = format!("/v1/inbox/{}/{act}", percent_encode(row));
        let answer = self.build_call(doing, Method::POST, &path).with_json(&InboxActRequest {})?;
        answer.send_for_json::<InboxActRequest>().await.map(drop)
    }
}

/// A row's id is arbitrary text written by an application.
fn percent_encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_' {
            out.push(char::from(byte));
        } else {
            write!(out, "%{byte:02X}").expect("writing to a string cannot fail");
        }
        out
    })
}

//! Task and run routes, one method each.

use docket_schema::{
    api::{
        AnswerRequest, AppendRequest, AppendResponse, BlobCheckResponse, CancelTaskRequest, ChildList,
        CoordinatorStatus, DelegateRequest, DelegateResponse, EventPage, ForkRequest, ForkResponse,
        HealthResponse, HeartbeatRequest, HeartbeatResponse, LeaseRequest, LeaseResponse, LineageView,
        PAGE_EVENTS_MAX, PauseRequest, PolicyRequest, ReleaseRequest, ReleaseResponse, ResolveResponse,
        ResumeRequest, ResumeResponse, RetryRequest, RunView, StreamPage, SubmitRequest, SubmitResponse,
        TaskView, TellRequest, TellResponse,
    },
    event::Envelope,
    ids::{BlobHash, Position, RunId, Seq, StreamId, TaskId},
    policy::Policy,
    task::TaskRecord,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

/// The extent of a run's history to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryScope {
    /// The run's own stream.
    Own,
    /// The history shared with its ancestors first, then its own.
    WithAncestors,
}

/// Time limit for one part of the check: in the first part, the database checks its own file.
const BLOB_CHECK_WAIT_MS: u64 = 30 * 60 * 1000;

impl CoordinatorClient {
    /// Appends events to a run's stream. Safe to repeat: the same events under the same epoch at the same
    /// position get the same response.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `wrong_seq` (and the missing events), `fenced`, `lease_expired`,
    /// `ended`, `blob_missing`.
    pub async fn append(&self, run: RunId, request: &AppendRequest) -> Result<AppendResponse, ClientError> {
        self.build_call("append events", Method::POST, &format!("/v1/runs/{run}/append"))
            .with_json(request)?
            .send_for_json()
            .await
    }

    /// Delegates work of a run to a child task. Safe to repeat: it creates one child.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn delegate(
        &self,
        run: RunId,
        request: &DelegateRequest,
    ) -> Result<DelegateResponse, ClientError> {
        self.build_call("delegate work", Method::POST, &format!("/v1/runs/{run}/delegate"))
            .with_json(request)?
            .send_for_json()
            .await
    }

    /// Lists the tasks that a run delegated.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_children(&self, run: RunId) -> Result<ChildList, ClientError> {
        self.build_call("list a run's children", Method::GET, &format!("/v1/runs/{run}/children"))
            .send_for_json()
            .await
    }

    /// Returns a page of a run's own stream: at most `limit` events after `after`.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_events(
        &self,
        run: RunId,
        after: Seq,
        limit: Option<u32>,
    ) -> Result<EventPage, ClientError> {
        self.build_call("read a run's events", Method::GET, &format!("/v1/runs/{run}/events"))
            .with_query("after", after)
            .with_optional_query("limit", limit)
            .send_for_json()
            .await
    }

    /// Returns all events of a run.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn all_events(&self, run: RunId, lineage: HistoryScope) -> Result<Vec<Envelope>, ClientError> {
        match lineage {
            HistoryScope::WithAncestors => {
                let path = format!("/v1/runs/{run}/events");
                let call =
                    self.build_call("read a run's history", Method::GET, &path).with_query("lineage", true);
                call.send_for_json::<EventPage>().await.map(|page| page.events)
            }
            HistoryScope::Own => {
                let (mut all, mut after) = (Vec::new(), Seq(0));
                loop {
                    let page = self.list_events(run, after, Some(PAGE_EVENTS_MAX)).await?;
                    let more = page.more;
                    all.extend(page.events);
                    // An empty page that claims to have more would be requested forever.
                    match all.last().map(|event: &Envelope| event.seq) {
                        Some(last) if more && last > after => after = last,
                        _ => return Ok(all),
                    }
                }
            }
        }
    }

    /// Returns a page of any stream.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_stream_events(
        &self,
        stream: &StreamId,
        after: Seq,
        limit: Option<u32>,
    ) -> Result<EventPage, ClientError> {
        self.build_call("read a stream's events", Method::GET, "/v1/events")
            .with_query("stream", stream)
            .with_query("after", after)
            .with_optional_query("limit", limit)
            .send_for_json()
            .await
    }

    /// Returns a page of the complete log, ordered by position.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_log_events(
        &self,
        after: Position,
        limit: Option<u32>,
    ) -> Result<EventPage, ClientError> {
        self.build_call("read the log", Method::GET, "/v1/feed")
            .with_query("after", after)
            .with_optional_query("limit", limit)
            .send_for_json()
            .await
    }

    /// Returns a page of all streams and their heads, ordered by name.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_streams(&self, after: Option<&StreamId>) -> Result<StreamPage, ClientError> {
        self.build_call("list streams", Method::GET, "/v1/streams")
            .with_optional_query("after", after)
            .send_for_json()
            .await
    }

    /// Makes the coordinator read a part of its blobs and verify their hashes.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn check_blobs(&self, after: Option<BlobHash>) -> Result<BlobCheckResponse, ClientError> {
        self.build_call("check blobs", Method::GET, "/v1/blobs/check")
            .with_optional_query("after", after)
            .with_server_wait(BLOB_CHECK_WAIT_MS)
            .send_for_json()
            .await
    }

    /// Submits tasks. Safe to repeat only if the request contains their ids.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn submit(&self, request: &SubmitRequest) -> Result<SubmitResponse, ClientError> {
        self.build_call("submit tasks", Method::POST, "/v1/tasks").with_json(request)?.send_for_json().await
    }

    /// Returns one task and its runs.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn get_task(&self, id: TaskId) -> Result<TaskView, ClientError> {
        self.build_call("read a task", Method::GET, &format!("/v1/tasks/{id}")).send_for_json().await
    }

    /// Returns one run.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn get_run(&self, id: RunId) -> Result<RunView, ClientError> {
        self.build_call("read a run", Method::GET, &format!("/v1/runs/{id}")).send_for_json().await
    }

    /// Returns the tasks and runs whose id begins or ends with `digits`.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn resolve_id(&self, digits: &str) -> Result<ResolveResponse, ClientError> {
        // Only characters of an id may appear in the path.
        let digits: String = digits.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        self.build_call("look up an id", Method::GET, &format!("/v1/resolve/{digits}")).send_for_json().await
    }

    /// Returns the coordinator's version and state, and the state of the queue.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn get_status(&self) -> Result<CoordinatorStatus, ClientError> {
        self.build_call("read the status", Method::GET, "/v1/status").send_for_json().await
    }

    /// Checks whether the coordinator and its store respond, and whether its clock was stepped.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with the reason if it is not ready.
    pub async fn check_ready(&self) -> Result<HealthResponse, ClientError> {
        self.build_call("check whether the coordinator is ready", Method::GET, "/readyz")
            .send_for_json()
            .await
    }

    /// Cancels a task, running or not; returns the updated task.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn cancel(&self, task: TaskId, reason: &str) -> Result<TaskRecord, ClientError> {
        let act = CancelTaskRequest { reason: reason.to_owned() };
        self.build_call("cancel a task", Method::POST, &format!("/v1/tasks/{task}/cancel"))
            .with_json(&act)?
            .send_for_json()
            .await
    }

    /// Puts an ended task back into the backlog.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn retry(&self, task: TaskId, act: &RetryRequest) -> Result<TaskRecord, ClientError> {
        self.build_call("retry a task", Method::POST, &format!("/v1/tasks/{task}/retry"))
            .with_json(act)?
            .send_for_json()
            .await
    }

    /// Answers a blocked run's question, which makes its task available.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `wrong_state` if the task is not waiting for an answer, or `text` is
    /// blank.
    pub async fn answer_task(&self, task: TaskId, text: &str) -> Result<TaskRecord, ClientError> {
        let answer = AnswerRequest { text: text.to_owned() };
        let path = format!("/v1/tasks/{task}/answer");
        self.build_call("answer a task", Method::POST, &path).with_json(&answer)?.send_for_json().await
    }

    /// Pauses a task: immediately if no worker has it, otherwise at the run's next turn. Returns the updated
    /// task.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `wrong_state` if it has ended or waits for something else.
    pub async fn pause(&self, task: TaskId) -> Result<TaskRecord, ClientError> {
        let path = format!("/v1/tasks/{task}/pause");
        self.build_call("pause a task", Method::POST, &path)
            .with_json(&PauseRequest {})?
            .send_for_json()
            .await
    }

    /// Resumes a paused task, or cancels a pause that its run has not reached yet.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `wrong_state` if it is not paused.
    pub async fn unpause(&self, task: TaskId) -> Result<TaskRecord, ClientError> {
        let path = format!("/v1/tasks/{task}/unpause");
        self.build_call("unpause a task", Method::POST, &path)
            .with_json(&PauseRequest {})?
            .send_for_json()
            .await
    }

    /// Continues a run from the end of `turn`, or of its last turn, as a new run of its task.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn resume(&self, run: RunId, turn: Option<u32>) -> Result<ResumeResponse, ClientError> {
        self.resume_with(run, &ResumeRequest { turn, ..ResumeRequest::default() }).await
    }

    /// Like [`Self::resume`], with all options.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn resume_with(
        &self,
        run: RunId,
        request: &ResumeRequest,
    ) -> Result<ResumeResponse, ClientError> {
        self.build_call("resume a run", Method::POST, &format!("/v1/runs/{run}/resume"))
            .with_json(request)?
            .send_for_json()
            .await
    }

    /// Creates new tasks that continue from the end of a turn of `run`, which is left unchanged. Safe to
    /// repeat: the request contains their ids.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if there is no such run or turn, `wrong_state` if the turn
    /// has not ended.
    pub async fn fork(&self, run: RunId, request: &ForkRequest) -> Result<ForkResponse, ClientError> {
        self.build_call("fork a run", Method::POST, &format!("/v1/runs/{run}/fork"))
            .with_json(request)?
            .send_for_json()
            .await
    }

    /// Returns the tree of runs that share history with `run`.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn get_lineage(&self, run: RunId) -> Result<LineageView, ClientError> {
        self.build_call("read a run's lineage", Method::GET, &format!("/v1/runs/{run}/lineage"))
            .send_for_json()
            .await
    }

    /// Sends a message to a run, which receives it before its next decision.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn send_message(&self, run: RunId, text: &str) -> Result<TellResponse, ClientError> {
        self.build_call("send a message to a run", Method::POST, &format!("/v1/runs/{run}/tell"))
            .with_json(&TellRequest { text: text.to_owned() })?
            .send_for_json()
            .await
    }

    /// Replaces the task's policy for this run, starting with its next turn.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn set_policy(&self, run: RunId, policy: Policy) -> Result<TellResponse, ClientError> {
        self.build_call("change a run's policy", Method::POST, &format!("/v1/runs/{run}/policy"))
            .with_json(&PolicyRequest { policy })?
            .send_for_json()
            .await
    }

    /// Requests work. Safe to repeat: the same request number gets the same response.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn lease(&self, request: &LeaseRequest) -> Result<LeaseResponse, ClientError> {
        self.build_call("lease tasks", Method::POST, "/v1/lease")
            .with_json(request)?
            .with_server_wait(request.wait_ms)
            .send_for_json()
            .await
    }

    /// Renews leases and waits for changes.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn heartbeat(&self, request: &HeartbeatRequest) -> Result<HeartbeatResponse, ClientError> {
        self.build_call("renew leases", Method::POST, "/v1/heartbeat")
            .with_json(request)?
            .with_server_wait(request.wait_ms)
            .send_for_json()
            .await
    }

    /// Releases a lease.
    ///
    /// # Errors
    /// [`ClientError`]; `fenced`, `wrong_state` or `ended` if the lease was no longer held.
    pub async fn release(
        &self,
        task: TaskId,
        request: &ReleaseRequest,
    ) -> Result<ReleaseResponse, ClientError> {
        self.build_call("release a lease", Method::POST, &format!("/v1/tasks/{task}/release"))
            .with_json(request)?
            .send_for_json()
            .await
    }
}

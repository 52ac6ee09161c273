//! The routes, one method each. Blobs and following have files of their own.

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

/// Which history of a run is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryScope {
    /// The run's own stream.
    Own,
    /// What it shares with its parents first, then its own.
    WithAncestors,
}

/// How long a part of the check may take: with the first, the database looks through its own file.
const BLOB_CHECK_WAIT_MS: u64 = 30 * 60 * 1000;

impl CoordinatorClient {
    /// Appends events to a run's stream. Safe to repeat: the same events under the same epoch at
    /// the same place are answered as the first time.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_seq` (and what is missing), `fenced`, `lease_expired`,
    /// `ended`, `blob_missing`.
    pub async fn append(&self, run: RunId, request: &AppendRequest) -> Result<AppendResponse, ClientError> {
        self.build_call("append events", Method::POST, &format!("/v1/runs/{run}/append"))
            .with_json(request)?
            .send_for_json()
            .await
    }

    /// Gives work of a run away to a child task. Safe to repeat: it makes one child.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn delegate(
        &self,
        run: RunId,
        request: &DelegateRequest,
    ) -> Result<DelegateResponse, ClientError> {
        self.build_call("give work away", Method::POST, &format!("/v1/runs/{run}/delegate"))
            .with_json(request)?
            .send_for_json()
            .await
    }

    /// The tasks that a run gave away.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list_children(&self, run: RunId) -> Result<ChildList, ClientError> {
        self.build_call("read what a run gave away", Method::GET, &format!("/v1/runs/{run}/children"))
            .send_for_json()
            .await
    }

    /// A page of a run's own stream: events after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`ClientError`].
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

    /// All events of a run.
    ///
    /// # Errors
    /// [`ClientError`].
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
                    // A page that says "more" and brings nothing would be asked for without end.
                    match all.last().map(|event: &Envelope| event.seq) {
                        Some(last) if more && last > after => after = last,
                        _ => return Ok(all),
                    }
                }
            }
        }
    }

    /// A page of any stream.
    ///
    /// # Errors
    /// [`ClientError`].
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

    /// A page of the whole log in order of position.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list_log_events(
        &self,
        after: Position,
        limit: Option<u32>,
    ) -> Result<EventPage, ClientError> {
        self.build_call("read the feed", Method::GET, "/v1/feed")
            .with_query("after", after)
            .with_optional_query("limit", limit)
            .send_for_json()
            .await
    }

    /// A page of all streams and their heads, in the order of their names.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list_streams(&self, after: Option<&StreamId>) -> Result<StreamPage, ClientError> {
        self.build_call("list streams", Method::GET, "/v1/streams")
            .with_optional_query("after", after)
            .send_for_json()
            .await
    }

    /// Lets the coordinator read a part of its blobs and hash them again.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn check_blobs(&self, after: Option<BlobHash>) -> Result<BlobCheckResponse, ClientError> {
        self.build_call("check blobs", Method::GET, "/v1/blobs/check")
            .with_optional_query("after", after)
            .with_server_wait(BLOB_CHECK_WAIT_MS)
            .send_for_json()
            .await
    }

    /// Puts tasks into the backlog. Safe to repeat only where the request brings its ids.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn submit(&self, request: &SubmitRequest) -> Result<SubmitResponse, ClientError> {
        self.build_call("submit tasks", Method::POST, "/v1/tasks").with_json(request)?.send_for_json().await
    }

    /// One task and its runs.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_task(&self, id: TaskId) -> Result<TaskView, ClientError> {
        self.build_call("read a task", Method::GET, &format!("/v1/tasks/{id}")).send_for_json().await
    }

    /// One run.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_run(&self, id: RunId) -> Result<RunView, ClientError> {
        self.build_call("read a run", Method::GET, &format!("/v1/runs/{id}")).send_for_json().await
    }

    /// The tasks and runs whose id begins, or ends, with `digits`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn resolve_id(&self, digits: &str) -> Result<ResolveResponse, ClientError> {
        // Only what an id is made of may stand in the path.
        let digits: String = digits.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        self.build_call("look up an id", Method::GET, &format!("/v1/resolve/{digits}")).send_for_json().await
    }

    /// What the coordinator is, and how the queue stands.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_status(&self) -> Result<CoordinatorStatus, ClientError> {
        self.build_call("read the status", Method::GET, "/v1/status").send_for_json().await
    }

    /// Whether the coordinator and its store answer, and whether its clock was stepped.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the reason where it is not ready.
    pub async fn check_ready(&self) -> Result<HealthResponse, ClientError> {
        self.build_call("ask whether the coordinator is ready", Method::GET, "/readyz").send_for_json().await
    }

    /// Cancels a task, running or not; gives it as it is then.
    ///
    /// # Errors
    /// [`ClientError`].
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
    /// [`ClientError`].
    pub async fn retry(&self, task: TaskId, act: &RetryRequest) -> Result<TaskRecord, ClientError> {
        self.build_call("retry a task", Method::POST, &format!("/v1/tasks/{task}/retry"))
            .with_json(act)?
            .send_for_json()
            .await
    }

    /// Answers what a blocked run asked; its task is available then.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where it waits for nobody's answer, or `text` says nothing.
    pub async fn answer_task(&self, task: TaskId, text: &str) -> Result<TaskRecord, ClientError> {
        let answer = AnswerRequest { text: text.to_owned() };
        let path = format!("/v1/tasks/{task}/answer");
        self.build_call("answer a task", Method::POST, &path).with_json(&answer)?.send_for_json().await
    }

    /// Lets a task rest: one that no worker has at once, a run under way at its next turn. Gives the task as
    /// it is then.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where it has ended or waits for something else.
    pub async fn pause(&self, task: TaskId) -> Result<TaskRecord, ClientError> {
        let path = format!("/v1/tasks/{task}/pause");
        self.build_call("pause a task", Method::POST, &path)
            .with_json(&PauseRequest {})?
            .send_for_json()
            .await
    }

    /// Lets a paused task go on where it rested, or takes a pause back that a run has not reached.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where it is not paused.
    pub async fn unpause(&self, task: TaskId) -> Result<TaskRecord, ClientError> {
        let path = format!("/v1/tasks/{task}/unpause");
        self.build_call("unpause a task", Method::POST, &path)
            .with_json(&PauseRequest {})?
            .send_for_json()
            .await
    }

    /// Goes on with a run from the end of `turn`, or of its last one, as a new run of its task.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn resume(&self, run: RunId, turn: Option<u32>) -> Result<ResumeResponse, ClientError> {
        self.resume_with(run, &ResumeRequest { turn, ..ResumeRequest::default() }).await
    }

    /// The same with all that can be asked.
    ///
    /// # Errors
    /// [`ClientError`].
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

    /// Makes new tasks that go on from a turn's end of `run`, which is not touched. Safe to repeat:
    /// the request brings its ids.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found` where there is no such run or turn, `wrong_state`
    /// where the turn has not ended.
    pub async fn fork(&self, run: RunId, request: &ForkRequest) -> Result<ForkResponse, ClientError> {
        self.build_call("fork a run", Method::POST, &format!("/v1/runs/{run}/fork"))
            .with_json(request)?
            .send_for_json()
            .await
    }

    /// The tree of runs that share history with `run`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn get_lineage(&self, run: RunId) -> Result<LineageView, ClientError> {
        self.build_call("read a run's lineage", Method::GET, &format!("/v1/runs/{run}/lineage"))
            .send_for_json()
            .await
    }

    /// Says something to a run; it hears it before its next decision.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn send_message(&self, run: RunId, text: &str) -> Result<TellResponse, ClientError> {
        self.build_call("tell a run", Method::POST, &format!("/v1/runs/{run}/tell"))
            .with_json(&TellRequest { text: text.to_owned() })?
            .send_for_json()
            .await
    }

    /// Puts a policy in the place of the task's, for this run, from its next turn on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn set_policy(&self, run: RunId, policy: Policy) -> Result<TellResponse, ClientError> {
        self.build_call("change a run's policy", Method::POST, &format!("/v1/runs/{run}/policy"))
            .with_json(&PolicyRequest { policy })?
            .send_for_json()
            .await
    }

    /// Asks for work. Safe to repeat: the same number gets the same answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn lease(&self, request: &LeaseRequest) -> Result<LeaseResponse, ClientError> {
        self.build_call("lease tasks", Method::POST, "/v1/lease")
            .with_json(request)?
            .with_server_wait(request.wait_ms)
            .send_for_json()
            .await
    }

    /// Renews leases, and waits for news.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn heartbeat(&self, request: &HeartbeatRequest) -> Result<HeartbeatResponse, ClientError> {
        self.build_call("renew leases", Method::POST, "/v1/heartbeat")
            .with_json(request)?
            .with_server_wait(request.wait_ms)
            .send_for_json()
            .await
    }

    /// Gives a lease back.
    ///
    /// # Errors
    /// [`ClientError`]; `fenced`, `wrong_state` or `ended` where it was not held any more.
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

//! The routes, one method each. Blobs and following have files of their own.

use docket_schema::{
    event::Envelope,
    ids::{BlobHash, Position, RunId, Seq, StreamId, TaskId},
    policy::Policy,
    task::TaskRecord,
    wire::{
        ActRequest, AnswerRequest, AppendRequest, AppendResponse, BlobCheck, ChildList, DelegateRequest,
        DelegateResponse, EventPage, ForkRequest, ForkResponse, Health, HeartbeatRequest, HeartbeatResponse,
        LeaseRequest, LeaseResponse, LineageView, PAGE_EVENTS_MAX, PauseRequest, PolicyRequest,
        ReleaseRequest, ReleaseResponse, Resolved, ResumeRequest, ResumeResponse, RetryRequest, RunView,
        Status, StreamPage, SubmitRequest, SubmitResponse, TaskView, TellRequest, TellResponse,
    },
};
use reqwest::Method;

use crate::client::{Client, ClientError};

/// Which history of a run is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lineage {
    /// The run's own stream.
    Own,
    /// What it shares with its parents first, then its own.
    Whole,
}

/// How long a part of the check may take: with the first, the database looks through its own file.
const CHECK_MS: u64 = 30 * 60 * 1000;

impl Client {
    /// Appends events to a run's stream. Safe to repeat: the same events under the same epoch at
    /// the same place are answered as the first time.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_seq` (and what is missing), `fenced`, `lease_expired`,
    /// `ended`, `blob_missing`.
    pub async fn append(&self, run: RunId, request: &AppendRequest) -> Result<AppendResponse, ClientError> {
        self.call("append events", Method::POST, &format!("/v1/runs/{run}/append"))
            .json(request)?
            .answer()
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
        self.call("give work away", Method::POST, &format!("/v1/runs/{run}/delegate"))
            .json(request)?
            .answer()
            .await
    }

    /// The tasks that a run gave away.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn children(&self, run: RunId) -> Result<ChildList, ClientError> {
        self.call("read what a run gave away", Method::GET, &format!("/v1/runs/{run}/children"))
            .answer()
            .await
    }

    /// A page of a run's own stream: events after `after`, at most `limit`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn events(&self, run: RunId, after: Seq, limit: Option<u32>) -> Result<EventPage, ClientError> {
        self.call("read a run's events", Method::GET, &format!("/v1/runs/{run}/events"))
            .query("after", after)
            .maybe("limit", limit)
            .answer()
            .await
    }

    /// All events of a run.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn all_events(&self, run: RunId, lineage: Lineage) -> Result<Vec<Envelope>, ClientError> {
        match lineage {
            Lineage::Whole => {
                let path = format!("/v1/runs/{run}/events");
                let call = self.call("read a run's history", Method::GET, &path).query("lineage", true);
                call.answer::<EventPage>().await.map(|page| page.events)
            }
            Lineage::Own => {
                let (mut all, mut after) = (Vec::new(), Seq(0));
                loop {
                    let page = self.events(run, after, Some(PAGE_EVENTS_MAX)).await?;
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
    pub async fn stream_events(
        &self,
        stream: &StreamId,
        after: Seq,
        limit: Option<u32>,
    ) -> Result<EventPage, ClientError> {
        self.call("read a stream's events", Method::GET, "/v1/events")
            .query("stream", stream)
            .query("after", after)
            .maybe("limit", limit)
            .answer()
            .await
    }

    /// A page of the whole log in order of position.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn feed(&self, after: Position, limit: Option<u32>) -> Result<EventPage, ClientError> {
        self.call("read the feed", Method::GET, "/v1/feed")
            .query("after", after)
            .maybe("limit", limit)
            .answer()
            .await
    }

    /// A page of all streams and their heads, in the order of their names.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn streams(&self, after: Option<&StreamId>) -> Result<StreamPage, ClientError> {
        self.call("list streams", Method::GET, "/v1/streams").maybe("after", after).answer().await
    }

    /// Lets the coordinator read a part of its blobs and hash them again.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn check_blobs(&self, after: Option<BlobHash>) -> Result<BlobCheck, ClientError> {
        self.call("check blobs", Method::GET, "/v1/blobs/check")
            .maybe("after", after)
            .waits(CHECK_MS)
            .answer()
            .await
    }

    /// Puts tasks into the backlog. Safe to repeat only where the request brings its ids.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn submit(&self, request: &SubmitRequest) -> Result<SubmitResponse, ClientError> {
        self.call("submit tasks", Method::POST, "/v1/tasks").json(request)?.answer().await
    }

    /// One task and its runs.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn task(&self, id: TaskId) -> Result<TaskView, ClientError> {
        self.call("read a task", Method::GET, &format!("/v1/tasks/{id}")).answer().await
    }

    /// One run.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn run(&self, id: RunId) -> Result<RunView, ClientError> {
        self.call("read a run", Method::GET, &format!("/v1/runs/{id}")).answer().await
    }

    /// The tasks and runs whose id begins, or ends, with `digits`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn resolve(&self, digits: &str) -> Result<Resolved, ClientError> {
        // Only what an id is made of may stand in the path.
        let digits: String = digits.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').collect();
        self.call("look up an id", Method::GET, &format!("/v1/resolve/{digits}")).answer().await
    }

    /// What the coordinator is, and how the queue stands.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.call("read the status", Method::GET, "/v1/status").answer().await
    }

    /// Whether the coordinator and its store answer, and whether its clock was stepped.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with the reason where it is not ready.
    pub async fn ready(&self) -> Result<Health, ClientError> {
        self.call("ask whether the coordinator is ready", Method::GET, "/readyz").answer().await
    }

    /// Cancels a task, running or not; gives it as it is then.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn cancel(&self, task: TaskId, reason: &str) -> Result<TaskRecord, ClientError> {
        let act = ActRequest { reason: reason.to_owned() };
        self.call("cancel a task", Method::POST, &format!("/v1/tasks/{task}/cancel"))
            .json(&act)?
            .answer()
            .await
    }

    /// Puts an ended task back into the backlog.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn retry(&self, task: TaskId, act: &RetryRequest) -> Result<TaskRecord, ClientError> {
        self.call("retry a task", Method::POST, &format!("/v1/tasks/{task}/retry")).json(act)?.answer().await
    }

    /// Answers what a blocked run asked; its task is available then.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where it waits for nobody's answer, or `text` says nothing.
    pub async fn answer(&self, task: TaskId, text: &str) -> Result<TaskRecord, ClientError> {
        let answer = AnswerRequest { text: text.to_owned() };
        let path = format!("/v1/tasks/{task}/answer");
        self.call("answer a task", Method::POST, &path).json(&answer)?.answer().await
    }

    /// Lets a task rest: one that no worker has at once, a run under way at its next turn. Gives the task as
    /// it is then.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where it has ended or waits for something else.
    pub async fn pause(&self, task: TaskId) -> Result<TaskRecord, ClientError> {
        let path = format!("/v1/tasks/{task}/pause");
        self.call("pause a task", Method::POST, &path).json(&PauseRequest {})?.answer().await
    }

    /// Lets a paused task go on where it rested, or takes a pause back that a run has not reached.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where it is not paused.
    pub async fn unpause(&self, task: TaskId) -> Result<TaskRecord, ClientError> {
        let path = format!("/v1/tasks/{task}/unpause");
        self.call("unpause a task", Method::POST, &path).json(&PauseRequest {})?.answer().await
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
        self.call("resume a run", Method::POST, &format!("/v1/runs/{run}/resume"))
            .json(request)?
            .answer()
            .await
    }

    /// Makes new tasks that go on from a turn's end of `run`, which is not touched. Safe to repeat:
    /// the request brings its ids.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found` where there is no such run or turn, `wrong_state`
    /// where the turn has not ended.
    pub async fn fork(&self, run: RunId, request: &ForkRequest) -> Result<ForkResponse, ClientError> {
        self.call("fork a run", Method::POST, &format!("/v1/runs/{run}/fork")).json(request)?.answer().await
    }

    /// The tree of runs that share history with `run`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn lineage(&self, run: RunId) -> Result<LineageView, ClientError> {
        self.call("read a run's lineage", Method::GET, &format!("/v1/runs/{run}/lineage")).answer().await
    }

    /// Says something to a run; it hears it before its next decision.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn tell(&self, run: RunId, text: &str) -> Result<TellResponse, ClientError> {
        self.call("tell a run", Method::POST, &format!("/v1/runs/{run}/tell"))
            .json(&TellRequest { text: text.to_owned() })?
            .answer()
            .await
    }

    /// Puts a policy in the place of the task's, for this run, from its next turn on.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn set_policy(&self, run: RunId, policy: Policy) -> Result<TellResponse, ClientError> {
        self.call("change a run's policy", Method::POST, &format!("/v1/runs/{run}/policy"))
            .json(&PolicyRequest { policy })?
            .answer()
            .await
    }

    /// Asks for work. Safe to repeat: the same number gets the same answer.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn lease(&self, request: &LeaseRequest) -> Result<LeaseResponse, ClientError> {
        self.call("lease tasks", Method::POST, "/v1/lease")
            .json(request)?
            .waits(request.wait_ms)
            .answer()
            .await
    }

    /// Renews leases, and waits for news.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn heartbeat(&self, request: &HeartbeatRequest) -> Result<HeartbeatResponse, ClientError> {
        self.call("renew leases", Method::POST, "/v1/heartbeat")
            .json(request)?
            .waits(request.wait_ms)
            .answer()
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
        self.call("release a lease", Method::POST, &format!("/v1/tasks/{task}/release"))
            .json(request)?
            .answer()
            .await
    }
}

//! Delivers a result: to a branch of the source repository, to its remote, and to the user's hook. Each
//! completed step is reported to the coordinator.
//!
//! Runs on the machine that has the repository, as the user who runs docket there; remote coordinators and
//! workers deliver nothing. Invariants: every step can be repeated, because a branch or a remote shows whether
//! it has the commit, and the commit's id follows from the log and its parent; a push is recorded before it is
//! made; a result that cannot be delivered is saved on its own branch before the failure is recorded;
//! everything recorded, pushed or run happens under a claim (`claim.rs`), so that only one of several processes
//! delivers.

use std::path::{Path, PathBuf};

use docket_schema::{
    api::DeliveryStep,
    content::Content,
    event::Envelope,
    ids::{RunId, Seq, StreamId, TaskId},
    run::RunState,
    task::{
        CONFLICTS_NAMED_MAX, DeliveryBlockedReason, DeliveryHistory, DeliveryMode, TaskDelivered, TaskRecord,
    },
};
use docket_worker::{
    client::CoordinatorClient,
    process::HookResult,
    workspace::{
        BranchDelivery, CommitMessage, CommitOrigin, CommitSignature, DeliverError, DeliveredBranch,
        DeliveredCommit, GitRemote, PushError, PushOutcome, ResultCommit,
    },
};

use super::{
    build_run_result,
    claim::{DeliveryClaimant, HeldClaim},
};
use crate::history::blobs::RemoteBlobs;
use crate::{
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
};
use docket_worker::workspace::BlobReader as _;

/// Maximum number of ancestors of a run, as in the coordinator.
const ANCESTORS_MAX: usize = 100;

/// What to deliver, and where.
#[derive(Debug, Clone)]
pub(crate) struct DeliveryRequest<'a> {
    pub(crate) task: &'a TaskRecord,
    /// One of its runs.
    pub(crate) run: RunId,
    /// The source repository.
    pub(crate) repository: &'a Path,
    pub(crate) branch: String,
    /// The remote to push to.
    pub(crate) push: Option<&'a str>,
    /// Commit on top of the task's base commit, ignoring commits added to its branch since.
    pub(crate) on_base: bool,
    /// Commit on top of what another run of the task delivered, even if that reverts it.
    pub(crate) replace: bool,
}

impl<'a> DeliveryRequest<'a> {
    /// A request for the task's own branch.
    pub(crate) fn new(task: &'a TaskRecord, run: RunId, repository: &'a Path) -> Self {
        let branch = task.spec.result_branch(task.id);
        Self { task, run, repository, branch, push: None, on_base: false, replace: false }
    }

    /// Whether this is the delivery that the task itself asks for.
    fn is_task_delivery(&self) -> bool {
        self.task.spec.delivery_mode() != DeliveryMode::Patch
            && self.branch == self.task.spec.result_branch(self.task.id)
    }
}

/// What was delivered.
#[derive(Debug, Clone)]
pub(crate) struct DeliveryReport {
    pub(crate) branch: String,
    /// The commit of the branch; `None` = the run changed nothing, and there is no branch.
    pub(crate) commit: Option<String>,
    /// The remote, and whether it already had the commit.
    pub(crate) remote: Option<(String, PushOutcome)>,
    /// The result of the user's hook.
    pub(crate) hook: Option<HookResult>,
}

impl DeliveryReport {
    /// Describes the delivery in one sentence.
    pub(crate) fn describe(&self) -> String {
        let Some(commit) = &self.commit else {
            return "the run changed nothing that is not already there: no branch was created".to_owned();
        };
        let commit = &commit[..commit.len().min(12)];
        let place = match &self.remote {
            None => String::new(),
            Some((remote, PushOutcome::Pushed)) => format!(", pushed to {remote}"),
            Some((remote, PushOutcome::AlreadyPushed)) => format!(", already on {remote}"),
        };
        format!("branch {} is at {commit}{place}", self.branch)
    }
}

/// Why a result was not delivered.
#[derive(Debug)]
pub(crate) enum DeliveryFailure {
    /// A person has to resolve it; recorded in the log if the task's delivery depends on it.
    Blocked(CliError),
    /// It may work later; not recorded in the log.
    Retryable(DeliveryBlockedReason, CliError),
    /// Another process, named here, is delivering it.
    ClaimedElsewhere(String),
}

impl From<DeliveryFailure> for CliError {
    fn from(undone: DeliveryFailure) -> Self {
        match undone {
            DeliveryFailure::Blocked(failure) | DeliveryFailure::Retryable(_, failure) => failure,
            DeliveryFailure::ClaimedElsewhere(who) => Self::new(
                ExitKind::Refused,
                format!("{who} is delivering this result right now; try again in a moment"),
            ),
        }
    }
}

/// Returns the folder of a task's source, if it is on this machine.
pub(crate) fn local_source_folder(task: &TaskRecord) -> Option<PathBuf> {
    let source = task.spec.base.git.as_ref().map(|git| PathBuf::from(&git.source));
    source.filter(|folder| folder.is_dir())
}

/// Fetches the delivery history of a task.
pub(crate) async fn fetch_deliveries(client: &CoordinatorClient, task: TaskId) -> CliResult<DeliveryHistory> {
    Ok(fetch_deliveries_with_head(client, task).await?.0)
}

/// Like [`fetch_deliveries`], with the head of the task's stream that it covers.
pub(super) async fn fetch_deliveries_with_head(
    client: &CoordinatorClient,
    task: TaskId,
) -> CliResult<(DeliveryHistory, Seq)> {
    let stream = StreamId::Task(task);
    let mut events: Vec<Envelope> = Vec::new();
    loop {
        let after = events.last().map_or(Seq(0), |event| event.seq);
        let page = client.list_stream_events(&stream, after, None).await?;
        if page.events.is_empty() {
            break;
        }
        events.extend(page.events);
    }
    let head = events.last().map_or(Seq(0), |event| event.seq);
    Ok((DeliveryHistory::from_events(&events).fail_as(ExitKind::EngineMissing)?, head))
}

/// Prints what was delivered.
pub(crate) fn print_delivery(cx: &CliContext, ask: &DeliveryRequest<'_>, done: &DeliveryReport) {
    let (task, run) = (ask.task.id, ask.run);
    if cx.is_json() {
        display::print_json(&serde_json::json!({
            "task": task, "run": run, "branch": done.commit.as_ref().map(|_| &done.branch), "commit": done.commit, "repo": ask.repository,
            "remote": done.remote.as_ref().map(|(name, _)| name),
            "pushed": done.remote.as_ref().map(|(_, pushed)| *pushed == PushOutcome::Pushed),
            "hook_exit": done.hook.as_ref().and_then(|hook| hook.exit_status),
        }));
        return;
    }
    let place = display::sanitize_line(&ask.repository.to_string_lossy()).into_owned();
    display::print_line(&format!("{} ({place})", display::sanitize_line(&done.describe())));
    if let Some(hook) = done.hook.as_ref().filter(|hook| hook.exit_status != Some(0)) {
        let last = hook.output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        display::print_note(&format!(
            "delivered, but the hook failed: {}; run the same command again to run the hook again",
            display::sanitize_line(last)
        ));
    }
}

/// One delivery in progress.
pub(super) struct DeliveryAttempt<'a> {
    pub(super) cx: &'a CliContext,
    pub(super) client: &'a CoordinatorClient,
    pub(super) request: &'a DeliveryRequest<'a>,
    pub(super) claimant: &'a DeliveryClaimant,
    /// The delivery history as of the last read, before this attempt recorded anything.
    pub(super) recorded: DeliveryHistory,
    pub(super) held_claim: Option<HeldClaim>,
    /// The runs that this one continues.
    ancestors: Vec<RunId>,
    signature: CommitSignature,
    pub(super) title: String,
    pub(super) body: String,
    message: String,
}

/// Delivers a result. Safe to repeat.
pub(crate) async fn deliver(
    cx: &CliContext,
    client: &CoordinatorClient,
    claims: &DeliveryClaimant,
    ask: &DeliveryRequest<'_>,
) -> Result<DeliveryReport, DeliveryFailure> {
    let repository = |failure| DeliveryFailure::Retryable(DeliveryBlockedReason::Repository, failure);
    let (result, state) = build_run_result(cx, client, ask.run).await.map_err(repository)?;
    let mut under = DeliveryAttempt::new(cx, client, claims, ask, &state).await.map_err(repository)?;
    let branch = ask.branch.clone();
    let Some(made) = under.deliver_branch(&result).await? else {
        return Ok(DeliveryReport { branch, commit: None, remote: None, hook: None });
    };
    let remote = match ask.push {
        None => None,
        Some(name) => Some((name.to_owned(), under.push_branch(&made, name).await?)),
    };
    let hook = under.run_delivery_hook(&made.commit).await?;
    Ok(DeliveryReport { branch, commit: Some(made.commit), remote, hook })
}

fn repository_failure(error: DeliverError) -> DeliveryFailure {
    DeliveryFailure::Retryable(
        DeliveryBlockedReason::Repository,
        CliError { exit: ExitKind::Refused, error: error.into() },
    )
}

impl<'a> DeliveryAttempt<'a> {
    async fn new(
        cx: &'a CliContext,
        client: &'a CoordinatorClient,
        claims: &'a DeliveryClaimant,
        ask: &'a DeliveryRequest<'a>,
        state: &RunState,
    ) -> CliResult<Self> {
        let view = client.get_run(ask.run).await?;
        let mut ancestors = Vec::new();
        let mut next = view.parent;
        while let Some(parent) = next.filter(|_| ancestors.len() < ANCESTORS_MAX) {
            ancestors.push(parent.run);
            next = client.get_run(parent.run).await?.parent;
        }
        // A time from the log, so that the same run yields the same commit at any time and on any machine.
        let at = view.ended_at.or(view.started_at).unwrap_or(ask.task.submitted_at);
        let words = match &state.last_text {
            None => String::new(),
            Some(Content::Blob(blob)) => {
                let bytes = RemoteBlobs(client).get(blob).await.fail_as(ExitKind::Failed)?;
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Some(text @ (Content::Text(_) | Content::B64(_))) => text.text_or_size(),
        };
        let text =
            CommitMessage { title: &ask.task.spec.title, body: &words, task: ask.task.id, run: ask.run };
        Ok(Self {
            cx,
            client,
            request: ask,
            claimant: claims,
            recorded: fetch_deliveries(client, ask.task.id).await?,
            held_claim: None,
            ancestors,
            signature: CommitSignature {
                name: "docket".to_owned(),
                email: "docket@localhost".to_owned(),
                at_seconds: at.0.div_euclid(1_000_000),
            },
            title: text.render_title(),
            body: text.render_body(),
            message: text.render_message(),
        })
    }

    pub(super) async fn record_step(&self, step: DeliveryStep) -> Result<(), DeliveryFailure> {
        let told = self.client.record_delivery(self.request.task.id, self.request.run, step).await;
        told.map(drop)
            .map_err(|error| DeliveryFailure::Retryable(DeliveryBlockedReason::Repository, error.into()))
    }

    /// Whether the log already records this delivery.
    fn is_recorded(&self, commit: &str, remote: Option<&str>) -> bool {
        let same = |one: &&TaskDelivered| {
            one.run == self.request.run
                && one.branch == self.request.branch
                && one.commit == commit
                && one.remote.as_deref() == remote
        };
        self.recorded.blocked.is_none() && self.recorded.delivered.iter().any(|one| same(&one))
    }

    /// Records that the branch is at `commit`, unless the log already says so.
    async fn record_delivered(&mut self, commit: &str, remote: Option<&str>) -> Result<(), DeliveryFailure> {
        if self.is_recorded(commit, remote) {
            return Ok(());
        }
        self.claim(Some(commit)).await?;
        if self.is_recorded(commit, remote) {
            return Ok(());
        }
        let (branch, commit) = (self.request.branch.clone(), commit.to_owned());
        self.record_step(DeliveryStep::Delivered { branch, commit, remote: remote.map(str::to_owned) }).await
    }

    /// Creates or moves the branch, or does nothing if nothing was changed.
    async fn deliver_branch(
        &mut self,
        result: &ResultCommit,
    ) -> Result<Option<DeliveredBranch>, DeliveryFailure> {
        let ask = self.request;
        let own: Vec<DeliveredCommit> =
            self.recorded.delivered.iter().map(|one| self.own_commit(one)).collect();
        let from = ask.task.spec.base.git.as_ref().and_then(|git| git.branch.as_deref());
        let wanted = BranchDelivery {
            branch: &ask.branch,
            message: &self.message,
            signature: &self.signature,
            delivered: &own,
            replace: ask.replace,
            base_branch: from.filter(|_| !ask.on_base),
        };
        let made = match result.deliver_to_branch(ask.repository, &wanted).await {
            Ok(made) => made,
            Err(DeliverError::NoChanges) => {
                self.record_needless().await?;
                return Ok(None);
            }
            Err(error) if error.is_transient() => return Err(repository_failure(error)),
            Err(error) => return Err(self.keep_and_record_blocked(result, error).await),
        };
        // A blocked push is not resolved by the local branch alone.
        if ask.push.is_none() || self.recorded.blocked.is_none() {
            self.record_delivered(&made.commit, None).await?;
        }
        Ok(Some(made))
    }

    fn own_commit(&self, one: &TaskDelivered) -> DeliveredCommit {
        let of = if one.run == self.request.run {
            CommitOrigin::SameRun
        } else if self.ancestors.contains(&one.run) {
            CommitOrigin::EarlierRun
        } else {
            CommitOrigin::OtherRun
        };
        DeliveredCommit { commit: one.commit.clone(), origin: of }
    }

    /// Records that there is nothing to deliver, if the task waits for a delivery.
    async fn record_needless(&mut self) -> Result<(), DeliveryFailure> {
        let wanted = self.request.task.spec.delivery_mode();
        if !self.request.is_task_delivery() || self.recorded.is_settled(self.request.run, wanted) {
            return Ok(());
        }
        self.claim(None).await?;
        if self.recorded.is_settled(self.request.run, wanted) {
            return Ok(());
        }
        self.record_step(DeliveryStep::Needless {}).await
    }

    async fn keep_and_record_blocked(
        &mut self,
        result: &ResultCommit,
        error: DeliverError,
    ) -> DeliveryFailure {
        let ask = self.request;
        let (why, paths) = match &error {
            DeliverError::Conflict { paths, .. } => (DeliveryBlockedReason::Conflict, paths.clone()),
            _ => (DeliveryBlockedReason::Taken, Vec::new()),
        };
        let kept = format!("docket/{}", ask.run.short());
        let kept = (kept != ask.branch).then_some(kept);
        let kept = match kept {
            None => None,
            Some(kept) => {
                match result.deliver_new_branch(ask.repository, &kept, &self.message, &self.signature).await {
                    Ok(_) => Some(kept),
                    // Transient failures are retried: nothing is recorded before the result is saved.
                    Err(error) if error.is_transient() => return repository_failure(error),
                    Err(_) => None,
                }
            }
        };
        let id = ask.task.id.short();
        let place = match &kept {
            Some(kept) => {
                format!("the result is saved on the branch {kept}, on top of the commit it started from")
            }
            None => "the result is in the log".to_owned(),
        };
        let helps = match (&error, &kept) {
            (DeliverError::Conflict { .. }, Some(kept)) => format!(
                "run `git merge {kept}` and `docket accept {id}`, or `docket apply {id} --on-base --branch NAME`, or \
                 `docket reject {id} --comment TEXT`"
            ),
            (DeliverError::Conflict { .. }, None) => {
                format!("run `docket apply {id} --on-base --branch NAME`")
            }
            (DeliverError::WouldUndoOtherRun { .. }, _) => {
                format!(
                    "`docket apply {id} --replace` replaces it, `docket apply {id} --branch NAME` leaves it"
                )
            }
            _ => format!("run `docket apply {id} --branch NAME`"),
        };
        let error = error.to_string();
        self.record_blocked(why, paths, kept, format!("{error}; {place}; {helps}")).await
    }

    /// Records that the delivery is blocked, with the possible answers, unless the log already says so. A
    /// failed attempt to deliver under a different name is not recorded.
    async fn record_blocked(
        &mut self,
        why: DeliveryBlockedReason,
        mut paths: Vec<String>,
        kept: Option<String>,
        message: String,
    ) -> DeliveryFailure {
        let ask = self.request;
        paths.truncate(CONFLICTS_NAMED_MAX);
        let is_delivered = self.recorded.delivered.iter().any(|one| one.run == ask.run);
        let matters = ask.is_task_delivery() || (why == DeliveryBlockedReason::Conflict && !is_delivered);
        if matters && !self.is_blocked_recorded(why, &paths) {
            if let Err(undone) = self.claim(None).await {
                return undone;
            }
            if !self.is_blocked_recorded(why, &paths) {
                let branch = ask.branch.clone();
                let step = DeliveryStep::Blocked { branch, why, paths, kept, message: message.clone() };
                if let Err(undone) = self.record_step(step).await {
                    return undone;
                }
            }
        }
        DeliveryFailure::Blocked(CliError::new(ExitKind::Refused, message))
    }

    fn is_blocked_recorded(&self, why: DeliveryBlockedReason, paths: &[String]) -> bool {
        self.recorded.blocked.as_ref().is_some_and(|blocked| {
            (blocked.run, &blocked.branch, blocked.why, blocked.paths.as_slice())
                == (self.request.run, &self.request.branch, why, paths)
        })
    }

    async fn push_branch(
        &mut self,
        made: &DeliveredBranch,
        name: &str,
    ) -> Result<PushOutcome, DeliveryFailure> {
        let (ask, commit) = (self.request, &made.commit);
        let failed =
            |exit, error| DeliveryFailure::Retryable(DeliveryBlockedReason::Remote, CliError { exit, error });
        let scratch = self.cx.home.ensure_folder("scratch");
        let scratch = scratch
            .map_err(|failure| DeliveryFailure::Retryable(DeliveryBlockedReason::Repository, failure))?;
        let remote = match self.run_guarded(GitRemote::find(ask.repository, name, commit, &scratch)).await? {
            Ok(remote) => remote,
            Err(error @ PushError::NoRemote { .. }) => {
                let message = format!("{error}; then run `docket push {}`", ask.task.id.short());
                return Err(self
                    .record_blocked(DeliveryBlockedReason::Remote, Vec::new(), None, message)
                    .await);
            }
            Err(error) => return Err(failed(ExitKind::Refused, error.into())),
        };
        let holds = self.run_guarded(remote.contains_commit(&ask.branch, commit)).await?;
        let pushed = if holds.map_err(|error| failed(ExitKind::Failed, error.into()))? {
            PushOutcome::AlreadyPushed
        } else {
            self.claim(Some(commit)).await?;
            let (branch, commit, remote_name) = (ask.branch.clone(), commit.clone(), name.to_owned());
            // A push that was started and has no outcome is already recorded as an intent.
            let open = self.recorded.open_push.as_ref();
            if !open.is_some_and(|open| open.commit == commit && open.branch == branch && open.remote == name)
            {
                self.record_step(DeliveryStep::Requested { branch, commit, remote: remote_name }).await?;
            }
            match self.run_guarded(remote.push(&ask.branch, &made.commit)).await? {
                Ok(pushed) => pushed,
                Err(error @ PushError::BranchTaken { .. }) => {
                    let message = format!(
                        "{error}; the result is on the branch {} of the repository; run `docket push {} --branch NAME`",
                        ask.branch,
                        ask.task.id.short()
                    );
                    return Err(self
                        .record_blocked(DeliveryBlockedReason::Taken, Vec::new(), None, message)
                        .await);
                }
                Err(error) => return Err(failed(ExitKind::Failed, error.into())),
            }
        };
        self.record_delivered(commit, Some(name)).await?;
        Ok(pushed)
    }
}

//! A result handed over: onto a branch of the source repository, to its remote, to the user's hook; each step told
//! to the coordinator as it is done.
//!
//! Runs on the machine that has the repository, as whoever runs docket there; coordinators and workers deliver
//! nothing. Invariants: every step can be repeated, for a branch and a remote say themselves whether they have the
//! commit, and the commit's id follows from the log and what it stands on; a push is recorded before it is made;
//! what cannot be delivered is kept on a branch of its own before anything is told; whatever is told, pushed or run
//! is so under a claim (`claim.rs`), so that of several who could deliver one does.

use std::path::{Path, PathBuf};

use docket_schema::{
    content::Content,
    event::Envelope,
    ids::{RunId, Seq, StreamId, TaskId},
    run::RunState,
    task::{CONFLICTS_NAMED_MAX, Deliveries, Delivery, DeliveryBlockedWhy, TaskDelivered, TaskRecord},
    wire::DeliveryStep,
};
use docket_worker::{
    client::Client,
    process::HookEnd,
    workspace::{
        CommitText, DeliverError, Made, Own, PushError, Pushed, Remote as GitRemote, ResultCommit, Signature,
        Wanted, Whose,
    },
};

use super::{
    claim::{Claims, Held},
    result_of,
};
use crate::history::blobs::Remote;
use crate::{
    context::Context,
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
};
use docket_worker::workspace::Blobs as _;

/// Runs that a run stands on, at most: as the coordinator has it.
const ANCESTORS_MAX: usize = 100;

/// What is to be handed over, and where to.
#[derive(Debug, Clone)]
pub(crate) struct Ask<'a> {
    /// The task.
    pub(crate) task: &'a TaskRecord,
    /// One of its runs.
    pub(crate) run: RunId,
    /// The repository.
    pub(crate) repository: &'a Path,
    /// The branch.
    pub(crate) branch: String,
    /// The remote that it is pushed to.
    pub(crate) push: Option<&'a str>,
    /// Stand on the commit that the task started from, whatever came onto its branch since.
    pub(crate) on_base: bool,
    /// Also on top of what another run of the task delivered, though that undoes it.
    pub(crate) replace: bool,
}

impl<'a> Ask<'a> {
    /// The task's own branch.
    pub(crate) fn of(task: &'a TaskRecord, run: RunId, repository: &'a Path) -> Self {
        let branch = task.spec.branch_of(task.id);
        Self { task, run, repository, branch, push: None, on_base: false, replace: false }
    }

    /// Whether it is what the task is to give by itself.
    fn is_wanted(&self) -> bool {
        self.task.spec.delivery() != Delivery::Patch && self.branch == self.task.spec.branch_of(self.task.id)
    }
}

/// What was handed over.
#[derive(Debug, Clone)]
pub(crate) struct Done {
    /// The branch.
    pub(crate) branch: String,
    /// The commit that it is at; none = the run changed nothing, and there is no branch.
    pub(crate) commit: Option<String>,
    /// The remote, and whether it had the commit already.
    pub(crate) remote: Option<(String, Pushed)>,
    /// What the user's hook came to.
    pub(crate) hook: Option<HookEnd>,
}

impl Done {
    /// In words.
    pub(crate) fn text(&self) -> String {
        let Some(commit) = &self.commit else {
            return "the run changed nothing that is not there already: no branch is made of it".to_owned();
        };
        let commit = &commit[..commit.len().min(12)];
        let place = match &self.remote {
            None => String::new(),
            Some((remote, Pushed::Now)) => format!(", pushed to {remote}"),
            Some((remote, Pushed::Before)) => format!(", and {remote} had it already"),
        };
        format!("branch {} is at {commit}{place}", self.branch)
    }
}

/// Why a result was not handed over.
#[derive(Debug)]
pub(crate) enum Undone {
    /// It is a person's now, and the log says so where somebody waits for it.
    Blocked(Failure),
    /// It may work later; the log says nothing of it.
    Failed(DeliveryBlockedWhy, Failure),
    /// Somebody else, named here, is at it.
    Elsewhere(String),
}

impl From<Undone> for Failure {
    fn from(undone: Undone) -> Self {
        match undone {
            Undone::Blocked(failure) | Undone::Failed(_, failure) => failure,
            Undone::Elsewhere(who) => {
                Self::new(Exit::Refused, format!("{who} is delivering it at this moment; look again soon"))
            }
        }
    }
}

/// Where a task's source is, if it is a folder of this machine.
pub(crate) fn source_of(task: &TaskRecord) -> Option<PathBuf> {
    let source = task.spec.base.git.as_ref().map(|git| PathBuf::from(&git.source));
    source.filter(|folder| folder.is_dir())
}

/// What became of a task's results.
pub(crate) async fn deliveries(client: &Client, task: TaskId) -> Outcome<Deliveries> {
    Ok(deliveries_at(client, task).await?.0)
}

/// As [`deliveries`], and the head of the task's stream up to which that is so.
pub(super) async fn deliveries_at(client: &Client, task: TaskId) -> Outcome<(Deliveries, Seq)> {
    let stream = StreamId::Task(task);
    let mut events: Vec<Envelope> = Vec::new();
    loop {
        let after = events.last().map_or(Seq(0), |event| event.seq);
        let page = client.stream_events(&stream, after, None).await?;
        if page.events.is_empty() {
            break;
        }
        events.extend(page.events);
    }
    let head = events.last().map_or(Seq(0), |event| event.seq);
    Ok((Deliveries::of(&events).fail_as(Exit::EngineMissing)?, head))
}

/// Says what was handed over.
pub(crate) fn say(cx: &Context, ask: &Ask<'_>, done: &Done) {
    let (task, run) = (ask.task.id, ask.run);
    if cx.json() {
        display::say_json(&serde_json::json!({
            "task": task, "run": run, "branch": done.commit.as_ref().map(|_| &done.branch), "commit": done.commit, "repo": ask.repository,
            "remote": done.remote.as_ref().map(|(name, _)| name),
            "pushed": done.remote.as_ref().map(|(_, pushed)| *pushed == Pushed::Now),
            "hook_exit": done.hook.as_ref().and_then(|hook| hook.exit),
        }));
        return;
    }
    let place = display::line(&ask.repository.to_string_lossy()).into_owned();
    display::say(&format!("{} ({place})", display::line(&done.text())));
    if let Some(hook) = done.hook.as_ref().filter(|hook| hook.exit != Some(0)) {
        let last = hook.output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        display::note(&format!(
            "the hook did not end well, and the delivery stands: {}; the same command again runs it again",
            display::line(last)
        ));
    }
}

/// One delivery under way.
pub(super) struct Under<'a> {
    pub(super) cx: &'a Context,
    pub(super) client: &'a Client,
    pub(super) ask: &'a Ask<'a>,
    pub(super) claims: &'a Claims,
    /// What the log said when it was looked at last: before anything here was told.
    pub(super) before: Deliveries,
    pub(super) held: Option<Held>,
    /// The runs that this one stands on.
    ancestors: Vec<RunId>,
    signature: Signature,
    pub(super) title: String,
    pub(super) body: String,
    message: String,
}

/// Hands a result over. Safe to repeat.
pub(crate) async fn deliver(
    cx: &Context,
    client: &Client,
    claims: &Claims,
    ask: &Ask<'_>,
) -> Result<Done, Undone> {
    let repository = |failure| Undone::Failed(DeliveryBlockedWhy::Repository, failure);
    let (result, state) = result_of(cx, client, ask.run).await.map_err(repository)?;
    let mut under = Under::of(cx, client, claims, ask, &state).await.map_err(repository)?;
    let branch = ask.branch.clone();
    let Some(made) = under.branch(&result).await? else {
        return Ok(Done { branch, commit: None, remote: None, hook: None });
    };
    let remote = match ask.push {
        None => None,
        Some(name) => Some((name.to_owned(), under.push(&made, name).await?)),
    };
    let hook = under.hook(&made.commit).await?;
    Ok(Done { branch, commit: Some(made.commit), remote, hook })
}

fn failed_here(error: DeliverError) -> Undone {
    Undone::Failed(DeliveryBlockedWhy::Repository, Failure { exit: Exit::Refused, error: error.into() })
}

impl<'a> Under<'a> {
    async fn of(
        cx: &'a Context,
        client: &'a Client,
        claims: &'a Claims,
        ask: &'a Ask<'a>,
        state: &RunState,
    ) -> Outcome<Self> {
        let view = client.run(ask.run).await?;
        let mut ancestors = Vec::new();
        let mut next = view.parent;
        while let Some(parent) = next.filter(|_| ancestors.len() < ANCESTORS_MAX) {
            ancestors.push(parent.run);
            next = client.run(parent.run).await?.parent;
        }
        // A time of the log: the same run is the same commit, whenever and wherever it is delivered.
        let at = view.ended_at.or(view.started_at).unwrap_or(ask.task.submitted_at);
        let words = match &state.last_text {
            None => String::new(),
            Some(Content::Blob(blob)) => {
                let bytes = Remote(client).get(blob).await.fail_as(Exit::Failed)?;
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Some(text @ (Content::Text(_) | Content::B64(_))) => text.text_or_size(),
        };
        let text = CommitText { title: &ask.task.spec.title, body: &words, task: ask.task.id, run: ask.run };
        Ok(Self {
            cx,
            client,
            ask,
            claims,
            before: deliveries(client, ask.task.id).await?,
            held: None,
            ancestors,
            signature: Signature {
                name: "docket".to_owned(),
                email: "docket@localhost".to_owned(),
                at_seconds: at.0.div_euclid(1_000_000),
            },
            title: text.title(),
            body: text.body(),
            message: text.message(),
        })
    }

    pub(super) async fn tell(&self, step: DeliveryStep) -> Result<(), Undone> {
        let told = self.client.delivery(self.ask.task.id, self.ask.run, step).await;
        told.map(drop).map_err(|error| Undone::Failed(DeliveryBlockedWhy::Repository, error.into()))
    }

    /// Whether the log says so already.
    fn is_told(&self, commit: &str, remote: Option<&str>) -> bool {
        let same = |one: &&TaskDelivered| {
            one.run == self.ask.run
                && one.branch == self.ask.branch
                && one.commit == commit
                && one.remote.as_deref() == remote
        };
        self.before.blocked.is_none() && self.before.delivered.iter().any(|one| same(&one))
    }

    /// Tells that the branch is at `commit`, unless the log says so.
    async fn tell_delivered(&mut self, commit: &str, remote: Option<&str>) -> Result<(), Undone> {
        if self.is_told(commit, remote) {
            return Ok(());
        }
        self.claim(Some(commit)).await?;
        if self.is_told(commit, remote) {
            return Ok(());
        }
        let (branch, commit) = (self.ask.branch.clone(), commit.to_owned());
        self.tell(DeliveryStep::Delivered { branch, commit, remote: remote.map(str::to_owned) }).await
    }

    /// The branch, or nothing where nothing was changed.
    async fn branch(&mut self, result: &ResultCommit) -> Result<Option<Made>, Undone> {
        let ask = self.ask;
        let own: Vec<Own> = self.before.delivered.iter().map(|one| self.own(one)).collect();
        let from = ask.task.spec.base.git.as_ref().and_then(|git| git.branch.as_deref());
        let wanted = Wanted {
            branch: &ask.branch,
            message: &self.message,
            signature: &self.signature,
            own: &own,
            replace: ask.replace,
            from: from.filter(|_| !ask.on_base),
        };
        let made = match result.deliver_onto(ask.repository, &wanted).await {
            Ok(made) => made,
            Err(DeliverError::Nothing) => {
                self.nothing().await?;
                return Ok(None);
            }
            Err(error) if error.may_pass() => return Err(failed_here(error)),
            Err(error) => return Err(self.blocked_here(result, error).await),
        };
        // A push that was blocked is not settled by the half of it that is here.
        if ask.push.is_none() || self.before.blocked.is_none() {
            self.tell_delivered(&made.commit, None).await?;
        }
        Ok(Some(made))
    }

    fn own(&self, one: &TaskDelivered) -> Own {
        let of = if one.run == self.ask.run {
            Whose::Same
        } else if self.ancestors.contains(&one.run) {
            Whose::Earlier
        } else {
            Whose::Other
        };
        Own { commit: one.commit.clone(), of }
    }

    /// Says that nothing is to be delivered, where somebody waits for it.
    async fn nothing(&mut self) -> Result<(), Undone> {
        let wanted = self.ask.task.spec.delivery();
        if !self.ask.is_wanted() || self.before.is_over(self.ask.run, wanted) {
            return Ok(());
        }
        self.claim(None).await?;
        if self.before.is_over(self.ask.run, wanted) {
            return Ok(());
        }
        self.tell(DeliveryStep::Needless {}).await
    }

    async fn blocked_here(&mut self, result: &ResultCommit, error: DeliverError) -> Undone {
        let ask = self.ask;
        let (why, paths) = match &error {
            DeliverError::Conflict { paths, .. } => (DeliveryBlockedWhy::Conflict, paths.clone()),
            _ => (DeliveryBlockedWhy::Taken, Vec::new()),
        };
        let kept = format!("docket/{}", ask.run.short());
        let kept = (kept != ask.branch).then_some(kept);
        let kept = match kept {
            None => None,
            Some(kept) => {
                match result.deliver_branch(ask.repository, &kept, &self.message, &self.signature).await {
                    Ok(_) => Some(kept),
                    // What may pass is tried again: nothing is told before it is kept.
                    Err(error) if error.may_pass() => return failed_here(error),
                    Err(_) => None,
                }
            }
        };
        let id = ask.task.id.short();
        let place = match &kept {
            Some(kept) => format!("it is kept on the branch {kept}, on the commit it started from"),
            None => "it is kept in the log".to_owned(),
        };
        let helps = match (&error, &kept) {
            (DeliverError::Conflict { .. }, Some(kept)) => format!(
                "`git merge {kept}` and `docket accept {id}`, or `docket apply {id} --on-base --branch NAME`, or \
                 `docket reject {id} --comment TEXT`"
            ),
            (DeliverError::Conflict { .. }, None) => format!("`docket apply {id} --on-base --branch NAME`"),
            (DeliverError::Undoes { .. }, _) => {
                format!("`docket apply {id} --replace` does so, `docket apply {id} --branch NAME` leaves it")
            }
            _ => format!("`docket apply {id} --branch NAME`"),
        };
        let error = error.to_string();
        self.blocked(why, paths, kept, format!("{error}; {place}; {helps}")).await
    }

    /// Tells that it is blocked, unless the log says the same already, and what to answer. A name that somebody
    /// tries beside what the task is to give is their business.
    async fn blocked(
        &mut self,
        why: DeliveryBlockedWhy,
        mut paths: Vec<String>,
        kept: Option<String>,
        message: String,
    ) -> Undone {
        let ask = self.ask;
        paths.truncate(CONFLICTS_NAMED_MAX);
        let is_delivered = self.before.delivered.iter().any(|one| one.run == ask.run);
        let matters = ask.is_wanted() || (why == DeliveryBlockedWhy::Conflict && !is_delivered);
        if matters && !self.is_blocked(why, &paths) {
            if let Err(undone) = self.claim(None).await {
                return undone;
            }
            if !self.is_blocked(why, &paths) {
                let branch = ask.branch.clone();
                let step = DeliveryStep::Blocked { branch, why, paths, kept, message: message.clone() };
                if let Err(undone) = self.tell(step).await {
                    return undone;
                }
            }
        }
        Undone::Blocked(Failure::new(Exit::Refused, message))
    }

    fn is_blocked(&self, why: DeliveryBlockedWhy, paths: &[String]) -> bool {
        self.before.blocked.as_ref().is_some_and(|blocked| {
            (blocked.run, &blocked.branch, blocked.why, blocked.paths.as_slice())
                == (self.ask.run, &self.ask.branch, why, paths)
        })
    }

    async fn push(&mut self, made: &Made, name: &str) -> Result<Pushed, Undone> {
        let (ask, commit) = (self.ask, &made.commit);
        let failed = |exit, error| Undone::Failed(DeliveryBlockedWhy::Remote, Failure { exit, error });
        let scratch = self.cx.home.folder("scratch");
        let scratch = scratch.map_err(|failure| Undone::Failed(DeliveryBlockedWhy::Repository, failure))?;
        let remote = match self.guarded(GitRemote::find(ask.repository, name, commit, &scratch)).await? {
            Ok(remote) => remote,
            Err(error @ PushError::NoRemote { .. }) => {
                let message = format!("{error}; then `docket push {}`", ask.task.id.short());
                return Err(self.blocked(DeliveryBlockedWhy::Remote, Vec::new(), None, message).await);
            }
            Err(error) => return Err(failed(Exit::Refused, error.into())),
        };
        let holds = self.guarded(remote.holds(&ask.branch, commit)).await?;
        let pushed = if holds.map_err(|error| failed(Exit::Failed, error.into()))? {
            Pushed::Before
        } else {
            self.claim(Some(commit)).await?;
            let (branch, commit, remote_name) = (ask.branch.clone(), commit.clone(), name.to_owned());
            // What was begun and has no end is the intent already.
            let open = self.before.open.as_ref();
            if !open.is_some_and(|open| open.commit == commit && open.branch == branch && open.remote == name)
            {
                self.tell(DeliveryStep::Requested { branch, commit, remote: remote_name }).await?;
            }
            match self.guarded(remote.push(&ask.branch, &made.commit)).await? {
                Ok(pushed) => pushed,
                Err(error @ PushError::Taken { .. }) => {
                    let message = format!(
                        "{error}; the result is on the branch {} of the repository; `docket push {} --branch NAME`",
                        ask.branch,
                        ask.task.id.short()
                    );
                    return Err(self.blocked(DeliveryBlockedWhy::Taken, Vec::new(), None, message).await);
                }
                Err(error) => return Err(failed(Exit::Failed, error.into())),
            }
        };
        self.tell_delivered(commit, Some(name)).await?;
        Ok(pushed)
    }
}

//! A result handed over: onto a branch of the source repository, to its remote, to the user's hook; each step told
//! to the coordinator as it is done.
//!
//! Runs on the machine that has the repository, as whoever runs docket there; coordinators and workers deliver
//! nothing. Invariants: every step can be repeated, for a branch and a remote say themselves whether they have the
//! commit, and the commit's id follows from the log and what it stands on; a push is recorded before it is made;
//! what cannot be delivered is kept on a branch of its own before anything is told.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    time::Duration,
};

use docket_schema::{
    content::Content,
    event::Envelope,
    ids::{RunId, Seq, StreamId, TaskId},
    run::RunState,
    task::{CONFLICTS_NAMED_MAX, Deliveries, Delivery, DeliveryBlockedWhy, TaskRecord},
    wire::DeliveryStep,
};
use docket_worker::{
    client::{Client, ClientError},
    process::{HookEnd, run_hook},
    workspace::{
        CommitText, DeliverError, Made, PushError, Pushed, Remote as GitRemote, ResultCommit, Signature,
        Wanted,
    },
};

use super::{Remote, result_of};
use crate::{
    context::Context,
    display,
    fail::{Exit, FailWith as _, Failure, Outcome},
};
use docket_worker::workspace::Blobs as _;

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
}

impl<'a> Ask<'a> {
    /// The task's own branch.
    pub(crate) fn of(task: &'a TaskRecord, run: RunId, repository: &'a Path) -> Self {
        let branch = task.spec.branch_of(task.id);
        Self { task, run, repository, branch, push: None, on_base: false }
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
    /// The commit that it is at.
    pub(crate) commit: String,
    /// The remote, and whether it had the commit already.
    pub(crate) remote: Option<(String, Pushed)>,
    /// What the user's hook came to.
    pub(crate) hook: Option<HookEnd>,
}

impl Done {
    /// In words.
    pub(crate) fn text(&self) -> String {
        let commit = &self.commit[..self.commit.len().min(12)];
        let place = match &self.remote {
            None => String::new(),
            Some((remote, Pushed::Now)) => format!(", pushed to {remote}"),
            Some((remote, Pushed::Before)) => format!(", and {remote} had it already"),
        };
        format!("branch {} is at {commit}{place}", self.branch)
    }
}

/// Where a task's source is, if it is a folder of this machine.
pub(crate) fn source_of(task: &TaskRecord) -> Option<PathBuf> {
    let source = task.spec.base.git.as_ref().map(|git| PathBuf::from(&git.source));
    source.filter(|folder| folder.is_dir())
}

/// What became of a task's results.
pub(crate) async fn deliveries(client: &Client, task: TaskId) -> Outcome<Deliveries> {
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
    Deliveries::of(&events).fail_as(Exit::EngineMissing)
}

/// Says what was handed over.
pub(crate) fn say(cx: &Context, ask: &Ask<'_>, done: &Done) {
    let (task, run) = (ask.task.id, ask.run);
    if cx.json() {
        display::say_json(&serde_json::json!({
            "task": task, "run": run, "branch": done.branch, "commit": done.commit, "repo": ask.repository,
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
struct Under<'a> {
    cx: &'a Context,
    client: &'a Client,
    ask: &'a Ask<'a>,
    before: Deliveries,
    signature: Signature,
    title: String,
    body: String,
    message: String,
}

/// Hands a result over. Safe to repeat.
pub(crate) async fn deliver(cx: &Context, client: &Client, ask: &Ask<'_>) -> Outcome<Done> {
    let (result, state) = result_of(cx, client, ask.run).await?;
    let under = Under::of(cx, client, ask, &state).await?;
    let made = under.branch(&result).await?;
    let remote = match ask.push {
        None => None,
        Some(name) => Some((name.to_owned(), under.push(&made, name).await?)),
    };
    let hook = under.hook(&made.commit).await?;
    Ok(Done { branch: ask.branch.clone(), commit: made.commit, remote, hook })
}

impl<'a> Under<'a> {
    async fn of(cx: &'a Context, client: &'a Client, ask: &'a Ask<'a>, state: &RunState) -> Outcome<Self> {
        let view = client.run(ask.run).await?;
        // A time of the log: the same run is the same commit, whenever and wherever it is delivered.
        let at = view.ended_at.or(view.started_at).unwrap_or(ask.task.submitted_at);
        let words = match &state.last_text {
            None => String::new(),
            Some(Content::Blob(blob)) => {
                let bytes = Remote(client).get(blob).await.fail_as(Exit::Failed)?;
                String::from_utf8_lossy(&bytes).into_owned()
            }
            Some(text @ (Content::Text(_) | Content::B64(_))) => crate::events::text_of(text),
        };
        let text = CommitText { title: &ask.task.spec.title, body: &words, task: ask.task.id, run: ask.run };
        Ok(Self {
            cx,
            client,
            ask,
            before: deliveries(client, ask.task.id).await?,
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

    async fn tell(&self, step: DeliveryStep) -> Result<(), ClientError> {
        self.client.delivery(self.ask.task.id, self.ask.run, step).await.map(|_| ())
    }

    /// Whether the log says so already.
    fn is_told(&self, commit: &str, remote: Option<&str>) -> bool {
        let same = |one: &&docket_schema::task::TaskDelivered| {
            one.run == self.ask.run
                && one.branch == self.ask.branch
                && one.commit == commit
                && one.remote.as_deref() == remote
        };
        self.before.blocked.is_none() && self.before.delivered.iter().any(|one| same(&one))
    }

    async fn branch(&self, result: &ResultCommit) -> Outcome<Made> {
        let ask = self.ask;
        let own = self.before.commits();
        let from = ask.task.spec.base.git.as_ref().and_then(|git| git.branch.as_deref());
        let wanted = Wanted {
            branch: &ask.branch,
            message: &self.message,
            signature: &self.signature,
            own: &own,
            from: from.filter(|_| !ask.on_base),
        };
        let made = match result.deliver_onto(ask.repository, &wanted).await {
            Ok(made) => made,
            Err(
                error @ (DeliverError::Conflict { .. }
                | DeliverError::BranchTaken { .. }
                | DeliverError::CheckedOut(_)),
            ) => {
                return Err(self.blocked_here(result, error).await);
            }
            Err(error) => return Err(error).fail_as(Exit::Refused),
        };
        if !self.is_told(&made.commit, None) {
            let (branch, commit) = (ask.branch.clone(), made.commit.clone());
            self.tell(DeliveryStep::Delivered { branch, commit, remote: None }).await?;
        }
        Ok(made)
    }

    async fn blocked_here(&self, result: &ResultCommit, error: DeliverError) -> Failure {
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
                let made = result.deliver_branch(ask.repository, &kept, &self.message, &self.signature).await;
                made.is_ok().then_some(kept)
            }
        };
        let id = ask.task.id.short();
        let place = match &kept {
            Some(kept) => format!("it is kept on the branch {kept}, on the commit it started from"),
            None => "it is kept in the log".to_owned(),
        };
        let helps = match (why, &kept) {
            (DeliveryBlockedWhy::Conflict, Some(kept)) => format!(
                "`git merge {kept}` and `docket accept {id}`, or `docket apply {id} --on-base --branch NAME`, or \
                 `docket reject {id} --comment TEXT`"
            ),
            (DeliveryBlockedWhy::Conflict, None) => format!("`docket apply {id} --on-base --branch NAME`"),
            (DeliveryBlockedWhy::Taken | DeliveryBlockedWhy::Remote, _) => {
                format!("`docket apply {id} --branch NAME`")
            }
        };
        let error = error.to_string();
        self.blocked(why, paths, kept, format!("{error}; {place}; {helps}")).await
    }

    /// Tells that it is blocked, unless the log says the same already, and what to answer. A name that somebody
    /// tries beside what the task is to give is their business.
    async fn blocked(
        &self,
        why: DeliveryBlockedWhy,
        mut paths: Vec<String>,
        kept: Option<String>,
        message: String,
    ) -> Failure {
        let ask = self.ask;
        paths.truncate(CONFLICTS_NAMED_MAX);
        let same = self.before.blocked.as_ref().is_some_and(|blocked| {
            (blocked.run, &blocked.branch, blocked.why, &blocked.paths) == (ask.run, &ask.branch, why, &paths)
        });
        let is_delivered = self.before.delivered.iter().any(|one| one.run == ask.run);
        let matters = ask.is_wanted() || (why == DeliveryBlockedWhy::Conflict && !is_delivered);
        if matters && !same {
            let branch = ask.branch.clone();
            let step = DeliveryStep::Blocked { branch, why, paths, kept, message: message.clone() };
            if let Err(error) = self.tell(step).await {
                display::note(&format!("the log does not say so, for it could not be told: {error}"));
            }
        }
        Failure::new(Exit::Refused, message)
    }

    async fn push(&self, made: &Made, name: &str) -> Outcome<Pushed> {
        let (ask, commit) = (self.ask, &made.commit);
        let scratch = self.cx.home.folder("scratch")?;
        let remote = match GitRemote::find(ask.repository, name, commit, &scratch).await {
            Ok(remote) => remote,
            Err(error @ PushError::NoRemote { .. }) => {
                let message = format!("{error}; then `docket push {}`", ask.task.id.short());
                return Err(self.blocked(DeliveryBlockedWhy::Remote, Vec::new(), None, message).await);
            }
            Err(error) => return Err(error).fail_as(Exit::Refused),
        };
        let there = remote.branch_at(&ask.branch).await.fail_as(Exit::Failed)?;
        let pushed = if there.as_ref() == Some(commit) {
            Pushed::Before
        } else {
            let (branch, commit, remote_name) = (ask.branch.clone(), commit.clone(), name.to_owned());
            // What was begun and has no end is the intent already.
            let open = self.before.open.as_ref();
            if !open.is_some_and(|open| open.commit == commit && open.branch == branch && open.remote == name)
            {
                self.tell(DeliveryStep::Requested { branch, commit, remote: remote_name }).await?;
            }
            match remote.push(&ask.branch, &made.commit).await {
                Ok(pushed) => pushed,
                Err(error @ PushError::Taken { .. }) => {
                    let message = format!(
                        "{error}; the result is on the branch {} of the repository; `docket push {} --branch NAME`",
                        ask.branch,
                        ask.task.id.short()
                    );
                    return Err(self.blocked(DeliveryBlockedWhy::Taken, Vec::new(), None, message).await);
                }
                Err(error) => return Err(error).fail_as(Exit::Failed),
            }
        };
        if !self.is_told(commit, Some(name)) {
            let (branch, commit) = (ask.branch.clone(), commit.clone());
            self.tell(DeliveryStep::Delivered { branch, commit, remote: Some(name.to_owned()) }).await?;
        }
        Ok(pushed)
    }

    /// Runs the user's hook, unless it ran well for this commit.
    async fn hook(&self, commit: &str) -> Outcome<Option<HookEnd>> {
        let settings = &self.cx.config.delivery;
        let Some(command) = &settings.hook else { return Ok(None) };
        let is_pushed = self.before.delivered.iter().any(|one| one.commit == commit && one.remote.is_some());
        let is_new = self.ask.push.is_some() && !is_pushed;
        if self.before.is_hooked(commit) && !is_new {
            return Ok(None);
        }
        let scratch = self.cx.home.folder("scratch")?;
        let body = tempfile::Builder::new().prefix("body-").suffix(".md").tempfile_in(&scratch)?;
        std::fs::write(body.path(), &self.body)?;
        let ask = self.ask;
        let text = |text: &dyn std::fmt::Display| OsString::from(text.to_string());
        let env = [
            ("DOCKET_RUN", text(&ask.run)),
            ("DOCKET_TASK", text(&ask.task.id)),
            ("DOCKET_BRANCH", text(&ask.branch)),
            ("DOCKET_COMMIT", text(&commit)),
            ("DOCKET_REMOTE", text(&ask.push.unwrap_or_default())),
            ("DOCKET_REPO", ask.repository.as_os_str().to_owned()),
            ("DOCKET_BASE_BRANCH", {
                let git = ask.task.spec.base.git.as_ref();
                text(&git.and_then(|git| git.branch.as_deref()).unwrap_or_default())
            }),
            ("DOCKET_TITLE", text(&self.title)),
            ("DOCKET_BODY_FILE", body.path().as_os_str().to_owned()),
        ];
        let timeout = Duration::from_millis(settings.hook_timeout_ms);
        let ended = run_hook(command, ask.repository, &env, timeout).await;
        let output = ended.output.replace('\0', "");
        self.tell(DeliveryStep::HookRan { commit: commit.to_owned(), exit: ended.exit, output }).await?;
        Ok(Some(ended))
    }
}

//! What `cancel`, `retry`, `pause`, `unpause` and `reprioritize` share: one task, several, or all that a filter
//! means; a reason for the log; and what became of them.

use crate::output::task_rows;
use std::io::{IsTerminal as _, Write as _};

use docket_schema::{
    ids::{TaskId, Timestamp},
    task::{TaskRecord, TaskState},
    wire::{BULK_TASKS_MAX, BulkAct, BulkDone, BulkRequest, RetryRequest, TaskQuery, TaskStates},
};
use docket_worker::client::Client;

use crate::{
    connect::{
        access::{Access, Need},
        filter::FilterArgs,
        resolve,
    },
    context::Context,
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
    progress::Progress,
};

/// Refusals that are told one by one.
const REFUSED_SHOWN_MAX: usize = 5;
/// Titles that are shown before somebody is asked.
const TITLES_SHOWN_MAX: usize = 5;

/// Which tasks.
#[derive(Debug, clap::Args)]
pub(crate) struct MeantArgs {
    /// Tasks, or runs of theirs
    #[arg(value_name = "ID", conflicts_with = "FilterArgs")]
    ids: Vec<String>,
    #[command(flatten)]
    filter: FilterArgs,
    /// With filters: show what is meant, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// With filters: do not ask first
    #[arg(long, short)]
    yes: bool,
}

/// Flags of an act whose event holds a reason.
#[derive(Debug, clap::Args)]
pub(crate) struct ActArgs {
    #[command(flatten)]
    meant: MeantArgs,
    /// Why, for the log
    #[arg(long, default_value = "")]
    reason: String,
}

const fn word(act: BulkAct) -> &'static str {
    match act {
        BulkAct::Cancel => "cancel",
        BulkAct::Retry | BulkAct::RetryWithoutDependencies => "retry",
        BulkAct::Pause => "pause",
        BulkAct::Unpause => "unpause",
        BulkAct::Reprioritize(_) => "reprioritize",
    }
}

/// The states that an act is for where nobody says: a filter by queue does not run again what is done.
fn states(act: BulkAct) -> Option<TaskStates> {
    let open = |state: &TaskState| !state.is_ended();
    let states: Vec<TaskState> = match act {
        BulkAct::Cancel | BulkAct::Reprioritize(_) => TaskState::ALL.into_iter().filter(open).collect(),
        BulkAct::Retry | BulkAct::RetryWithoutDependencies => vec![TaskState::Discarded],
        BulkAct::Pause => {
            vec![TaskState::Scheduled, TaskState::Available, TaskState::Retryable, TaskState::Running]
        }
        BulkAct::Unpause => vec![TaskState::Blocked],
    };
    TaskStates::of(states)
}

/// Does it, and says what the tasks are now.
pub(crate) async fn run_with_reason(cx: Context, args: ActArgs, act: BulkAct) -> Outcome {
    run(cx, args.meant, act, args.reason).await
}

/// Likewise, of an act whose event holds no reason.
pub(crate) async fn run(cx: Context, mut args: MeantArgs, act: BulkAct, reason: String) -> Outcome {
    let looks = args.dry_run && args.ids.is_empty();
    if args.dry_run && !args.ids.is_empty() {
        return Err(Failure::new(
            Exit::Usage,
            "--dry-run goes with filters; `docket show ID` shows one task",
        ));
    }
    if args.ids.is_empty() && args.filter == FilterArgs::default() {
        return Err(Failure::new(
            Exit::Usage,
            "nothing says which tasks are meant; name them, or give a filter, such as --batch, --queue or --state",
        ));
    }
    let access = Access::open(&cx, if looks { Need::Read } else { Need::Write }).await?;
    args.filter.find_batch(&access.client).await?;
    let exit = match args.ids.as_slice() {
        [] => {
            let now = docket_coordinator::clock::Clock::new().now();
            let asked = args.filter.query(now);
            // What comes while somebody is asked was not meant.
            let until = Some(asked.until.unwrap_or(now).min(Timestamp(now.0 + 1)));
            let state = asked.state.clone().or_else(|| states(act));
            let filter = TaskQuery { state, until, limit: Some(BULK_TASKS_MAX), ..asked };
            filtered(
                &cx,
                &access.client,
                BulkRequest { act, filter, tasks: Vec::new(), reason, dry_run: false },
                &args,
            )
            .await
        }
        [one] if !matches!(act, BulkAct::Reprioritize(_)) => single(&cx, &access, one, act, &reason).await,
        several => named(&cx, &access.client, several, act, reason).await,
    };
    if args.ids.is_empty() {
        args.filter.tell_archived(&access.client).await;
    }
    access.close().await?;
    exit
}

async fn single(cx: &Context, access: &Access, id: &str, act: BulkAct, reason: &str) -> Outcome {
    let client = &access.client;
    let task = resolve::task(client, id).await?;
    let now: TaskRecord = match act {
        BulkAct::Cancel => client.cancel(task, reason).await?,
        BulkAct::Pause => client.pause(task).await?,
        BulkAct::Unpause => client.unpause(task).await?,
        BulkAct::Retry | BulkAct::RetryWithoutDependencies | BulkAct::Reprioritize(_) => {
            let without_dependencies = act == BulkAct::RetryWithoutDependencies;
            client.retry(task, &RetryRequest { reason: reason.to_owned(), without_dependencies }).await?
        }
    };
    if cx.json() {
        display::say_json(&task_rows::Row::of(&now));
        return Ok(Exit::Ok);
    }
    display::say(&match (act, now.state, now.run) {
        (BulkAct::Pause, TaskState::Running, Some(run)) => {
            format!("asked; run {} of task {} rests at its next turn", run.short(), task.short())
        }
        (..) => format!("task {} is {}", task.short(), task_rows::word(&now)),
    });
    if act == BulkAct::Unpause && access.is_alone() {
        display::note("nobody works here now; `docket up` starts workers");
    }
    Ok(Exit::Ok)
}

async fn named(cx: &Context, client: &Client, ids: &[String], act: BulkAct, reason: String) -> Outcome {
    let mut tasks: Vec<TaskId> = Vec::new();
    for id in ids {
        let task = resolve::task(client, id).await?;
        if !tasks.contains(&task) {
            tasks.push(task);
        }
    }
    let mut told = Told::new(cx, act);
    for page in tasks.chunks(BULK_TASKS_MAX as usize) {
        let request = BulkRequest {
            act,
            filter: TaskQuery::default(),
            tasks: page.to_vec(),
            reason: reason.clone(),
            dry_run: false,
        };
        told.page(client.bulk(&request).await?.tasks);
    }
    Ok(told.end())
}

/// Every page of a request, each handed to `each`.
async fn pages(
    client: &Client,
    mut request: BulkRequest,
    mut each: impl FnMut(Vec<BulkDone>),
) -> Outcome<()> {
    loop {
        let page = client.bulk(&request).await?;
        each(page.tasks);
        match page.next {
            None => return Ok(()),
            next => request.filter.before = next,
        }
    }
}

async fn filtered(cx: &Context, client: &Client, request: BulkRequest, args: &MeantArgs) -> Outcome {
    let act = word(request.act);
    let asks = !args.yes && !args.dry_run;
    if asks && (cx.json() || !std::io::stdin().is_terminal()) {
        let message = format!("to {act} all tasks that a filter means, say --yes; --dry-run shows them");
        return Err(Failure::new(Exit::Usage, message));
    }
    if args.dry_run {
        let look = BulkRequest { dry_run: true, ..request };
        let mut count = 0_usize;
        pages(client, look, |page| {
            count += page.len();
            page.iter().for_each(|task| say(cx, task));
        })
        .await?;
        if !cx.json() {
            let are = if count == 1 { "1 task is" } else { &format!("{count} tasks are") };
            display::say(&format!("{are} meant; nothing was done"));
        }
        return Ok(Exit::Ok);
    }
    if asks {
        let look = BulkRequest { dry_run: true, ..request.clone() };
        let (mut count, mut titles) = (0_usize, Vec::new());
        pages(client, look, |page| {
            count += page.len();
            let room = TITLES_SHOWN_MAX.saturating_sub(titles.len());
            titles.extend(page.into_iter().take(room));
        })
        .await?;
        if count == 0 {
            display::say("no task is meant; nothing was done");
            return Ok(Exit::Ok);
        }
        titles.iter().for_each(|task| say(cx, task));
        if count > titles.len() {
            display::say(&format!("and {} more", count - titles.len()));
        }
        if !agreed(&format!("{act} {count} tasks? [y/N] "))? {
            return Err(Failure::new(Exit::Failed, "nothing was done"));
        }
    }
    let progress = Progress::counting(cx, "tasks");
    let mut told = Told::new(cx, request.act);
    pages(client, request, |page| {
        told.page(page);
        progress.at((told.done + told.refused) as u64);
    })
    .await?;
    drop(progress);
    Ok(told.end())
}

fn agreed(question: &str) -> Outcome<bool> {
    let mut err = std::io::stderr().lock();
    // Where nobody can be asked, nobody agrees.
    let asked = write!(err, "{question}").and_then(|()| err.flush());
    drop(err);
    asked.fail_as(Exit::Failed)?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).fail_as(Exit::Failed)?;
    agreement(&answer).ok_or_else(|| {
        let message = format!("`{}` is not an answer; answer y or n. Nothing was done", answer.trim());
        Failure::new(Exit::Usage, message)
    })
}

/// Reads the answer to a question whose default is no. `None` = it is neither yes nor no.
fn agreement(answer: &str) -> Option<bool> {
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Some(true),
        "" | "n" | "no" => Some(false),
        _ => None,
    }
}

fn say(cx: &Context, task: &BulkDone) {
    if cx.json() {
        return display::say_json(task);
    }
    let state = task.state.map_or("-", TaskState::as_str);
    display::say(&display::line(&format!("{}  {state:<9}  {}", task.id.short(), task.title)));
}

/// Counts what was done, and tells it.
struct Told<'a> {
    cx: &'a Context,
    act: BulkAct,
    done: usize,
    refused: usize,
    reasons: Vec<BulkDone>,
}

impl<'a> Told<'a> {
    const fn new(cx: &'a Context, act: BulkAct) -> Self {
        Self { cx, act, done: 0, refused: 0, reasons: Vec::new() }
    }

    fn page(&mut self, page: Vec<BulkDone>) {
        for task in page {
            if self.cx.json() {
                display::say_json(&task);
            }
            if task.refused.is_none() {
                self.done += 1;
                continue;
            }
            self.refused += 1;
            if self.reasons.len() < REFUSED_SHOWN_MAX {
                self.reasons.push(task);
            }
        }
    }

    fn end(self) -> Exit {
        if !self.cx.json() {
            let past = match self.act {
                BulkAct::Cancel => "cancelled",
                BulkAct::Retry | BulkAct::RetryWithoutDependencies => "put back",
                BulkAct::Pause => "paused, or asked to rest at their next turn",
                BulkAct::Unpause => "let go on",
                BulkAct::Reprioritize(_) => "given their priority",
            };
            let were = if self.done == 1 { "1 task was" } else { &format!("{} tasks were", self.done) };
            let past = if self.done == 1 { past.replace("their", "its") } else { past.to_owned() };
            display::say(&format!("{were} {past}, {} refused", self.refused));
        }
        for task in &self.reasons {
            let why = task.refused.as_deref().unwrap_or_default();
            display::note(&display::line(&format!("{} ({}): {why}", task.id.short(), task.title)));
        }
        if self.refused > 0 { Exit::Refused } else { Exit::Ok }
    }
}

#[cfg(test)]
mod tests {
    use super::agreement;

    #[test]
    fn only_yes_and_no_answer_a_prompt() {
        for (answer, agreed) in [
            ("y\n", Some(true)),
            (" YES ", Some(true)),
            ("n", Some(false)),
            ("No\n", Some(false)),
            ("\n", Some(false)),
            ("", Some(false)),
            ("yess", None),
            ("ok", None),
            ("maybe", None),
        ] {
            assert_eq!(agreement(answer), agreed, "{answer:?}");
        }
    }
}

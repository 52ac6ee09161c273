//! Which tasks are meant: the flags that lists and acts on many share.

use crate::connect::batches;
use std::time::Duration;

use docket_schema::{
    ids::{QueueName, Timestamp},
    task::TaskState,
    wire::{PATTERN_BYTES_MAX, TaskQuery, TaskStates},
};

use docket_worker::client::Client;

use crate::output::{display, fail::Outcome};

/// See the module. A task is meant that passes all of them.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
pub(crate) struct FilterArgs {
    /// Only tasks in this state; several with commas, or the flag again
    #[arg(long, value_parser = state, value_delimiter = ',')]
    pub(crate) state: Vec<TaskState>,
    /// Only tasks of this queue
    #[arg(long)]
    queue: Option<QueueName>,
    /// Only tasks of this batch: its name, the last part of it, or its id
    #[arg(long, value_name = "BATCH")]
    batch: Option<String>,
    /// Only tasks whose title is like this: `*` is any text, `?` any character
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    title: Option<String>,
    /// Only tasks for a model like this, as 'anthropic:*'
    #[arg(long, value_name = "PATTERN", value_parser = pattern)]
    model: Option<String>,
    /// Only tasks for this engine
    #[arg(long)]
    engine: Option<String>,
    /// Only tasks that this worker has
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Only tasks submitted since this instant, as 2026-01-31T02:00:00Z or 2026-01-31, or this long ago, as 90m or 2d
    #[arg(long, value_name = "TIME", value_parser = instant)]
    since: Option<Instant>,
    /// Only tasks submitted before this instant, or longer ago than this
    #[arg(long, alias = "until", value_name = "TIME", value_parser = instant)]
    before: Option<Instant>,
}

/// An instant, as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Instant {
    At(Timestamp),
    Ago(Duration),
}

fn state(text: &str) -> Result<TaskState, String> {
    if matches!(text, "undelivered" | "paused") {
        return Err(format!(
            "it is a kind of blocked: `--state blocked` lists it, and says which are {text}"
        ));
    }
    text.parse().map_err(|_| {
        if text == "archived" {
            return "archived tasks are listed by `docket archive list`".to_owned();
        }
        let all: Vec<&str> = TaskState::ALL.iter().map(|state| state.as_str()).collect();
        format!("it is one of {}", all.join(", "))
    })
}

fn pattern(text: &str) -> Result<String, String> {
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!("it may have {PATTERN_BYTES_MAX} bytes"));
    }
    Ok(text.to_owned())
}

pub(crate) fn instant(text: &str) -> Result<Instant, String> {
    if let Ok(at) = text.parse() {
        return Ok(Instant::At(at));
    }
    let must = || {
        "it must be as 2026-01-31T02:00:00Z or 2026-01-31, or how long ago, as 90s, 30m, 2h or 7d".to_owned()
    };
    // A day, from its first moment on.
    if let Ok(at) = format!("{text}T00:00:00Z").parse() {
        return Ok(Instant::At(at));
    }
    let unit = text.chars().last().ok_or_else(must)?;
    let seconds: u64 = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(must()),
    };
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| must())?;
    // A century is more than any log goes back.
    let ago = number.checked_mul(seconds).filter(|ago| *ago < 3_200_000_000).ok_or_else(must)?;
    Ok(Instant::Ago(Duration::from_secs(ago)))
}

impl Instant {
    /// The instant, as of `now`.
    pub(crate) fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => Timestamp(now.0 - i64::try_from(ago.as_micros()).unwrap_or(i64::MAX / 2)),
        }
    }
}

impl FilterArgs {
    /// Finds the batch that is named.
    ///
    /// # Errors
    /// There is none: what was typed wrong is not to pass for a batch without such tasks.
    pub(crate) async fn find_batch(&mut self, client: &Client) -> Outcome<()> {
        if let Some(batch) = &mut self.batch {
            *batch = batches::meant(client, batch).await?.to_string();
        }
        Ok(())
    }

    /// Tells how many tasks of the batch that is meant are in the archive, where neither lists nor acts find them.
    pub(crate) async fn tell_archived(&self, client: &Client) {
        let Some(batch) = self.batch.as_deref().map(batches::named) else { return };
        // What cannot be read here is told by what was asked for.
        if let Ok(view) = client.batch(batch).await
            && view.archived > 0
        {
            let of = view.name.unwrap_or_else(|| batch.to_string());
            display::note(&display::line(&format!(
                "{} of the batch's {} are archived: `docket archive list --batch '{of}'`",
                view.archived,
                display::count(view.tasks, "task")
            )));
        }
    }

    /// The query that they make.
    pub(crate) fn query(&self, now: Timestamp) -> TaskQuery {
        TaskQuery {
            state: TaskStates::of(self.state.iter().copied()),
            queue: self.queue.clone(),
            batch: self.batch.as_deref().map(batches::named),
            engine: self.engine.clone(),
            worker: self.worker.clone(),
            model: self.model.clone(),
            title: self.title.clone(),
            since: self.since.map(|since| since.from(now)),
            until: self.before.map(|before| before.from(now)),
            limit: None,
            before: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_typed_whole_or_as_an_age() {
        let now = Timestamp(1_000_000_000_000);
        let at = |text: &str| instant(text).map(|instant| instant.from(now).0).ok();
        assert_eq!(at("90s"), Some(1_000_000_000_000 - 90_000_000));
        assert_eq!(at("2d"), Some(1_000_000_000_000 - 2 * 86_400_000_000));
        assert_eq!(at("1970-01-01T00:00:01Z"), Some(1_000_000));
        assert_eq!(at("1970-01-02"), Some(86_400_000_000));
        for bad in ["", "d", "-1d", "tomorrow", "5y", "99999999999d", "1ü"] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }
}

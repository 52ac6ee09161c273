//! Task filters: flags shared by lists and bulk operations.

use crate::connect::batch_lookup;
use std::time::Duration;

use docket_schema::{
    api::{PATTERN_BYTES_MAX, TaskQuery, TaskStates},
    ids::{QueueName, Timestamp},
    task::TaskState,
};

use docket_worker::client::CoordinatorClient;

use crate::output::{display, error::CliResult};

/// Filters; a task must pass all of them.
#[derive(Debug, Clone, Default, PartialEq, clap::Args)]
pub(crate) struct TaskFilterArgs {
    /// Only tasks in this state; comma-separated, or repeat the flag
    #[arg(long, value_parser = parse_task_state, value_delimiter = ',')]
    pub(crate) state: Vec<TaskState>,
    /// Only tasks in this queue
    #[arg(long)]
    queue: Option<QueueName>,
    /// Only tasks in this batch: its name, the last part of it, or its id
    #[arg(long, value_name = "BATCH")]
    batch: Option<String>,
    /// Only tasks whose title matches: `*` is any text, `?` any character
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    title: Option<String>,
    /// Only tasks for a matching model, e.g. 'anthropic:*'
    #[arg(long, value_name = "PATTERN", value_parser = parse_pattern)]
    model: Option<String>,
    /// Only tasks for this engine
    #[arg(long)]
    engine: Option<String>,
    /// Only tasks leased by this worker
    #[arg(long, value_name = "NAME")]
    worker: Option<String>,
    /// Only tasks submitted since this time (2026-01-31T02:00:00Z or 2026-01-31), or within this age (90m or
    /// 2d)
    #[arg(long, value_name = "TIME", value_parser = parse_instant)]
    since: Option<InstantArg>,
    /// Only tasks submitted before this time, or longer ago than this age
    #[arg(long, alias = "until", value_name = "TIME", value_parser = parse_instant)]
    before: Option<InstantArg>,
}

/// A point in time as typed on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InstantArg {
    At(Timestamp),
    Ago(Duration),
}

fn parse_task_state(text: &str) -> Result<TaskState, String> {
    if matches!(text, "undelivered" | "paused") {
        return Err(format!(
            "this is a kind of blocked: use `--state blocked`, which shows the tasks that are {text}"
        ));
    }
    text.parse().map_err(|_| {
        if text == "archived" {
            return "use `docket archive list` to list archived tasks".to_owned();
        }
        let all: Vec<&str> = TaskState::ALL.iter().map(|state| state.as_str()).collect();
        format!("it must be one of {}", all.join(", "))
    })
}

fn parse_pattern(text: &str) -> Result<String, String> {
    if text.len() > PATTERN_BYTES_MAX {
        return Err(format!("it may have at most {PATTERN_BYTES_MAX} bytes"));
    }
    Ok(text.to_owned())
}

pub(crate) fn parse_instant(text: &str) -> Result<InstantArg, String> {
    if let Ok(at) = text.parse() {
        return Ok(InstantArg::At(at));
    }
    let must = || {
        "it must be a time such as 2026-01-31T02:00:00Z or 2026-01-31, or an age such as 90s, 30m, 2h or 7d"
            .to_owned()
    };
    // A date means the start of that day.
    if let Ok(at) = format!("{text}T00:00:00Z").parse() {
        return Ok(InstantArg::At(at));
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
    // No log goes back more than a century.
    let ago = number.checked_mul(seconds).filter(|ago| *ago < 3_200_000_000).ok_or_else(must)?;
    Ok(InstantArg::Ago(Duration::from_secs(ago)))
}

impl InstantArg {
    /// Resolves it relative to `now`.
    pub(crate) fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => Timestamp(now.0 - i64::try_from(ago.as_micros()).unwrap_or(i64::MAX / 2)),
        }
    }
}

impl TaskFilterArgs {
    /// Resolves the named batch.
    ///
    /// # Errors
    /// Fails when there is none, so that a typo is not mistaken for a batch without matching tasks.
    pub(crate) async fn resolve_batch(&mut self, client: &CoordinatorClient) -> CliResult<()> {
        if let Some(batch) = &mut self.batch {
            *batch = batch_lookup::resolve_batch(client, batch).await?.to_string();
        }
        Ok(())
    }

    /// Prints how many tasks of the batch are archived, because lists and bulk operations do not find those.
    pub(crate) async fn note_archived_tasks(&self, client: &CoordinatorClient) {
        let Some(batch) = self.batch.as_deref().map(batch_lookup::parse_batch_id) else { return };
        // If this cannot be read, the actual request reports the error.
        if let Ok(view) = client.get_batch(batch).await
            && view.archived > 0
        {
            let of = view.name.unwrap_or_else(|| batch.to_string());
            display::print_note(&display::sanitize_line(&format!(
                "{} of the batch's {} are archived: `docket archive list --batch '{of}'`",
                view.archived,
                display::format_count(view.tasks, "task")
            )));
        }
    }

    /// Converts the filters to a query.
    pub(crate) fn to_query(&self, now: Timestamp) -> TaskQuery {
        TaskQuery {
            state: TaskStates::from_states(self.state.iter().copied()),
            queue: self.queue.clone(),
            batch: self.batch.as_deref().map(batch_lookup::parse_batch_id),
            engine: self.engine.clone(),
            worker: self.worker.clone(),
            model: self.model.clone(),
            title: self.title.clone(),
            since: self.since.map(|since| since.resolve(now)),
            until: self.before.map(|before| before.resolve(now)),
            limit: None,
            before: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instant_is_absolute_or_relative() {
        let now = Timestamp(1_000_000_000_000);
        let at = |text: &str| parse_instant(text).map(|instant| instant.resolve(now).0).ok();
        assert_eq!(at("90s"), Some(1_000_000_000_000 - 90_000_000));
        assert_eq!(at("2d"), Some(1_000_000_000_000 - 2 * 86_400_000_000));
        assert_eq!(at("1970-01-01T00:00:01Z"), Some(1_000_000));
        assert_eq!(at("1970-01-02"), Some(86_400_000_000));
        for bad in ["", "d", "-1d", "tomorrow", "5y", "99999999999d", "1ü"] {
            assert_eq!(at(bad), None, "{bad}");
        }
    }
}

//! Flags for what must hold before a task is leased: `submit` and `run`.

use docket_schema::{
    ids::StreamId,
    task::{ConcurrencyLimit, DependencyFailurePolicy, LabelSet, LeaseConditions},
};
use docket_worker::client::CoordinatorClient;

use crate::{connect::resolve, output::error::CliResult};

/// See the module.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub(crate) struct ConditionArgs {
    /// Only once this task is completed; several with commas, or the flag again
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    after: Vec<String>,
    /// What then, if one of those is cancelled or discarded: hold (it goes on waiting, that one may be retried),
    /// cancel (this one too) or run [default: hold]
    #[arg(long, value_name = "WHAT", requires = "after", value_parser = parse_if_failed)]
    if_failed: Option<DependencyFailurePolicy>,
    /// Not while other tasks with this key run: one writer per branch, say. A task that waits for a person, its
    /// provider or its backoff does not run, and lets others go meanwhile
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// How many of that key may run at a time; of tasks that say different things, the least holds
    #[arg(long, value_name = "N", default_value_t = 1, requires = "key", value_parser = clap::value_parser!(u32).range(1..))]
    key_max: u32,
    /// Only on a worker with these labels, as gpu=a100,arch=arm64 (`docket worker --labels`)
    #[arg(long, value_name = "LABELS", default_value = "", hide_default_value = true)]
    selector: LabelSet,
}

fn parse_if_failed(text: &str) -> Result<DependencyFailurePolicy, String> {
    text.parse().map_err(|error: docket_schema::ids::ParseIdError| error.to_string())
}

impl ConditionArgs {
    /// The labels that a worker must have.
    pub(crate) const fn selector(&self) -> &LabelSet {
        &self.selector
    }

    /// With the ids that were meant.
    pub(crate) async fn resolve_conditions(&self, client: &CoordinatorClient) -> CliResult<LeaseConditions> {
        let mut after = Vec::new();
        for text in &self.after {
            // An archived one is known by how it ended.
            after.push(match resolve::resolve_archived(client, text).await? {
                Some(StreamId::Task(task)) => task,
                Some(StreamId::Run(_) | StreamId::Queue(_) | StreamId::System(_)) | None => {
                    resolve::resolve_task(client, text).await?
                }
            });
        }
        Ok(LeaseConditions {
            after,
            if_failed: self.if_failed.unwrap_or_default(),
            concurrency: self.key.clone().map(|key| ConcurrencyLimit { key, max: self.key_max }),
            selector: self.selector.clone(),
        })
    }
}

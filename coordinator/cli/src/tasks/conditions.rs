//! Flags for the conditions under which a task is leased: `submit` and `run`.

use docket_schema::{
    ids::StreamId,
    task::{ConcurrencyLimit, DependencyFailurePolicy, LabelSet, LeaseConditions},
};
use docket_worker::client::CoordinatorClient;

use crate::{connect::resolve, output::error::CliResult};

/// Conditions for leasing a task.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(skip)]
pub(crate) struct ConditionArgs {
    /// Run only after this task is completed; comma-separated, or repeat the flag
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    after: Vec<String>,
    /// What to do if one of those is cancelled or discarded: hold (keep waiting, as it may be retried), cancel
    /// (this task too) or run [default: hold]
    #[arg(long, value_name = "WHAT", requires = "after", value_parser = parse_if_failed)]
    if_failed: Option<DependencyFailurePolicy>,
    /// Do not run concurrently with other tasks of this key, e.g. one writer per branch. A task that waits for
    /// a person, its provider or a retry does not count as running
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
    /// Maximum concurrent tasks of that key; if tasks differ, the lowest value applies
    #[arg(long, value_name = "N", default_value_t = 1, requires = "key", value_parser = clap::value_parser!(u32).range(1..))]
    key_max: u32,
    /// Run only on a worker with these labels, e.g. gpu=a100,arch=arm64 (`docket worker --labels`)
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

    /// Resolves the ids of dependencies.
    pub(crate) async fn resolve_conditions(&self, client: &CoordinatorClient) -> CliResult<LeaseConditions> {
        let mut after = Vec::new();
        for text in &self.after {
            // An archived task is represented by how it ended.
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

//! The table of cases, and how they are run.

use std::pin::Pin;

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, stream};

use super::{CoordinatorFixture, budgets, cancels, drains, keys, pauses, queue_limits, schedules};
use crate::{
    pg_cluster::PostgresCluster,
    system::{StoreLocation, WAIT_MAX, acquire_scenario_slot, fresh_database},
};

/// A case; returns an error if it fails.
pub type ServedCase = for<'a> fn(&'a CoordinatorFixture) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

macro_rules! cases {
    ($($module:ident::$name:ident,)*) => {
        &[$((stringify!($name), |world| Box::pin($module::$name(world))),)*]
    };
}

/// All cases, by name.
pub const SERVED_CASES: &[(&str, ServedCase)] = cases![
    keys::key_limit_applies_across_workers,
    keys::full_key_does_not_block_other_tasks,
    queue_limits::queue_limit_is_enforced,
    queue_limits::queue_limits_and_keys_combine,
    budgets::model_calls_stay_within_the_batch_budget,
    schedules::scheduled_tasks_respect_their_key,
    pauses::paused_queue_leases_nothing_until_reopened,
    pauses::paused_task_waits_until_unpaused,
    pauses::paused_running_task_frees_its_key,
    drains::drained_worker_gets_no_tasks_and_keeps_its_leases,
    drains::drained_queue_finishes_running_tasks_and_leases_none,
    cancels::cancelled_running_task_frees_its_key,
    cancels::cancelled_waiting_task_is_never_leased,
];

/// Number of concurrent cases: most of each is waiting.
const CONCURRENT_CASES: usize = 3;

/// Runs the cases whose name contains one of the comma-separated words of `DOCKET_CASE`, or all, each against
/// its own coordinator; on PostgreSQL if a server is given.
///
/// # Errors
/// Returns the names of all failed cases, or an error if no case matches.
pub async fn run_served_cases(cluster: Option<&PostgresCluster>) -> Result<()> {
    let only = std::env::var("DOCKET_CASE").unwrap_or_default();
    let is_wanted = |name: &str| only.split(',').any(|word| name.contains(word));
    let wanted: Vec<_> = SERVED_CASES.iter().filter(|(name, _)| is_wanted(name)).collect();
    ensure!(!wanted.is_empty(), "no case is called `{only}`");
    let results = stream::iter(wanted).map(|(name, case)| async move {
        let result = tokio::time::timeout(WAIT_MAX + WAIT_MAX, run_case(cluster, *case)).await;
        let result = result.unwrap_or_else(|_| Err(anyhow::anyhow!("it does not end")));
        result.err().map(|error| format!("{name}: {error:?}"))
    });
    let failed: Vec<String> =
        results.buffer_unordered(CONCURRENT_CASES).filter_map(async |failed| failed).collect().await;
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

async fn run_case(cluster: Option<&PostgresCluster>, case: ServedCase) -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let place = match cluster {
        Some(cluster) => fresh_database(cluster).await?,
        None => StoreLocation::HomeFolder,
    };
    let world = CoordinatorFixture::start(place).await?;
    case(&world).await.with_context(|| world.coordinator.log_tail())?;
    world.coordinator.end_and_check().await
}

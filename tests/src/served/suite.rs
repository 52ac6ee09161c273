//! The table of cases, and how they are run.

use std::pin::Pin;

use anyhow::{Context as _, Result, ensure};
use futures_util::{StreamExt as _, stream};

use super::{ServedWorld, budgets, cancels, drains, keys, pauses, queue_limits, schedules};
use crate::{
    pg_cluster::Cluster,
    system::{LONG, Place, fresh_database, room},
};

/// A case: fails with what is wrong.
pub type ServedCase = for<'a> fn(&'a ServedWorld) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;

macro_rules! cases {
    ($($module:ident::$name:ident,)*) => {
        &[$((stringify!($name), |world| Box::pin($module::$name(world))),)*]
    };
}

/// All cases, by name.
pub const SERVED_CASES: &[(&str, ServedCase)] = cases![
    keys::a_key_runs_as_many_as_it_may_however_many_lease,
    keys::a_full_key_keeps_back_no_other_task,
    queue_limits::a_limited_queue_runs_no_more_than_its_limit,
    queue_limits::queue_limits_and_keys_hold_together,
    budgets::calls_of_a_batch_keep_to_its_budget,
    schedules::a_schedule_gives_tasks_that_keep_to_their_key,
    pauses::a_paused_queue_gives_nothing_until_it_is_opened,
    pauses::a_paused_task_waits_until_it_is_unpaused,
    pauses::a_running_task_that_rests_frees_its_key,
    drains::a_drained_worker_gets_no_more_and_keeps_what_it_has,
    drains::a_drained_queue_ends_what_runs_and_gives_nothing,
    cancels::a_cancelled_running_task_frees_its_key,
    cancels::a_cancelled_waiting_task_is_never_leased,
];

/// Cases at a time: most of what each does is waiting.
const CASES_AT_ONCE: usize = 3;

/// Runs the cases whose name holds one of the words of `DOCKET_CASE` (commas between them), or all, each against a
/// coordinator of its own; on PostgreSQL where a server is given.
///
/// # Errors
/// Names every case that failed; or no case has such a name.
pub async fn run_served(cluster: Option<&Cluster>) -> Result<()> {
    let only = std::env::var("DOCKET_CASE").unwrap_or_default();
    let is_wanted = |name: &str| only.split(',').any(|word| name.contains(word));
    let wanted: Vec<_> = SERVED_CASES.iter().filter(|(name, _)| is_wanted(name)).collect();
    ensure!(!wanted.is_empty(), "no case is called `{only}`");
    let results = stream::iter(wanted).map(|(name, case)| async move {
        let result = tokio::time::timeout(LONG + LONG, run_case(cluster, *case)).await;
        let result = result.unwrap_or_else(|_| Err(anyhow::anyhow!("it does not end")));
        result.err().map(|error| format!("{name}: {error:?}"))
    });
    let failed: Vec<String> =
        results.buffer_unordered(CASES_AT_ONCE).filter_map(async |failed| failed).collect().await;
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

async fn run_case(cluster: Option<&Cluster>, case: ServedCase) -> Result<()> {
    let _room = room().await;
    let place = match cluster {
        Some(cluster) => fresh_database(cluster).await?,
        None => Place::Home,
    };
    let world = ServedWorld::start(place).await?;
    case(&world).await.with_context(|| world.coordinator.tail())?;
    world.coordinator.end_and_check().await
}

//! Schedules.

use anyhow::{Context as _, Result, ensure};
use docket_coordinator::clock;
use docket_schema::{
    ids::TaskId,
    system::{Missed, Overlap, Schedule, ScheduleName},
    task::TaskState,
    wire::{RunScheduleRequest, SetScheduleRequest},
};

use super::{ServedWorld, plain_spec};
use crate::system::until;

pub(super) async fn a_schedule_gives_tasks_that_keep_to_their_key(world: &ServedWorld) -> Result<()> {
    let name: ScheduleName = "tidy".parse()?;
    let schedule = Schedule {
        cron: "* * * * *".to_owned(),
        tz: "UTC".to_owned(),
        spec: Box::new(plain_spec("default", Some(("tidy", 1)))),
        missed: Missed::Once,
        overlap: Overlap::Allow,
    };
    world.client().set_schedule(&name, &SetScheduleRequest { schedule, replace: false }).await?;
    // By hand, and by the clock: within a minute and a little.
    let by_hand = TaskId(clock::new_id());
    let view = world.client().run_schedule(&name, &RunScheduleRequest { task: by_hand }).await?;
    ensure!(view.task == Some(by_hand), "{view:?}");
    let worker = world.worker();
    let first = worker.lease_one().await?;
    ensure!(first.task == by_hand, "{first:?}");
    let by_clock = until("a firing by the clock", async || {
        // It lasts longer than a lease.
        worker.heartbeat(&[&first]).await.ok()?;
        let view = world.client().schedule(&name).await.ok()?;
        view.task.filter(|task| *task != by_hand)
    })
    .await?;
    world.client().pause_schedule(&name, true).await?;
    ensure!(worker.lease(5).await?.is_empty(), "the key is taken");
    world.ensure_state(by_clock, TaskState::Available).await?;
    worker.finish(&first).await?;
    let next = worker.lease(5).await?;
    ensure!(next.len() == 1, "one of them at a time: {next:?}");
    let view = world.client().schedule(&name).await?;
    ensure!(view.paused && view.next_at.is_none(), "{view:?}");
    worker.finish(next.first().context("a lease")?).await?;
    world.client().remove_schedule(&name).await?;
    ensure!(world.client().schedule(&name).await.is_err(), "it is removed");
    Ok(())
}

//! Schedules.

use anyhow::{Context as _, Result, ensure};
use docket_coordinator::clock;
use docket_schema::{
    api::{RunScheduleRequest, SetScheduleRequest},
    ids::TaskId,
    system::{MissedFiringPolicy, OverlapPolicy, ScheduleName, TaskSchedule},
    task::TaskState,
};

use super::{CoordinatorFixture, simple_spec};
use crate::system::wait_until;

pub(super) async fn scheduled_tasks_respect_their_key(world: &CoordinatorFixture) -> Result<()> {
    let name: ScheduleName = "tidy".parse()?;
    let schedule = TaskSchedule {
        cron: "* * * * *".to_owned(),
        tz: "UTC".to_owned(),
        spec: Box::new(simple_spec("default", Some(("tidy", 1)))),
        missed: MissedFiringPolicy::Once,
        overlap: OverlapPolicy::Allow,
    };
    world.client().set_schedule(&name, &SetScheduleRequest { schedule, replace: false }).await?;
    // Manually, and by the clock: within a little more than a minute.
    let by_hand = TaskId(clock::new_id());
    let view = world.client().run_schedule(&name, &RunScheduleRequest { task: by_hand }).await?;
    ensure!(view.task == Some(by_hand), "{view:?}");
    let worker = world.new_worker();
    // Near the start of a minute, the schedule may fire before the run by hand: either task may be the first.
    let first = worker.lease_one().await?;
    let second = wait_until("a second firing", async || {
        // It lasts longer than a lease.
        worker.heartbeat(&[&first]).await.ok()?;
        let view = world.client().get_schedule(&name).await.ok()?;
        view.task.filter(|task| *task != first.task)
    })
    .await?;
    ensure!([first.task, second].contains(&by_hand), "one of the two was run by hand");
    world.client().pause_schedule(&name, true).await?;
    ensure!(worker.lease(5).await?.is_empty(), "the key is taken");
    world.ensure_state(second, TaskState::Available).await?;
    worker.finish(&first).await?;
    let next = worker.lease(5).await?;
    ensure!(next.len() == 1, "one of them at a time: {next:?}");
    let view = world.client().get_schedule(&name).await?;
    ensure!(view.paused && view.next_at.is_none(), "{view:?}");
    worker.finish(next.first().context("a lease")?).await?;
    world.client().remove_schedule(&name).await?;
    ensure!(world.client().get_schedule(&name).await.is_err(), "it is removed");
    Ok(())
}

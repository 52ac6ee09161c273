//! The disk under the log is full in the middle of a run, and then it is not.

use anyhow::{Context as _, Result, ensure};
use docket_schema::ids::QueueName;
use docket_tests::system::{
    Coordinator, LeaseTime, Place, Signal, SmallDisk, Worker, WorkerOptions, say, seen, send,
};

use super::story::{check_silent, completed, model, sleeper, story, submit, template};

/// Room for a log of one run, and little more, in MiB.
const ROOM: u32 = 16;

pub(crate) async fn full_disk() -> Result<()> {
    let disk = match SmallDisk::new(ROOM) {
        Ok(disk) => disk,
        Err(error) => {
            let root = nix::unistd::Uid::effective().is_root();
            say(&format!("no file system of its own can be mounted here ({error}); NOT tried: a full disk"));
            ensure!(!root || std::env::var_os("CI").is_none(), "root in CI mounts: {error}");
            return Ok(());
        }
    };
    let story = story().await?;
    let mut coordinator = Coordinator::start_in(disk.path(), Place::Home, LeaseTime::Usual).await?;
    let spec = template(&coordinator).await?;
    let server = model().await?;
    let queue: QueueName = "full".parse()?;
    let seq = *story.appends[7].seqs.start();
    let options = WorkerOptions {
        queue: Some(queue.clone()),
        failpoints: vec![sleeper(seq, 1)],
        ..WorkerOptions::default()
    };
    let mut worker = Worker::start(&coordinator, &options).await?;
    let task = submit(&coordinator, &spec, &queue, &server).await?;
    let asleep =
        seen("a run process that sleeps", || worker.sleeper()).await.with_context(|| worker.tail())?;
    let run = coordinator.client().task(task).await?.task.last_run.context("a run")?;
    let before = coordinator.history(run).await?;

    disk.fill()?;
    // A submit that is refused is refused in one line that says what helps.
    let refused = coordinator.docket(&["submit", "One more", "--empty", "--model", "openai:x"]).await?;
    ensure!(
        coordinator.process().ended().is_none(),
        "the coordinator died: {:?}",
        coordinator.process().wait().await?
    );
    ensure!(refused.code() == Some(1), "{refused:?}\n{}", coordinator.tail());
    ensure!(
        refused.stderr.lines().count() == 1 && refused.stderr.contains("no space is left"),
        "{refused:?}"
    );
    send(asleep, Signal::SIGCONT);
    // The run process cannot record its results, and says so before it gives up or waits.
    let said = seen("the worker's word on it", || {
        let log = worker.process().log();
        (log.contains("run process ended")).then_some(())
    });
    said.await.with_context(|| format!("{}\n{}", worker.tail(), coordinator.tail()))?;
    let during = coordinator.history(run).await?;
    ensure!(before.envelopes == during.envelopes, "written to a full disk: {}", during.kinds());
    disk.free()?;

    let view = coordinator.ended(task).await.with_context(|| worker.tail())?;
    let history = completed(&coordinator, &view).await?;
    check_silent(story, &coordinator, &history).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

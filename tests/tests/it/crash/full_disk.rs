//! The disk under the log is full in the middle of a run, and then it is not.

use anyhow::{Context as _, Result, ensure};
use docket_schema::ids::QueueName;
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, Signal, SmallDisk, StoreLocation, WorkerOptions, WorkerProcess,
    poll_until, print_notice, send_signal,
};

use super::reference_run::{
    check_history_without_message, completed_history, reference_run, sleep_point, start_model_server,
    submit_reference_task, submit_template,
};

/// Room for a log of one run, and little more, in MiB.
const ROOM: u32 = 16;

pub(crate) async fn check_full_disk() -> Result<()> {
    let disk = match SmallDisk::new(ROOM) {
        Ok(disk) => disk,
        Err(error) => {
            let root = nix::unistd::Uid::effective().is_root();
            print_notice(&format!(
                "no file system of its own can be mounted here ({error}); NOT tried: a full disk"
            ));
            ensure!(!root || std::env::var_os("CI").is_none(), "root in CI mounts: {error}");
            return Ok(());
        }
    };
    let story = reference_run().await?;
    let mut coordinator =
        CoordinatorProcess::start_in(disk.path(), StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let spec = submit_template(&coordinator).await?;
    let server = start_model_server().await?;
    let queue: QueueName = "full".parse()?;
    let seq = *story.appends[7].seqs.start();
    let options = WorkerOptions {
        queue: Some(queue.clone()),
        failpoints: vec![sleep_point(seq, 1)],
        ..WorkerOptions::default()
    };
    let mut worker = WorkerProcess::start(&coordinator, &options).await?;
    let task = submit_reference_task(&coordinator, &spec, &queue, &server).await?;
    let asleep = poll_until("a run process that sleeps", || worker.suspended_run())
        .await
        .with_context(|| worker.log_tail())?;
    let run = coordinator.client().get_task(task).await?.task.last_run.context("a run")?;
    let before = coordinator.run_history(run).await?;

    disk.fill()?;
    // A submit that is refused is refused in one line that says what helps.
    let refused = coordinator.run_docket(&["submit", "One more", "--empty", "--model", "openai:x"]).await?;
    ensure!(
        coordinator.process().try_exit_status().is_none(),
        "the coordinator died: {:?}",
        coordinator.process().wait().await?
    );
    ensure!(refused.code() == Some(1), "{refused:?}\n{}", coordinator.log_tail());
    ensure!(refused.stderr.lines().count() == 1 && refused.stderr.contains("no space left"), "{refused:?}");
    send_signal(asleep, Signal::SIGCONT);
    // The run process cannot record its results, and says so before it gives up or waits.
    let said = poll_until("the worker's word on it", || {
        let log = worker.process().read_log();
        (log.contains("run process ended")).then_some(())
    });
    said.await.with_context(|| format!("{}\n{}", worker.log_tail(), coordinator.log_tail()))?;
    let during = coordinator.run_history(run).await?;
    ensure!(before.envelopes == during.envelopes, "written to a full disk: {}", during.format_kinds());
    disk.release()?;

    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    let history = completed_history(&coordinator, &view).await?;
    check_history_without_message(story, &coordinator, &history).await?;
    worker.drain().await?;
    coordinator.end_and_check().await
}

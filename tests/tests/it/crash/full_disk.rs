//! The disk under the log is full in the middle of a run, and then it is not.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use docket_schema::ids::QueueName;
use docket_tests::system::{Coordinator, LeaseTime, Place, Signal, Worker, WorkerOptions, say, seen, send};
use nix::mount::{MntFlags, MsFlags, mount, umount2};

use super::story::{check_silent, completed, model, sleeper, story, submit, template};

/// Room for a log of one run, and little more.
const SIZE: &str = "size=16m,mode=0700";

/// A small file system of its own, for as long as it is held.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        mount(Some("tmpfs"), folder.path(), Some("tmpfs"), MsFlags::empty(), Some(SIZE))?;
        Ok(Self(folder))
    }

    fn filler(&self) -> std::path::PathBuf {
        self.0.path().join("filler")
    }

    /// Takes what room is left, to the last page.
    fn fill(&self) -> Result<()> {
        use std::io::Write as _;
        let mut filler = std::fs::File::create(self.filler())?;
        for chunk in [vec![0; 64 * 1024], vec![0; 512]] {
            while filler.write_all(&chunk).is_ok() {}
        }
        Ok(())
    }

    fn free(&self) -> Result<()> {
        Ok(std::fs::remove_file(self.filler())?)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = umount2(self.0.path(), MntFlags::MNT_DETACH);
    }
}

pub(crate) async fn full_disk() -> Result<()> {
    let disk = match SmallDisk::new() {
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

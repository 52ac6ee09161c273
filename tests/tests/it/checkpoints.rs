//! SQLite's write-ahead log is copied back beside the writer: it stays bounded under load, also where
//! somebody reads an old snapshot now and then, and is empty when nobody writes.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use docket_schema::ids::{Epoch, Seq};
use docket_tests::{
    conformance::{
        DatabaseKind, StoreFixture, TestDatabase,
        fixture::{new_blob, note_event, task_spec},
    },
    system::poll_until,
};

/// Bytes of the log at which it is begun anew, with room for what comes while that is being done.
const BOUND: u64 = 3 * 8000 * 4096;
/// Bytes that are written in each phase: several times the bound, so that a log that only grows is seen.
const PHASE: u64 = 3 * BOUND;
/// Bytes that are written at most until the log has been begun anew: a disk that others keep busy is slow to copy.
const PATIENCE: u64 = 4 * PHASE;
/// Bytes of an append's blob: it does not compress.
const BLOB: usize = 256 * 1024;

fn wal_path(database: &Path) -> PathBuf {
    database.with_extension("db-wal")
}

fn file_bytes(log: &Path) -> u64 {
    log.metadata().map_or(0, |found| found.len())
}

struct WriteLoad {
    world: StoreFixture,
    lease: docket_coordinator::store::GrantedLease,
    at: Seq,
    log: PathBuf,
    largest: u64,
}

impl WriteLoad {
    /// Writes until at least twice as much was written as the log ever held: then it was begun anew.
    async fn write_until_wal_restarts(&mut self, when: &str) -> Result<()> {
        self.write_blobs(PHASE).await?;
        let mut written = PHASE;
        while written < 2 * self.largest {
            ensure!(
                written < PATIENCE,
                "{when}: {written} bytes were written, and the log has {}",
                self.largest
            );
            let largest = self.largest;
            self.write_blobs(BOUND).await?;
            self.largest = self.largest.max(largest);
            written += BOUND;
        }
        Ok(())
    }

    async fn write_blobs(&mut self, total: u64) -> Result<()> {
        self.largest = 0;
        let mut written = 0;
        while written < total {
            let mut bytes_of = vec![0; BLOB];
            blake3::Hasher::new().update(&self.at.0.to_le_bytes()).finalize_xof().fill(&mut bytes_of);
            let mut append =
                self.world.lease_append(self.lease.run, self.at, Epoch(1), vec![note_event(self.at.0)]);
            append.blobs = vec![new_blob(&bytes_of)];
            self.at = self.world.store.append(append).await?.head.seq;
            written += BLOB as u64;
            self.largest = self.largest.max(file_bytes(&self.log));
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wal_stays_bounded_with_concurrent_readers() -> Result<()> {
    let world = StoreFixture::open(TestDatabase::new(&DatabaseKind::Sqlite, "checkpoints").await).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let log = wal_path(world.database.file().context("a file")?);
    let mut load = WriteLoad { world: world.clone(), lease, at: Seq(0), log: log.clone(), largest: 0 };
    load.write_until_wal_restarts("without readers").await?;

    // Whoever reads holds it back; nobody waits for that.
    let mut reader = world.database.raw_connection().await;
    reader.execute("BEGIN; SELECT count(*) FROM events").await?;
    load.write_blobs(PHASE).await?;
    ensure!(load.largest > BOUND, "a snapshot that is read stays: {} bytes", load.largest);
    reader.execute("COMMIT").await?;

    // It is begun anew, and so cut to its limit, after.
    load.write_blobs(BOUND).await?;
    poll_until("a log of bounded size after a long reader", || (file_bytes(&log) < BOUND).then_some(()))
        .await?;
    load.write_until_wal_restarts("after a reader").await?;

    poll_until("an empty log where nobody writes", || (file_bytes(&log) == 0).then_some(())).await?;
    load.write_blobs(BLOB as u64).await?;
    ensure!(file_bytes(&log) > 0, "it is used again");
    world.check_consistency().await;
    Ok(())
}

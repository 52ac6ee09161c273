//! SQLite's write-ahead log is copied back beside the writer: it stays bounded under load, also where
//! somebody reads an old snapshot now and then, and is empty when nobody writes.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use docket_schema::ids::{Epoch, Seq};
use docket_tests::{
    conformance::{
        Database, Kind, World,
        world::{blob, note, spec},
    },
    system::seen,
};

/// Bytes of the log at which it is begun anew, with room for what comes while that is being done.
const BOUND: u64 = 3 * 8000 * 4096;
/// Bytes that are written in each phase: several times the bound, so that a log that only grows is seen.
const PHASE: u64 = 3 * BOUND;
/// Bytes that are written at most until the log has been begun anew: a disk that others keep busy is slow to copy.
const PATIENCE: u64 = 4 * PHASE;
/// Bytes of an append's blob: it does not compress.
const BLOB: usize = 256 * 1024;

fn log_of(database: &Path) -> PathBuf {
    database.with_extension("db-wal")
}

fn bytes(log: &Path) -> u64 {
    log.metadata().map_or(0, |found| found.len())
}

struct Load {
    world: World,
    lease: docket_coordinator::store::Granted,
    at: Seq,
    log: PathBuf,
    largest: u64,
}

impl Load {
    /// Writes until at least twice as much was written as the log ever held: then it was begun anew.
    async fn outgrow_the_log(&mut self, when: &str) -> Result<()> {
        self.write(PHASE).await?;
        let mut written = PHASE;
        while written < 2 * self.largest {
            ensure!(
                written < PATIENCE,
                "{when}: {written} bytes were written, and the log has {}",
                self.largest
            );
            let largest = self.largest;
            self.write(BOUND).await?;
            self.largest = self.largest.max(largest);
            written += BOUND;
        }
        Ok(())
    }

    async fn write(&mut self, total: u64) -> Result<()> {
        self.largest = 0;
        let mut written = 0;
        while written < total {
            let mut bytes_of = vec![0; BLOB];
            blake3::Hasher::new().update(&self.at.0.to_le_bytes()).finalize_xof().fill(&mut bytes_of);
            let mut append =
                self.world.holder_append(self.lease.run, self.at, Epoch(1), vec![note(self.at.0)]);
            append.blobs = vec![blob(&bytes_of)];
            self.at = self.world.store.append(append).await?.head.seq;
            written += BLOB as u64;
            self.largest = self.largest.max(bytes(&self.log));
        }
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_stays_bounded_whoever_reads() -> Result<()> {
    let world = World::open(Database::new(&Kind::Sqlite, "checkpoints").await).await;
    world.submit(spec("a")).await;
    let lease = world.worker().lease_one().await;
    let log = log_of(world.database.file().context("a file")?);
    let mut load = Load { world: world.clone(), lease, at: Seq(0), log: log.clone(), largest: 0 };
    load.outgrow_the_log("without readers").await?;

    // Whoever reads holds it back; nobody waits for that.
    let mut reader = world.database.raw().await;
    reader.run("BEGIN; SELECT count(*) FROM events").await?;
    load.write(PHASE).await?;
    ensure!(load.largest > BOUND, "a snapshot that is read stays: {} bytes", load.largest);
    reader.run("COMMIT").await?;

    // It is begun anew, and so cut to its limit, after.
    load.write(BOUND).await?;
    seen("a log of bounded size after a long reader", || (bytes(&log) < BOUND).then_some(())).await?;
    load.outgrow_the_log("after a reader").await?;

    seen("an empty log where nobody writes", || (bytes(&log) == 0).then_some(())).await?;
    load.write(BLOB as u64).await?;
    ensure!(bytes(&log) > 0, "it is used again");
    world.check().await;
    Ok(())
}

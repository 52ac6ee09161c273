//! Bits flipped in the database's file itself, where no statement puts index and table in step again.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use super::{RawDatabase, StoreLocation, run_to_end, run_verify};

/// Flips: each is a process, and another that reads all rows where nothing was found.
const FLIPS: usize = 40;

/// The header's page says how the others are to be read; a bit there is told when the file is opened.
const HEADER_BYTES: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bit_in_the_database_file_is_found_unless_harmless() -> Result<()> {
    let coordinator = run_to_end(StoreLocation::HomeFolder).await?;
    let kept = coordinator.home().join("docket.db");
    let mut raw = RawDatabase::connect_sqlite(&kept).await?;
    let rows = raw.list_rows().await?;
    raw.close().await?;
    let bytes = fs::read(&kept)?;
    // The same places each time, so that a failure can be shown again.
    let mut places = blake3::Hasher::new().update(b"bits in a file").finalize_xof();
    let mut found = 0;
    for _ in 0..FLIPS {
        let home = tempfile::tempdir()?;
        // Most of a small file is pages' empty space.
        let (byte, bit) = loop {
            let mut drawn = [0; 8];
            places.fill(&mut drawn);
            let bit = usize::try_from(u64::from_le_bytes(drawn) >> 1)?;
            let (byte, bit) = (HEADER_BYTES + bit / 8 % (bytes.len() - HEADER_BYTES), bit % 8);
            if bytes[byte] != 0 {
                break (byte, bit);
            }
        };
        let mut altered = bytes.clone();
        altered[byte] ^= 1 << bit;
        let path = home.path().join("docket.db");
        fs::write(&path, altered)?;
        let (code, faults) = verify_file(home.path()).await?;
        if code == Some(0) {
            let same = RawDatabase::connect_sqlite(&path).await?.list_rows().await? == rows;
            ensure!(same, "byte {byte} bit {bit}: rows differ and nothing was found");
        } else {
            ensure!(code == Some(6), "byte {byte} bit {bit}: {code:?} {faults:?}");
            found += 1;
        }
    }
    ensure!(found > FLIPS / 4, "only {found} of {FLIPS} flips meant something");
    Ok(())
}

/// As [`verify`]; a file that cannot be opened as this build's database is found by that.
async fn verify_file(home: &Path) -> Result<(Option<i32>, Vec<String>)> {
    match run_verify(home, &StoreLocation::HomeFolder, &[]).await {
        Ok(found) => Ok(found),
        Err(_) => {
            let env = [("DOCKET_HOME", home.as_os_str())];
            let done = super::run_program(super::TestProgram::Docket, home, &env, &["verify"]).await?;
            let line = done.stderr.lines().next().context("a line")?.to_owned();
            let schema = line.contains("the database's schema does not match this build");
            ensure!(schema || done.code() == Some(6), "{done:?}");
            Ok((Some(6), vec![line]))
        }
    }
}

//! Large blobs outside of the database: what a commit names is there, what is read is what was stored, what goes takes
//! its file along.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use docket_coordinator::{
    clock::Clock,
    gc,
    store::{BlobsOutside, CommandBlobs},
};
use docket_schema::{
    content::BlobRef,
    ids::{BlobHash, Seq, Timestamp},
    wire::{GcRequest, GcResponse},
};

use super::{
    Database, World,
    carry::told_of,
    world::{blob, spec},
};

/// From which size on.
const OVER: u64 = 2000;

/// Milliseconds of an hour.
const HOUR_MS: u64 = 3_600_000;

/// Bytes that zstd makes nothing of.
fn noise(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; 5000];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

struct House {
    world: World,
    folder: tempfile::TempDir,
}

impl House {
    async fn new(database: Database) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let world = World::open(database).await;
        let store = world.database.open_with_blobs(settings(folder.path())).await;
        Self { world: world.through(store), folder }
    }

    async fn put(&self, bytes: &[u8]) -> BlobHash {
        let blob = blob(bytes);
        let hash = blob.blob.hash;
        self.world.store.put_blobs(vec![blob], self.world.now()).await.expect("stores");
        hash
    }

    fn files(&self) -> Vec<PathBuf> {
        files(self.folder.path())
    }

    async fn collect(&self, delete: bool) -> GcResponse {
        let request = GcRequest { delete, ..GcRequest::default() };
        // By the clock that files go by.
        let later = Timestamp(Clock::new().now().0 + 7 * 86_400_000_000);
        gc::collect(&*self.world.store, request, |ms| later.minus_ms(ms)).await.expect("collects")
    }

    /// What a check of all blobs finds: how many were altered, and what is lost.
    async fn found(&self) -> (usize, Vec<String>) {
        let (mut altered, mut lost, mut after) = (0, Vec::new(), None);
        loop {
            let part = self.world.store.check_blobs(after).await.expect("checks");
            assert_eq!(part.storage, Vec::<String>::new());
            altered += part.damaged.len();
            lost.extend(part.lost);
            after = part.next;
            if after.is_none() {
                return (altered, lost);
            }
        }
    }
}

fn settings(folder: &Path) -> BlobsOutside {
    BlobsOutside { to: format!("file://{}/blobs", folder.display()), over: OVER }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        if entry.path().is_dir() { found.extend(files(&entry.path())) } else { found.push(entry.path()) }
    }
    found.sort();
    found
}

pub(super) async fn large_blobs_are_files_and_small_ones_rows(database: Database) {
    let house = House::new(database).await;
    let world = &house.world;
    // Stored before there was a place for large ones.
    let (old, inside) = (noise(1), world.database.open().await);
    inside.put_blobs(vec![blob(&old)], world.now()).await.expect("stores");
    let old_hash = house.put(&old).await;
    let small = house.put(&noise(2)[..100]).await;
    assert_eq!(house.files(), Vec::<PathBuf>::new(), "what is in the database stays there");
    let bytes = noise(3);
    let large = house.put(&bytes).await;
    let kept = house.files();
    assert_eq!(kept.len(), 1);
    assert!(kept[0].display().to_string().contains(&large.to_string()), "{kept:?}");
    let mode = kept[0].metadata().expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its owner's alone");
    let mut raw = world.database.raw().await;
    let in_rows = raw.number("SELECT CAST(sum(length(data)) AS bigint) FROM blobs WHERE size = 5000").await;
    assert!((5000..6000).contains(&in_rows.expect("sums")), "one of two is in the database");

    let beside = world.database.open_with_blobs(settings(house.folder.path())).await;
    for store in [&world.store, &beside] {
        for (hash, bytes) in [(old_hash, &old[..]), (small, &noise(2)[..100]), (large, &bytes[..])] {
            assert_eq!(store.blob(hash).await.expect("reads").expect("is there").as_ref(), bytes);
        }
    }
    // Without the setting it is told what is missing.
    let unset = format!("{:?}", inside.blob(large).await.expect_err("cannot be read"));
    assert!(unset.contains("blobs.to"), "{unset}");
    assert!(inside.blob(small).await.expect("reads").is_some());

    // Once more: the same file. With another write in between, that file still.
    house.put(&bytes).await;
    world.pass(3 * HOUR_MS);
    house.put(&bytes).await;
    assert_eq!(house.files(), kept);
    let totals = world.store.blob_totals().await.expect("counts");
    assert_eq!(totals.blobs, 4, "with the world's own");
    world.check().await;
}

/// Nothing that is acknowledged names what is not there: where the file cannot be written, nothing is.
pub(super) async fn a_blob_that_cannot_be_written_is_not_named(database: Database) {
    let house = House::new(database).await;
    let world = &house.world;
    let task = world.submit(spec("a")).await;
    let lease = world.worker().lease_one().await;
    let bytes = noise(1);
    let append = || {
        let mut append =
            world.holder_append(lease.run, Seq(0), lease.record.epoch, vec![told_of(BlobRef::of(&bytes))]);
        append.blobs = vec![blob(&bytes)];
        append
    };
    let wall = house.folder.path().join("blobs");
    std::fs::write(&wall, "in the way").expect("writes");
    world.store.append(append()).await.expect_err("cannot be written");
    let blobs = CommandBlobs { blobs: vec![blob(&noise(2))], names: Vec::new() };
    let decide = Box::new(|record: &_| docket_coordinator::decide::cancel(record, "me", ""));
    world.store.command(task, decide, blobs, world.now()).await.expect_err("cannot be written");
    assert!(world.task(task).await.ended_at.is_none());
    let hash = BlobHash::of(&bytes);
    assert_eq!(world.store.blobs_present(vec![hash]).await.expect("looks"), []);
    world.check().await;
    std::fs::remove_file(&wall).expect("removes");
    let first = world.store.append(append()).await.expect("appends");
    assert_eq!(house.files().len(), 1);
    let again = world.store.append(append()).await.expect("answers as before");
    assert!(again.repeated && again.head == first.head);
    assert_eq!(world.store.blob(hash).await.expect("reads").expect("is there").as_ref(), &bytes[..]);
    assert_eq!(house.files().len(), 1, "the same file");
    world.check().await;
}

pub(super) async fn a_file_that_was_altered_or_lost_is_found(database: Database) {
    let house = House::new(database).await;
    let hash = house.put(&noise(1)).await;
    house.put(b"small").await;
    assert_eq!(house.found().await, (0, Vec::new()));
    let file = house.files().remove(0);
    let whole = std::fs::read(&file).expect("reads");
    for at in [0, whole.len() / 2, whole.len() - 1] {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        std::fs::write(&file, bad).expect("writes");
        assert_eq!(house.found().await, (1, Vec::new()), "byte {at}");
        house.world.store.blob(hash).await.expect_err("is not what was stored");
    }
    for cut in [&whole[..whole.len() - 1], &[]] {
        std::fs::write(&file, cut).expect("writes");
        assert_eq!(house.found().await.0, 1);
    }
    std::fs::remove_file(&file).expect("removes");
    let (altered, lost) = house.found().await;
    assert_eq!((altered, lost.len()), (0, 1));
    assert!(lost[0].contains(&hash.to_string()) && lost[0].contains("file://"), "{lost:?}");
    let said = house.world.store.blob(hash).await.expect_err("is lost").to_string();
    assert!(said.contains("is not in file://"), "{said}");
    std::fs::write(&file, &whole).expect("writes");
    assert_eq!(house.found().await, (0, Vec::new()));
}

pub(super) async fn what_nothing_names_goes_with_its_file(database: Database) {
    let house = House::new(database).await;
    let world = &house.world;
    world.submit(spec("a")).await;
    let lease = world.worker().lease_one().await;
    let (named, orphan) = (noise(1), noise(2));
    let mut append =
        world.holder_append(lease.run, Seq(0), lease.record.epoch, vec![told_of(BlobRef::of(&named))]);
    append.blobs = vec![blob(&named)];
    world.store.append(append).await.expect("appends");
    house.put(&orphan).await;
    let (keeps, goes): (Vec<_>, Vec<_>) = house
        .files()
        .into_iter()
        .partition(|file| file.display().to_string().contains(&BlobHash::of(&named).to_string()));
    assert_eq!((keeps.len(), goes.len()), (1, 1));
    // A file that was written and never named; another store's; and somebody's own.
    let stray = PathBuf::from(format!("{}0", keeps[0].display()));
    std::fs::copy(&keeps[0], &stray).expect("copies");
    let folder = keeps[0].parent().and_then(Path::parent).expect("the store's folder");
    let others = [
        folder.with_file_name("another").join("ab").join(keeps[0].file_name().expect("a name")),
        folder.join("notes"),
    ];
    for other in &others {
        std::fs::create_dir_all(other.parent().expect("a folder")).expect("makes it");
        std::fs::copy(&keeps[0], other).expect("copies");
    }
    let before = house.files();
    let dry = house.collect(false).await;
    assert_eq!((dry.orphans, dry.strays, dry.dropped), (1, 1, 0), "{dry:?}");
    assert_eq!(dry.stray_bytes, stray.metadata().expect("is there").len());
    assert_eq!(house.files(), before);
    // One that was written lately may be about to be named.
    let young = gc::collect(&*world.store, GcRequest { delete: true, ..GcRequest::default() }, |ms| {
        Clock::new().ago(ms)
    })
    .await;
    assert_eq!(young.expect("collects").strays, 0);
    assert!(stray.exists());

    let wet = house.collect(true).await;
    assert_eq!(wet.strays, 1, "{wet:?}");
    let mut left = [&keeps[..], &others[..]].concat();
    left.sort();
    assert_eq!(house.files(), left);
    assert!(world.store.blob(BlobHash::of(&named)).await.expect("reads").is_some());
    assert!(world.store.blob(BlobHash::of(&orphan)).await.expect("reads").is_none());
    world.check().await;
}

/// Whichever comes first, through two coordinators where there may be: what is stored can be read.
pub(super) async fn a_blob_that_is_stored_while_it_is_dropped_is_whole(database: Database) {
    let house = House::new(database).await;
    let world = &house.world;
    let other = if world.database.is_sqlite() {
        Arc::clone(&world.store)
    } else {
        world.database.open_with_blobs(settings(house.folder.path())).await
    };
    let bytes = noise(1);
    let hash = BlobHash::of(&bytes);
    let mut dropped = 0;
    for round in 0..24 {
        house.put(&bytes).await;
        world.pass(3 * HOUR_MS);
        let now = world.now();
        let since = Timestamp(now.0 - 2 * HOUR_MS as i64 * 1000);
        let put = world.store.put_blobs(vec![blob(&bytes)], now);
        let drop = other.drop_blobs(vec![hash], since);
        let (put, gone) = match round % 3 {
            0 => tokio::join!(put, drop),
            1 => {
                let (gone, put) = tokio::join!(drop, put);
                (put, gone)
            }
            _ => {
                let gone = drop.await;
                (put.await, gone)
            }
        };
        put.expect("stores");
        dropped += gone.expect("drops").len();
        let read = world.store.blob(hash).await.expect("its file is there").expect("it is stored");
        assert_eq!(read.as_ref(), &bytes[..], "round {round}");
    }
    assert!(dropped > 0, "or nothing is shown");
    assert_eq!(house.collect(true).await.strays, 0);
}

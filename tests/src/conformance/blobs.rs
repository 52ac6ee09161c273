//! Large blobs outside the database: referenced blobs exist, reads return what was stored, and removal
//! deletes the file as well.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use docket_coordinator::{
    clock::Clock,
    gc,
    store::{CommandBlobs, ExternalBlobSettings},
};
use docket_schema::{
    api::{GcRequest, GcResponse},
    content::BlobRef,
    ids::{BlobHash, Seq, Timestamp},
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{new_blob, task_spec},
    import_and_gc::message_with_blob,
};

/// Minimum size of an external blob.
const EXTERNAL_BYTES_MIN: u64 = 2000;

/// Milliseconds per hour.
const HOUR_MS: u64 = 3_600_000;

/// Bytes that zstd cannot compress.
fn incompressible_bytes(seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; 5000];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

struct ExternalBlobsFixture {
    fixture: StoreFixture,
    folder: tempfile::TempDir,
}

impl ExternalBlobsFixture {
    async fn new(database: TestDatabase) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let world = StoreFixture::open(database).await;
        let store = world.database.open_with_blobs(external_blob_settings(folder.path())).await;
        Self { fixture: world.with_store(store), folder }
    }

    async fn put_blob(&self, bytes: &[u8]) -> BlobHash {
        let blob = new_blob(bytes);
        let hash = blob.blob.hash;
        self.fixture.store.put_blobs(vec![blob], self.fixture.now()).await.expect("stores");
        hash
    }

    fn blob_files(&self) -> Vec<PathBuf> {
        list_files(self.folder.path())
    }

    async fn collect_garbage(&self, delete: bool) -> GcResponse {
        let request = GcRequest { delete, ..GcRequest::default() };
        // By the clock that file ages use.
        let later = Timestamp(Clock::new().now().0 + 7 * 86_400_000_000);
        gc::collect(&*self.fixture.store, request, |ms| later.minus_ms(ms)).await.expect("collects")
    }

    /// Checks all blobs; returns the number of altered ones and the names of lost ones.
    async fn check_blobs(&self) -> (usize, Vec<String>) {
        let (mut altered, mut lost, mut after) = (0, Vec::new(), None);
        loop {
            let part = self.fixture.store.check_blobs(after).await.expect("checks");
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

fn external_blob_settings(folder: &Path) -> ExternalBlobSettings {
    ExternalBlobSettings { url: format!("file://{}/blobs", folder.display()), min_bytes: EXTERNAL_BYTES_MIN }
}

fn list_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        if entry.path().is_dir() { found.extend(list_files(&entry.path())) } else { found.push(entry.path()) }
    }
    found.sort();
    found
}

pub(super) async fn large_blobs_are_files_and_small_ones_rows(database: TestDatabase) {
    let house = ExternalBlobsFixture::new(database).await;
    let world = &house.fixture;
    // Stored before external storage was configured.
    let (old, inside) = (incompressible_bytes(1), world.database.open().await);
    inside.put_blobs(vec![new_blob(&old)], world.now()).await.expect("stores");
    let old_hash = house.put_blob(&old).await;
    let small = house.put_blob(&incompressible_bytes(2)[..100]).await;
    assert_eq!(house.blob_files(), Vec::<PathBuf>::new(), "what is in the database stays there");
    let bytes = incompressible_bytes(3);
    let large = house.put_blob(&bytes).await;
    let kept = house.blob_files();
    assert_eq!(kept.len(), 1);
    assert!(kept[0].display().to_string().contains(&large.to_string()), "{kept:?}");
    let mode = kept[0].metadata().expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its owner's alone");
    let mut raw = world.database.raw_connection().await;
    let in_rows =
        raw.query_number("SELECT CAST(sum(length(data)) AS bigint) FROM blobs WHERE size = 5000").await;
    assert!((5000..6000).contains(&in_rows.expect("sums")), "one of two is in the database");

    let beside = world.database.open_with_blobs(external_blob_settings(house.folder.path())).await;
    for store in [&world.store, &beside] {
        for (hash, bytes) in
            [(old_hash, &old[..]), (small, &incompressible_bytes(2)[..100]), (large, &bytes[..])]
        {
            assert_eq!(store.read_blob(hash).await.expect("reads").expect("is there").as_ref(), bytes);
        }
    }
    // Without the setting, the error says what is missing.
    let unset = format!("{:?}", inside.read_blob(large).await.expect_err("cannot be read"));
    assert!(unset.contains("blobs.to"), "{unset}");
    assert!(inside.read_blob(small).await.expect("reads").is_some());

    // Stored again: the same file. With another write in between, still that file.
    house.put_blob(&bytes).await;
    world.advance_clock(3 * HOUR_MS);
    house.put_blob(&bytes).await;
    assert_eq!(house.blob_files(), kept);
    let totals = world.store.blob_totals().await.expect("counts");
    assert_eq!(totals.blobs, 4, "with the world's own");
    world.check_consistency().await;
}

/// No acknowledged commit references a missing blob: if the file cannot be written, the commit fails.
pub(super) async fn unwritable_blob_is_not_referenced(database: TestDatabase) {
    let house = ExternalBlobsFixture::new(database).await;
    let world = &house.fixture;
    let task = world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let bytes = incompressible_bytes(1);
    let append = || {
        let mut append = world.lease_append(
            lease.run,
            Seq(0),
            lease.record.epoch,
            vec![message_with_blob(BlobRef::for_bytes(&bytes))],
        );
        append.blobs = vec![new_blob(&bytes)];
        append
    };
    let wall = house.folder.path().join("blobs");
    std::fs::write(&wall, "in the way").expect("writes");
    world.store.append(append()).await.expect_err("cannot be written");
    let blobs = CommandBlobs { blobs: vec![new_blob(&incompressible_bytes(2))], required_blobs: Vec::new() };
    let decide = Box::new(|record: &_| docket_coordinator::decide::cancel(record, "me", ""));
    world.store.execute_command(task, decide, blobs, world.now()).await.expect_err("cannot be written");
    assert!(world.task(task).await.ended_at.is_none());
    let hash = BlobHash::hash_bytes(&bytes);
    assert_eq!(world.store.find_present_blobs(vec![hash]).await.expect("looks"), []);
    world.check_consistency().await;
    std::fs::remove_file(&wall).expect("removes");
    let first = world.store.append(append()).await.expect("appends");
    assert_eq!(house.blob_files().len(), 1);
    let again = world.store.append(append()).await.expect("answers as before");
    assert!(again.was_repeated && again.head == first.head);
    assert_eq!(world.store.read_blob(hash).await.expect("reads").expect("is there").as_ref(), &bytes[..]);
    assert_eq!(house.blob_files().len(), 1, "the same file");
    world.check_consistency().await;
}

pub(super) async fn altered_or_lost_blob_file_is_detected(database: TestDatabase) {
    let house = ExternalBlobsFixture::new(database).await;
    let hash = house.put_blob(&incompressible_bytes(1)).await;
    house.put_blob(b"small").await;
    assert_eq!(house.check_blobs().await, (0, Vec::new()));
    let file = house.blob_files().remove(0);
    let whole = std::fs::read(&file).expect("reads");
    for at in [0, whole.len() / 2, whole.len() - 1] {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        std::fs::write(&file, bad).expect("writes");
        assert_eq!(house.check_blobs().await, (1, Vec::new()), "byte {at}");
        house.fixture.store.read_blob(hash).await.expect_err("is not what was stored");
    }
    for cut in [&whole[..whole.len() - 1], &[]] {
        std::fs::write(&file, cut).expect("writes");
        assert_eq!(house.check_blobs().await.0, 1);
    }
    std::fs::remove_file(&file).expect("removes");
    let (altered, lost) = house.check_blobs().await;
    assert_eq!((altered, lost.len()), (0, 1));
    assert!(lost[0].contains(&hash.to_string()) && lost[0].contains("file://"), "{lost:?}");
    let said = house.fixture.store.read_blob(hash).await.expect_err("is lost").to_string();
    assert!(said.contains("is not in file://"), "{said}");
    std::fs::write(&file, &whole).expect("writes");
    assert_eq!(house.check_blobs().await, (0, Vec::new()));
}

pub(super) async fn unreferenced_blob_is_deleted_with_its_file(database: TestDatabase) {
    let house = ExternalBlobsFixture::new(database).await;
    let world = &house.fixture;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let (named, orphan) = (incompressible_bytes(1), incompressible_bytes(2));
    let mut append = world.lease_append(
        lease.run,
        Seq(0),
        lease.record.epoch,
        vec![message_with_blob(BlobRef::for_bytes(&named))],
    );
    append.blobs = vec![new_blob(&named)];
    world.store.append(append).await.expect("appends");
    house.put_blob(&orphan).await;
    let (keeps, goes): (Vec<_>, Vec<_>) = house
        .blob_files()
        .into_iter()
        .partition(|file| file.display().to_string().contains(&BlobHash::hash_bytes(&named).to_string()));
    assert_eq!((keeps.len(), goes.len()), (1, 1));
    // A file that was written and never referenced, another store's file, and an unrelated one.
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
    let before = house.blob_files();
    let dry = house.collect_garbage(false).await;
    assert_eq!((dry.orphans, dry.strays, dry.dropped), (1, 1, 0), "{dry:?}");
    assert_eq!(dry.stray_bytes, stray.metadata().expect("is there").len());
    assert_eq!(house.blob_files(), before);
    // A recently written file may be about to be referenced.
    let young = gc::collect(&*world.store, GcRequest { delete: true, ..GcRequest::default() }, |ms| {
        Clock::new().earliest_shown_within(ms)
    })
    .await;
    assert_eq!(young.expect("collects").strays, 0);
    assert!(stray.exists());

    let wet = house.collect_garbage(true).await;
    assert_eq!(wet.strays, 1, "{wet:?}");
    let mut left = [&keeps[..], &others[..]].concat();
    left.sort();
    assert_eq!(house.blob_files(), left);
    assert!(world.store.read_blob(BlobHash::hash_bytes(&named)).await.expect("reads").is_some());
    assert!(world.store.read_blob(BlobHash::hash_bytes(&orphan)).await.expect("reads").is_none());
    world.check_consistency().await;
}

/// Whichever comes first, through two coordinators if the store supports it: a stored blob can be
/// read.
pub(super) async fn blob_stored_during_collection_is_complete(database: TestDatabase) {
    let house = ExternalBlobsFixture::new(database).await;
    let world = &house.fixture;
    let other = if world.database.is_sqlite() {
        Arc::clone(&world.store)
    } else {
        world.database.open_with_blobs(external_blob_settings(house.folder.path())).await
    };
    let bytes = incompressible_bytes(1);
    let hash = BlobHash::hash_bytes(&bytes);
    let mut dropped = 0;
    for round in 0..24 {
        house.put_blob(&bytes).await;
        world.advance_clock(3 * HOUR_MS);
        let now = world.now();
        let since = Timestamp(now.0 - 2 * HOUR_MS as i64 * 1000);
        let put = world.store.put_blobs(vec![new_blob(&bytes)], now);
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
        let read = world.store.read_blob(hash).await.expect("its file is there").expect("it is stored");
        assert_eq!(read.as_ref(), &bytes[..], "round {round}");
    }
    assert!(dropped > 0, "or nothing is shown");
    assert_eq!(house.collect_garbage(true).await.strays, 0);
}

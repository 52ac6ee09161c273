//! Large blobs stored outside the database, as files in a folder or bucket configured by `blobs.to`.
//!
//! The row of such a blob holds the name of its file instead of its content. A file is written and synced
//! before the transaction that writes its row begins, so everything that a commit references is durable. Each
//! write uses a unique name, the blob's hash with a suffix, and a file is never overwritten: a file belongs
//! to at most one row, and deleting a row deletes only that row's file, whatever others store meanwhile under
//! the same hash. Stray files (a coordinator died in between, or two stored the same blob at once) are found
//! by [`ExternalBlobStore::sweep_stray_files`] once they are old.
//!
//! Invariants: content read is decompressed and verified by the caller as if it came from the database. Files
//! of other stores in the same location are never examined, because each store has its own folder there.

use std::collections::HashMap;

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    ids::{BlobHash, Timestamp},
};
use futures_util::{StreamExt as _, TryStreamExt as _};
use tokio::sync::OnceCell;

use super::pack::{PackedBlob, pack_blobs};
use crate::{
    clock,
    object_storage::{ObjectStorage, ObjectStorageError},
    store::{
        ExternalBlobSettings, NewBlob, Store, StoreError,
        db::{DbPool, SqlArg},
    },
};

/// First byte of a row's data that names a file. zstd output starts differently.
const FILE_NAME_MARKER: u8 = b'@';

/// Longest such data, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Concurrent file operations per request; a bucket handles many at once.
const CONCURRENT_FILES: usize = 8;

/// Files whose rows are looked up in one statement.
const STRAYS_PAGE: usize = 500;

/// External blob storage of a store; see the module.
pub(crate) struct ExternalBlobStore {
    settings: ExternalBlobSettings,
    /// Opened on first use and kept, with a bucket's connections.
    read_storage: OnceCell<ObjectStorage>,
    write_storage: OnceCell<ObjectStorage>,
    /// The store's own folder.
    folder: OnceCell<String>,
}

/// Returns the file that holds a row's content, if its data names one.
pub(crate) fn external_file_name(data: &[u8]) -> Option<&str> {
    let name = data.strip_prefix(&[FILE_NAME_MARKER]).filter(|name| name.len() < NAME_BYTES_MAX)?;
    std::str::from_utf8(name).ok()
}

/// Builds the row of a blob whose file was written.
fn external_blob_row(blob: BlobRef, files: &HashMap<BlobHash, String>) -> Option<PackedBlob> {
    let BlobRef { hash, bytes } = blob;
    files.get(&hash).map(|file| PackedBlob { hash, bytes, data: encode_file_name(file) })
}

fn encode_file_name(file: &str) -> Bytes {
    [&[FILE_NAME_MARKER], file.as_bytes()].concat().into()
}

/// Converts a storage error to a store error: the same call may succeed later.
fn blob_storage_error(doing: &'static str, error: ObjectStorageError) -> StoreError {
    let is_full = error.is_full();
    let source = sqlx::Error::Io(std::io::Error::other(error));
    if is_full {
        return StoreError::Full { backend: "blob", doing, source };
    }
    StoreError::Unavailable { backend: "blob", doing, source }
}

/// Creates the error of a reader without external storage configured.
pub(crate) fn not_configured_error() -> StoreError {
    let source = sqlx::Error::Io(std::io::Error::other("`blobs.to` is not set"));
    let doing = "reading a blob stored outside the database";
    StoreError::Unavailable { backend: "blob", doing, source }
}

impl ExternalBlobStore {
    pub(crate) fn new(settings: ExternalBlobSettings) -> Self {
        Self {
            settings,
            read_storage: OnceCell::new(),
            write_storage: OnceCell::new(),
            folder: OnceCell::new(),
        }
    }

    /// Returns the location, for people.
    pub(crate) fn url(&self) -> &str {
        &self.settings.url
    }

    /// Builds rows of blobs; large ones were written to files before.
    pub(crate) async fn pack_blobs(
        &self,
        store: &dyn Store,
        db: &DbPool,
        blobs: Vec<NewBlob>,
        now: Timestamp,
    ) -> Result<Vec<PackedBlob>, StoreError> {
        let (large, small): (Vec<_>, Vec<_>) =
            blobs.into_iter().partition(|blob| blob.blob.bytes >= self.settings.min_bytes);
        let mut packed = pack_blobs(small).await?;
        if large.is_empty() {
            return Ok(packed);
        }
        // Existing blobs are touched first, so that no collection deletes them before they are referenced;
        // their rows stay as they are.
        let kept = store.touch_blobs(large.iter().map(|blob| blob.blob.hash).collect(), now).await?;
        let files = find_external_files(db, &kept).await?;
        let (there, new): (Vec<_>, Vec<_>) =
            large.into_iter().partition(|blob| kept.contains(&blob.blob.hash));
        let (named, inside): (Vec<_>, Vec<_>) =
            there.into_iter().partition(|blob| files.contains_key(&blob.blob.hash));
        packed.extend(pack_blobs(inside).await?);
        packed.extend(named.into_iter().filter_map(|blob| external_blob_row(blob.blob, &files)));
        packed.extend(self.write_files(self.store_folder(store).await?, pack_blobs(new).await?).await?);
        Ok(packed)
    }

    /// Counts files written before `before` that no row references, with their total size; deletes them if
    /// `delete` is set.
    pub(crate) async fn sweep_stray_files(
        &self,
        store: &dyn Store,
        db: &DbPool,
        before: Timestamp,
        delete: bool,
    ) -> Result<(u64, u64), StoreError> {
        let strays = self.find_stray_files(db, self.store_folder(store).await?, before).await?;
        let found = (strays.len() as u64, strays.iter().map(|(_, bytes)| bytes).sum());
        if delete {
            self.delete_files(strays.into_iter().map(|(file, _)| file).collect()).await?;
        }
        Ok(found)
    }

    async fn store_folder(&self, store: &dyn Store) -> Result<&str, StoreError> {
        self.folder.get_or_try_init(async || derive_store_folder(store).await).await.map(String::as_str)
    }

    async fn open_for_reading(&self) -> Result<&ObjectStorage, ObjectStorageError> {
        self.read_storage.get_or_try_init(async || ObjectStorage::open(&self.settings.url)).await
    }

    /// Writes files for these blobs, durably, in the store's folder; returns their rows.
    pub(crate) async fn write_files(
        &self,
        store: &str,
        blobs: Vec<PackedBlob>,
    ) -> Result<Vec<PackedBlob>, StoreError> {
        const DOING: &str = "writing a blob outside the database";
        let failed = |error| blob_storage_error(DOING, error);
        let place = self
            .write_storage
            .get_or_try_init(async || ObjectStorage::create(&self.settings.url))
            .await
            .map_err(failed)?;
        let put = async |blob: PackedBlob| -> Result<PackedBlob, StoreError> {
            let hash = blob.hash.to_string();
            let fan = hash.get(..2).unwrap_or_default();
            let name = format!("{store}/{fan}/{hash}-{}", clock::new_id().simple());
            place.put_bytes(&name, blob.data).await.map_err(failed)?;
            Ok(PackedBlob { data: encode_file_name(&name), ..blob })
        };
        futures_util::stream::iter(blobs).map(put).buffered(CONCURRENT_FILES).try_collect().await
    }

    /// Returns the content of a row's file; `None` if it is missing.
    pub(crate) async fn read_file(&self, file: &str) -> Result<Option<Bytes>, StoreError> {
        let failed = |error| blob_storage_error("reading a blob outside the database", error);
        let got = match self.open_for_reading().await {
            Ok(place) => place.get_bytes(file).await,
            Err(error) => Err(error),
        };
        match got {
            Ok(bytes) => Ok(Some(bytes)),
            Err(ObjectStorageError::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// Deletes the files of deleted rows.
    pub(crate) async fn delete_files(&self, files: Vec<String>) -> Result<(), StoreError> {
        let failed = |error| blob_storage_error("deleting a blob outside the database", error);
        let place = self.open_for_reading().await.map_err(failed)?;
        let remove = async |file: String| place.delete_file(&file).await.map_err(failed);
        futures_util::stream::iter(files).map(remove).buffer_unordered(CONCURRENT_FILES).try_collect().await
    }

    /// Finds files in the store's folder that no row references and that were written before `before`, with
    /// their sizes.
    async fn find_stray_files(
        &self,
        db: &DbPool,
        store: &str,
        before: Timestamp,
    ) -> Result<Vec<(String, u64)>, StoreError> {
        let failed = |error| blob_storage_error("listing blobs outside the database", error);
        let mut strays = Vec::new();
        let place = match self.open_for_reading().await {
            Ok(place) => place,
            // Nothing was ever written there.
            Err(error) if error.is_absent() => return Ok(strays),
            Err(error) => return Err(failed(error)),
        };
        let mut files = place.list_files(store).try_chunks(STRAYS_PAGE);
        while let Some(page) = files.next().await {
            let page = page.map_err(|error| failed(error.1))?;
            let old: Vec<_> = page.into_iter().filter(|file| file.modified_at < before).collect();
            let hash = |name: &str| name.rsplit('/').next()?.split('-').next()?.parse::<BlobHash>().ok();
            let hashes: Vec<BlobHash> = old.iter().filter_map(|file| hash(&file.name)).collect();
            let named = find_external_files(db, &hashes).await?;
            strays.extend(old.into_iter().filter_map(|file| {
                // A name that does not follow docket's scheme belongs to another program.
                let of = hash(&file.name)?;
                (named.get(&of) != Some(&file.name)).then_some((file.name, file.bytes))
            }));
        }
        Ok(strays)
    }
}

/// Returns the files of those of `hashes` that are stored externally.
pub(crate) async fn find_external_files(
    db: &DbPool,
    hashes: &[BlobHash],
) -> Result<HashMap<BlobHash, String>, StoreError> {
    let sql = format!(
        "SELECT hash, substr(data, 1, {NAME_BYTES_MAX}) FROM blobs WHERE {}",
        db.dialect().any_blob_sql("hash", 1)
    );
    let mut files = HashMap::new();
    for mut row in db.query("looking for blobs outside", &sql, vec![SqlArg::from_hashes(hashes)]).await? {
        let hash = BlobHash(row.get_array(0)?);
        files.extend(external_file_name(&row.get_blob(1)?).map(|file| (hash, file.to_owned())));
    }
    Ok(files)
}

/// Derives the folder of a store: the same for all its coordinators and unique to it, without revealing the
/// secret.
async fn derive_store_folder(store: &dyn Store) -> Result<String, StoreError> {
    let secret = store.load_or_create_secret(clock::fresh_secret()).await?;
    let key = blake3::derive_key("docket: the folder of a store's blobs", &secret);
    Ok(BlobHash(key).to_string().get(..16).unwrap_or_default().to_owned())
}

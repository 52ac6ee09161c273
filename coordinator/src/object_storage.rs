//! Object storage: a folder or an S3-compatible bucket that holds the archive and external blobs. The only
//! file that names the storage library.
//!
//! Credentials of a bucket come from the environment, as with the vendor's own tools (`AWS_ACCESS_KEY_ID`,
//! `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`); they appear in no setting, log line or row.

use std::{
    fs::Permissions,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use docket_schema::ids::Timestamp;
use futures_util::{Stream, TryStreamExt as _};
use object_store::{
    ObjectStore, ObjectStoreExt as _, PutPayload, RetryConfig, aws::AmazonS3Builder, buffered::BufWriter,
    local::LocalFileSystem, path::Path as Key,
};
use tokio::io::AsyncWriteExt as _;

/// Part size of multipart uploads, in bytes.
const PART_BYTES: usize = 8 * 1024 * 1024;

/// Limits on retries of a bucket request: a caller is waiting, and a failed archiving pass is repeated later.
const RETRIES_MAX: usize = 4;
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// A storage location that is invalid, or an operation on it that failed.
#[derive(Debug, thiserror::Error)]
pub enum ObjectStorageError {
    /// The URL is not a valid storage location.
    #[error("`{0}` is not a storage location; use file:///FOLDER or s3://BUCKET/PREFIX")]
    InvalidUrl(String),
    /// The storage cannot be reached or refuses the request.
    #[error("{place} cannot be used while {doing}")]
    Unavailable {
        /// The location.
        place: String,
        /// Operation that failed.
        doing: &'static str,
        /// Cause.
        #[source]
        source: object_store::Error,
    },
    /// The file does not exist.
    #[error("{file} does not exist in {place}")]
    NotFound {
        /// The location or locations searched.
        place: String,
        /// The file's name.
        file: String,
    },
    /// The file's size differs from what was written.
    #[error("{file} in {place} has {found} bytes, not {expected}")]
    SizeMismatch {
        /// The location.
        place: String,
        /// The file's name.
        file: String,
        /// Its size, in bytes.
        found: u64,
        /// The size that was written, in bytes.
        expected: u64,
    },
    /// A local file operation failed.
    #[error("{path} cannot be used while {doing}")]
    Local {
        path: PathBuf,
        /// Operation that failed.
        doing: &'static str,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
}

impl ObjectStorageError {
    /// Whether the location or the file does not exist.
    pub fn is_absent(&self) -> bool {
        match self {
            Self::NotFound { .. } => true,
            Self::Local { source, .. } => source.kind() == std::io::ErrorKind::NotFound,
            Self::InvalidUrl(_) | Self::Unavailable { .. } | Self::SizeMismatch { .. } => false,
        }
    }

    /// Whether the storage is full.
    pub fn is_full(&self) -> bool {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(io) = error.downcast_ref::<std::io::Error>()
                && matches!(io.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded)
            {
                return true;
            }
            cause = error.source();
        }
        false
    }

    /// Returns a short reason without paths or addresses.
    pub fn brief_reason(&self) -> String {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(self);
        while let Some(error) = cause {
            if let Some(io) = error.downcast_ref::<std::io::Error>() {
                return io.kind().to_string();
            }
            match error.downcast_ref::<object_store::Error>() {
                Some(object_store::Error::NotFound { .. }) => return "not found".to_owned(),
                Some(object_store::Error::PermissionDenied { .. }) => return "permission denied".to_owned(),
                Some(object_store::Error::Unauthenticated { .. }) => {
                    return "its credentials are rejected".to_owned();
                }
                Some(_) | None => {}
            }
            cause = error.source();
        }
        match self {
            Self::InvalidUrl(_) => "not a storage location".to_owned(),
            Self::NotFound { .. } => "not found".to_owned(),
            Self::SizeMismatch { .. } => "a file of the wrong size".to_owned(),
            Self::Unavailable { .. } | Self::Local { .. } => "it does not respond, or refuses".to_owned(),
        }
    }
}

/// A file in a storage location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    pub name: String,
    /// Its size, in bytes.
    pub bytes: u64,
    /// Modification time by the storage's own clock.
    pub modified_at: Timestamp,
}

/// An open storage location; see the module.
#[derive(Clone)]
pub struct ObjectStorage {
    url: String,
    store: Arc<dyn ObjectStore>,
    prefix: Key,
    /// The folder, for `file://` URLs.
    folder: Option<PathBuf>,
}

/// Whether the URL names a supported storage location.
pub fn is_storage_url(url: &str) -> bool {
    parse_location(url).is_some()
}

enum StorageLocation<'a> {
    Folder(&'a str),
    Bucket(&'a str, &'a str),
}

fn parse_location(url: &str) -> Option<StorageLocation<'_>> {
    if let Some(path) = url.strip_prefix("file://") {
        return path.starts_with('/').then_some(StorageLocation::Folder(path));
    }
    let rest = url.strip_prefix("s3://")?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (!bucket.is_empty() && bucket.chars().all(legal)).then_some(StorageLocation::Bucket(bucket, prefix))
}

impl ObjectStorage {
    /// Opens a location for writing and creates a missing folder.
    ///
    /// # Errors
    /// [`ObjectStorageError`] if the URL is invalid or the location cannot be used.
    pub fn create(url: &str) -> Result<Self, ObjectStorageError> {
        if let Some(StorageLocation::Folder(path)) = parse_location(url) {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
            // It will hold files of repositories, so only its owner may read it.
            made.map_err(|source| ObjectStorageError::Local {
                path: path.into(),
                doing: "creating it",
                source,
            })?;
        }
        Self::open(url)
    }

    /// Opens an existing location for reading.
    ///
    /// # Errors
    /// [`ObjectStorageError`] if the URL is invalid or the location does not exist.
    pub fn open(url: &str) -> Result<Self, ObjectStorageError> {
        let failed =
            |source| ObjectStorageError::Unavailable { place: url.to_owned(), doing: "opening it", source };
        match parse_location(url).ok_or_else(|| ObjectStorageError::InvalidUrl(url.to_owned()))? {
            StorageLocation::Folder(path) => {
                let folder = PathBuf::from(path);
                std::fs::metadata(&folder).map_err(|source| ObjectStorageError::Local {
                    path: folder.clone(),
                    doing: "opening it",
                    source,
                })?;
                let store = LocalFileSystem::new_with_prefix(&folder).map_err(failed)?.with_fsync(true);
                let (url, prefix) = (url.to_owned(), Key::default());
                Ok(Self { url, store: Arc::new(store), prefix, folder: Some(folder) })
            }
            StorageLocation::Bucket(bucket, prefix) => {
                // The library's HTTP client requires a process-wide crypto provider.
                drop(rustls::crypto::ring::default_provider().install_default());
                let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
                let plain = |name| std::env::var(name).is_ok_and(|url: String| url.starts_with("http://"));
                if ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"].into_iter().any(plain) {
                    // An endpoint without TLS was configured on purpose.
                    builder = builder.with_allow_http(true);
                }
                let retry = RetryConfig {
                    max_retries: RETRIES_MAX,
                    retry_timeout: RETRY_TIMEOUT,
                    ..RetryConfig::default()
                };
                let store = builder.with_retry(retry).build().map_err(failed)?;
                let prefix = Key::parse(prefix.trim_matches('/'))
                    .map_err(|_| ObjectStorageError::InvalidUrl(url.to_owned()))?;
                Ok(Self { url: url.to_owned(), store: Arc::new(store), prefix, folder: None })
            }
        }
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    fn object_key(&self, name: &str) -> Key {
        self.prefix.parts().chain(Key::from(name).parts()).collect()
    }

    fn storage_error(
        &self,
        doing: &'static str,
    ) -> impl FnOnce(object_store::Error) -> ObjectStorageError + '_ {
        move |source| ObjectStorageError::Unavailable { place: self.url.clone(), doing, source }
    }

    pub async fn file_size(&self, name: &str) -> Result<Option<u64>, ObjectStorageError> {
        match self.store.head(&self.object_key(name)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.storage_error("looking for a file")(error)),
        }
    }

    /// Copies a file to the storage, durably, unless one with that name exists; returns `false` if it does.
    /// Two concurrent writers may both write, so the name must identify the content.
    ///
    /// # Errors
    /// [`ObjectStorageError`] if the upload failed: the storage then holds nothing new, or the complete file.
    pub async fn put_file_if_absent(&self, name: &str, file: &Path) -> Result<bool, ObjectStorageError> {
        if self.file_size(name).await?.is_some() {
            return Ok(false);
        }
        self.put_file(name, file).await.map(|()| true)
    }

    /// Copies a file to the storage, durably, replacing one with the same name.
    ///
    /// # Errors
    /// [`ObjectStorageError`] if the upload failed: the storage then holds no file, or the old one.
    pub async fn put_file(&self, name: &str, file: &Path) -> Result<(), ObjectStorageError> {
        const DOING: &str = "copying a file to it";
        let local = |source| ObjectStorageError::Local { path: file.to_owned(), doing: "copying it", source };
        let mut from = tokio::fs::File::open(file).await.map_err(local)?;
        let mut to = BufWriter::with_capacity(Arc::clone(&self.store), self.object_key(name), PART_BYTES);
        let io =
            |error: std::io::Error| object_store::Error::Generic { store: "place", source: error.into() };
        let copied = tokio::io::copy(&mut from, &mut to).await;
        if let Err(error) = copied {
            // The upload is aborted. If that fails too, the bucket's lifecycle rules remove the parts.
            drop(to.abort().await);
            return Err(self.storage_error(DOING)(io(error)));
        }
        to.shutdown().await.map_err(|error| self.storage_error(DOING)(io(error)))?;
        self.remove_others_access(name)
    }

    /// Writes bytes to the storage, durably, unless a file with that name exists.
    pub async fn put_bytes_if_absent(&self, name: &str, bytes: Bytes) -> Result<(), ObjectStorageError> {
        if self.file_size(name).await?.is_some() {
            return Ok(());
        }
        self.put_bytes(name, bytes).await
    }

    /// Writes bytes to the storage, durably, replacing a file with the same name.
    ///
    /// # Errors
    /// [`ObjectStorageError`] if the write failed: the storage then holds no file, or the old one.
    pub async fn put_bytes(&self, name: &str, bytes: Bytes) -> Result<(), ObjectStorageError> {
        let payload = PutPayload::from(bytes);
        self.store
            .put(&self.object_key(name), payload)
            .await
            .map_err(self.storage_error("writing a file to it"))?;
        self.remove_others_access(name)
    }

    fn remove_others_access(&self, name: &str) -> Result<(), ObjectStorageError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = folder.join(name);
        let closed = std::fs::set_permissions(&path, Permissions::from_mode(0o600));
        closed.map_err(|source| ObjectStorageError::Local {
            path,
            doing: "restricting its permissions",
            source,
        })
    }

    pub async fn get_file(&self, name: &str, to: &Path) -> Result<(), ObjectStorageError> {
        const DOING: &str = "reading a file from it";
        let found = self.store.get(&self.object_key(name)).await.map_err(self.storage_error(DOING))?;
        let local = |source| ObjectStorageError::Local { path: to.to_owned(), doing: "writing it", source };
        let mut file = tokio::fs::File::create(to).await.map_err(local)?;
        let mut parts = found.into_stream();
        while let Some(part) = parts.try_next().await.map_err(self.storage_error(DOING))? {
            file.write_all(&part).await.map_err(local)?;
        }
        file.flush().await.map_err(local)
    }

    /// Returns the content of a file.
    ///
    /// # Errors
    /// [`ObjectStorageError::NotFound`] if there is no such file; other variants if it cannot be read.
    pub async fn get_bytes(&self, name: &str) -> Result<Bytes, ObjectStorageError> {
        let got = match self.store.get(&self.object_key(name)).await {
            Ok(found) => found.bytes().await,
            Err(error) => Err(error),
        };
        got.map_err(|error| match error {
            object_store::Error::NotFound { .. } => {
                ObjectStorageError::NotFound { place: self.url.clone(), file: name.to_owned() }
            }
            error => self.storage_error("reading a file from it")(error),
        })
    }

    /// Deletes a file if it exists.
    ///
    /// # Errors
    /// [`ObjectStorageError`] if the deletion failed; the file may still exist.
    pub async fn delete_file(&self, name: &str) -> Result<(), ObjectStorageError> {
        match self.store.delete(&self.object_key(name)).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(self.storage_error("deleting a file from it")(error)),
        }
    }

    /// Lists the files of a folder and its subfolders, in no particular order.
    pub fn list_files(
        &self,
        folder: &str,
    ) -> impl Stream<Item = Result<StoredFile, ObjectStorageError>> + Unpin + '_ {
        let above = self.prefix.parts().count();
        self.store
            .list(Some(&self.object_key(folder)))
            .map_err(self.storage_error_mapper("listing its files"))
            .map_ok(move |meta| StoredFile {
                name: meta.location.parts().skip(above).collect::<Key>().to_string(),
                bytes: meta.size,
                modified_at: Timestamp(meta.last_modified.timestamp_micros()),
            })
    }

    fn storage_error_mapper(
        &self,
        doing: &'static str,
    ) -> impl Fn(object_store::Error) -> ObjectStorageError + '_ {
        move |source| ObjectStorageError::Unavailable { place: self.url.clone(), doing, source }
    }

    /// Returns a byte range of a file.
    pub async fn get_range(
        &self,
        name: &str,
        range: std::ops::Range<u64>,
    ) -> Result<Bytes, ObjectStorageError> {
        let found = self.store.get_range(&self.object_key(name), range).await;
        found.map_err(self.storage_error("reading a file from it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn storage_urls_name_folders_or_buckets() {
        for good in ["file:///a/b", "s3://bucket", "s3://bucket/a/b"] {
            assert!(is_storage_url(good), "{good}");
        }
        for bad in ["", "file://a", "a/b", "s3://", "s3:///x", "https://x/y", "s3://user:pw@bucket"] {
            assert!(!is_storage_url(bad), "{bad}");
        }
    }

    #[tokio::test]
    async fn folder_storage_keeps_files_private() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("file://{}/new/deep", folder.path().display());
        assert!(
            ObjectStorage::open(&url).is_err() && !folder.path().join("new").exists(),
            "a look makes nothing"
        );
        let place = ObjectStorage::create(&url).expect("is made");
        let file = folder.path().join("in");
        std::fs::write(&file, b"0123456789").expect("writes");
        place.put_file("2026/11/a.x", &file).await.expect("puts");
        std::fs::write(&file, b"abcdefghij").expect("writes");
        place.put_file("2026/11/a.x", &file).await.expect("replaces");
        let out = folder.path().join("out");
        place.get_file("2026/11/a.x", &out).await.expect("gets");
        assert_eq!(std::fs::read(&out).expect("reads"), b"abcdefghij");
        assert_eq!(place.get_range("2026/11/a.x", 2..5).await.expect("gets").as_ref(), b"cde");
        let kept = folder.path().join("new/deep/2026/11/a.x").metadata().expect("is there");
        assert_eq!(kept.permissions().mode() & 0o777, 0o600);
        assert!(place.get_file("none", &out).await.is_err());
        assert!(!place.put_file_if_absent("2026/11/a.x", &out).await.expect("answers"), "it is there");
        assert!(place.put_file_if_absent("2026/11/b.x", &out).await.expect("puts"));
        place.put_bytes_if_absent("2026/11/b.x", Bytes::from_static(b"z")).await.expect("leaves it");
        let (a, none) = (place.file_size("2026/11/b.x").await, place.file_size("none").await);
        assert_eq!((a.expect("looks"), none.expect("looks")), (Some(10), None));
        assert_eq!(place.get_bytes("2026/11/b.x").await.expect("gets").as_ref(), b"abcdefghij");
        assert!(matches!(place.get_bytes("none").await, Err(ObjectStorageError::NotFound { .. })));
        let listed = async |folder: &str| -> Vec<StoredFile> {
            place.list_files(folder).try_collect().await.expect("lists")
        };
        let mut names: Vec<String> = listed("2026").await.into_iter().map(|file| file.name).collect();
        names.sort();
        assert_eq!(names, ["2026/11/a.x", "2026/11/b.x"]);
        assert_eq!(listed("2025").await, []);
        assert!(listed("2026").await.iter().all(|file| file.bytes == 10 && file.modified_at > Timestamp(0)));
        place.delete_file("2026/11/b.x").await.expect("removes");
        place.delete_file("2026/11/b.x").await.expect("has nothing to do");
        assert_eq!(listed("2026").await.len(), 1);
    }
}

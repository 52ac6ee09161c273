//! Where the archive is: a folder, or a bucket of S3-compatible storage. The only file that names the library.
//!
//! A bucket's keys come from the environment as with its vendor's own tools (`AWS_ACCESS_KEY_ID`,
//! `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`); they stand in no setting, log line or row.

use std::{
    fs::Permissions,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::TryStreamExt as _;
use object_store::{
    ObjectStore, ObjectStoreExt as _, PutPayload, RetryConfig, aws::AmazonS3Builder, buffered::BufWriter,
    local::LocalFileSystem, path::Path as Key,
};
use tokio::io::AsyncWriteExt as _;

/// Parts of a file that goes to a bucket.
const PART_BYTES: usize = 8 * 1024 * 1024;

/// How often, and how long, a request to a bucket is repeated: a caller waits for it, and what is not archived now
/// is archived later.
const RETRIES_MAX: usize = 4;
const RETRIES_TIME: Duration = Duration::from_secs(20);

/// What cannot be used as an archive, or does not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// It is none.
    #[error("`{0}` is no place for an archive; write file:///FOLDER or s3://BUCKET/PREFIX")]
    NoPlace(String),
    /// It cannot be reached, or refuses.
    #[error("the archive {place} cannot be used while {doing}")]
    Store {
        /// Which.
        place: String,
        /// What was being done.
        doing: &'static str,
        /// Why.
        #[source]
        source: object_store::Error,
    },
    /// A local file stands in the way.
    #[error("{path} cannot be used while {doing}")]
    Local {
        /// Which.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// See the module.
#[derive(Clone)]
pub struct Place {
    url: String,
    store: Arc<dyn ObjectStore>,
    prefix: Key,
    /// The folder, if it is one.
    folder: Option<PathBuf>,
}

/// Whether this can name a place.
pub fn is_place(url: &str) -> bool {
    parts(url).is_some()
}

enum Parts<'a> {
    Folder(&'a str),
    Bucket(&'a str, &'a str),
}

fn parts(url: &str) -> Option<Parts<'_>> {
    if let Some(path) = url.strip_prefix("file://") {
        return path.starts_with('/').then_some(Parts::Folder(path));
    }
    let rest = url.strip_prefix("s3://")?;
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    (!bucket.is_empty() && bucket.chars().all(legal)).then_some(Parts::Bucket(bucket, prefix))
}

impl Place {
    /// Opens a place; a folder is made where there is none.
    ///
    /// # Errors
    /// [`PlaceError`]: it is none, or cannot be used.
    pub fn open(url: &str) -> Result<Self, PlaceError> {
        let failed = |source| PlaceError::Store { place: url.to_owned(), doing: "opening it", source };
        match parts(url).ok_or_else(|| PlaceError::NoPlace(url.to_owned()))? {
            Parts::Folder(path) => {
                let folder = PathBuf::from(path);
                // Files of repositories go there: for its owner's eyes only.
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(|source| {
                    PlaceError::Local { path: folder.clone(), doing: "making it", source }
                })?;
                let store = LocalFileSystem::new_with_prefix(&folder).map_err(failed)?.with_fsync(true);
                let (url, prefix) = (url.to_owned(), Key::default());
                Ok(Self { url, store: Arc::new(store), prefix, folder: Some(folder) })
            }
            Parts::Bucket(bucket, prefix) => {
                // The library's HTTP client wants the process's provider of cryptography to be chosen.
                drop(rustls::crypto::ring::default_provider().install_default());
                let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
                let plain = |name| std::env::var(name).is_ok_and(|url: String| url.starts_with("http://"));
                if ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"].into_iter().any(plain) {
                    // Whoever names an endpoint without TLS means it.
                    builder = builder.with_allow_http(true);
                }
                let retry = RetryConfig {
                    max_retries: RETRIES_MAX,
                    retry_timeout: RETRIES_TIME,
                    ..RetryConfig::default()
                };
                let store = builder.with_retry(retry).build().map_err(failed)?;
                let prefix =
                    Key::parse(prefix.trim_matches('/')).map_err(|_| PlaceError::NoPlace(url.to_owned()))?;
                Ok(Self { url: url.to_owned(), store: Arc::new(store), prefix, folder: None })
            }
        }
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn key(&self, name: &str) -> Key {
        self.prefix.parts().chain(Key::from(name).parts()).collect()
    }

    fn failed(&self, doing: &'static str) -> impl FnOnce(object_store::Error) -> PlaceError + '_ {
        move |source| PlaceError::Store { place: self.url.clone(), doing, source }
    }

    /// Copies a file there, durably; one of the same name is replaced.
    ///
    /// # Errors
    /// [`PlaceError`]: nothing, or the old file, stands there.
    pub async fn put_file(&self, name: &str, file: &Path) -> Result<(), PlaceError> {
        const DOING: &str = "a file is copied to it";
        let local = |source| PlaceError::Local { path: file.to_owned(), doing: "copying it", source };
        let mut from = tokio::fs::File::open(file).await.map_err(local)?;
        let mut to = BufWriter::with_capacity(Arc::clone(&self.store), self.key(name), PART_BYTES);
        let io =
            |error: std::io::Error| object_store::Error::Generic { store: "archive", source: error.into() };
        let copied = tokio::io::copy(&mut from, &mut to).await;
        if let Err(error) = copied {
            // What was sent is given up; should that fail, too, the bucket's own rules clear it away.
            drop(to.abort().await);
            return Err(self.failed(DOING)(io(error)));
        }
        to.shutdown().await.map_err(|error| self.failed(DOING)(io(error)))?;
        self.close_to_others(name)
    }

    /// Writes a few bytes there.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub async fn put_bytes(&self, name: &str, bytes: Vec<u8>) -> Result<(), PlaceError> {
        let payload = PutPayload::from(bytes);
        self.store.put(&self.key(name), payload).await.map_err(self.failed("a line is written to it"))?;
        self.close_to_others(name)
    }

    fn close_to_others(&self, name: &str) -> Result<(), PlaceError> {
        let Some(folder) = &self.folder else { return Ok(()) };
        let path = folder.join(name);
        let closed = std::fs::set_permissions(&path, Permissions::from_mode(0o600));
        closed.map_err(|source| PlaceError::Local { path, doing: "closing it to others", source })
    }

    /// Copies a file from there.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub async fn get_file(&self, name: &str, to: &Path) -> Result<(), PlaceError> {
        const DOING: &str = "a file is read from it";
        let found = self.store.get(&self.key(name)).await.map_err(self.failed(DOING))?;
        let local = |source| PlaceError::Local { path: to.to_owned(), doing: "writing it", source };
        let mut file = tokio::fs::File::create(to).await.map_err(local)?;
        let mut parts = found.into_stream();
        while let Some(part) = parts.try_next().await.map_err(self.failed(DOING))? {
            file.write_all(&part).await.map_err(local)?;
        }
        file.flush().await.map_err(local)
    }

    /// A part of a file there.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub async fn get_part(&self, name: &str, range: std::ops::Range<u64>) -> Result<Bytes, PlaceError> {
        let found = self.store.get_range(&self.key(name), range).await;
        found.map_err(self.failed("a file is read from it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_folders_and_buckets() {
        for good in ["file:///a/b", "s3://bucket", "s3://bucket/a/b"] {
            assert!(is_place(good), "{good}");
        }
        for bad in ["", "file://a", "a/b", "s3://", "s3:///x", "https://x/y", "s3://user:pw@bucket"] {
            assert!(!is_place(bad), "{bad}");
        }
    }

    #[tokio::test]
    async fn a_folder_keeps_what_it_is_given_and_from_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = Place::open(&format!("file://{}/new/deep", folder.path().display())).expect("opens");
        let file = folder.path().join("in");
        std::fs::write(&file, b"0123456789").expect("writes");
        place.put_file("2026/11/a.x", &file).await.expect("puts");
        std::fs::write(&file, b"abcdefghij").expect("writes");
        place.put_file("2026/11/a.x", &file).await.expect("replaces");
        let out = folder.path().join("out");
        place.get_file("2026/11/a.x", &out).await.expect("gets");
        assert_eq!(std::fs::read(&out).expect("reads"), b"abcdefghij");
        assert_eq!(place.get_part("2026/11/a.x", 2..5).await.expect("gets").as_ref(), b"cde");
        let kept = folder.path().join("new/deep/2026/11/a.x").metadata().expect("is there");
        assert_eq!(kept.permissions().mode() & 0o777, 0o600);
        assert!(place.get_file("none", &out).await.is_err());
    }
}

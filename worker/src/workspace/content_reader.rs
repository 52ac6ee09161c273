//! Reads content by hash: from the base's git objects if the base has it, otherwise from the blobs of the
//! log.
//!
//! The base's files have no blobs of their own because its pack contains them, so all code that reads a
//! recorded tree uses this module: restore, delivery, tree views and the commands that show history.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    path::PathBuf,
};

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, WorkspacePath},
    ids::BlobHash,
    snapshot::{Entry, EntryKind, Manifest, WorkspaceBase},
};

use super::{
    blobs::{BlobError, BlobReader, get_verified},
    repository::git::{GitCallError, GitDir, ObjectFormat},
};

#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// A blob of the log could not be read.
    #[error("recorded content could not be read")]
    Blob(#[from] BlobError),
    /// The base's pack could not be read.
    #[error("the cached base could not be read; remove its folder in the cache to rebuild it")]
    Git(#[from] GitCallError),
}

/// The objects of a base, in docket's cache on this machine.
#[derive(Debug)]
pub struct BaseObjects {
    pub(super) base: WorkspaceBase,
    pub(super) manifest: Manifest,
    pub(super) git: Option<CachedGitBase>,
}

#[derive(Debug)]
pub(super) struct CachedGitBase {
    pub(super) dir: GitDir,
    pub(super) format: ObjectFormat,
    /// Git's index file of the base.
    pub(super) index: Bytes,
    /// Object name and size of each content of the base.
    pub(super) objects: HashMap<BlobHash, (String, u64)>,
}

impl BaseObjects {
    /// The recorded base.
    pub fn base(&self) -> &WorkspaceBase {
        &self.base
    }

    /// All paths of the base.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The git object folder in the cache.
    pub fn objects_folder(&self) -> Option<PathBuf> {
        self.git.as_ref().map(|git| git.dir.path().join("objects"))
    }

    /// Returns the content of a file of the base; `None` if there is no file at `path`.
    ///
    /// # Errors
    /// [`ContentsError`] if the content cannot be read.
    pub async fn read_file(&self, path: &WorkspacePath) -> Result<Option<Bytes>, ContentsError> {
        match self.manifest.entries.get(path) {
            Some(entry) if entry.kind == EntryKind::File => {
                ContentReader::new(self, &NoBlobs).read_entry(entry).await.map(Some)
            }
            Some(_) | None => Ok(None),
        }
    }

    fn find_object(&self, hash: &BlobHash) -> Option<(&GitDir, &(String, u64))> {
        let git = self.git.as_ref()?;
        Some((&git.dir, git.objects.get(hash)?))
    }
}

/// A reader without blobs: a base's own contents are all in its pack.
struct NoBlobs;

impl BlobReader for NoBlobs {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        Err(BlobError::Missing(blob.hash))
    }
}

/// Reads contents of one run.
pub struct ContentReader<'a, B> {
    base: &'a BaseObjects,
    blobs: &'a B,
}

impl<'a, B: BlobReader> ContentReader<'a, B> {
    /// Reads the base's contents from `base` and all others from `blobs`.
    pub fn new(base: &'a BaseObjects, blobs: &'a B) -> Self {
        Self { base, blobs }
    }

    /// Returns the content of one entry; empty for a folder.
    ///
    /// # Errors
    /// [`ContentsError`] if the content cannot be read.
    pub async fn read_entry(&self, entry: &Entry) -> Result<Bytes, ContentsError> {
        let mut all = BTreeMap::new();
        self.for_each_content(&[*entry], |hash, bytes| {
            all.insert(hash, bytes);
            Ok::<(), ContentsError>(())
        })
        .await?;
        Ok(all.remove(&entry.hash).unwrap_or_default())
    }

    /// Calls `each` once for every distinct content of `entries`, in no particular order. Only a few contents
    /// are in memory at a time.
    pub(super) async fn for_each_content<E: From<ContentsError>>(
        &self,
        entries: &[Entry],
        mut each: impl FnMut(BlobHash, Bytes) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut objects = Vec::new();
        let mut hashes = Vec::new();
        let mut others = Vec::new();
        let mut seen = BTreeSet::new();
        for entry in entries.iter().filter(|entry| entry.kind != EntryKind::Dir) {
            if !seen.insert(entry.hash) {
                continue;
            }
            match self.base.find_object(&entry.hash) {
                Some((_, object)) => {
                    objects.push(object.clone());
                    hashes.push(entry.hash);
                }
                None => others.push(BlobRef { hash: entry.hash, bytes: entry.size }),
            }
        }
        if let Some(git) = &self.base.git {
            let damaged = |hash| ContentsError::Blob(BlobError::Damaged(hash));
            let read = git.dir.read_blobs(&objects, |at, bytes| {
                if BlobHash::hash_bytes(&bytes) != hashes[at] {
                    return Err(ReadAbort::Caller(E::from(damaged(hashes[at]))));
                }
                each(hashes[at], Bytes::from(bytes)).map_err(ReadAbort::Caller)
            });
            match read.await {
                Ok(()) => {}
                Err(ReadAbort::Caller(error)) => return Err(error),
                Err(ReadAbort::Git(error)) => return Err(ContentsError::Git(error).into()),
            }
        }
        for blob in others {
            let bytes = get_verified(self.blobs, &blob).await.map_err(ContentsError::Blob)?;
            each(blob.hash, bytes)?;
        }
        Ok(())
    }
}

/// What ended reading early: git itself or the caller's callback.
enum ReadAbort<E> {
    Git(GitCallError),
    Caller(E),
}

impl<E> From<GitCallError> for ReadAbort<E> {
    fn from(error: GitCallError) -> Self {
        Self::Git(error)
    }
}

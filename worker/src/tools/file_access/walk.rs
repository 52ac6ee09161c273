//! Lists the names below a folder of the workspace, respecting ignore files, in the same order everywhere.
//!
//! The walk returns names only. Callers open files through the workspace's handle again, so a folder that is swapped
//! for a link in the meantime leads nowhere.

use std::{
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use cap_std::fs::Dir;
use docket_schema::content::WorkspacePath;
use globset::{Glob, GlobMatcher};
use ignore::{DirEntry, Match, ParallelVisitor, ParallelVisitorBuilder, WalkBuilder, WalkState};

use super::{files::FileError, ignore_files::IgnoreFiles};

/// Most names visited in one walk: an answer would be truncated before that.
pub(crate) const VISITED_MAX: usize = 200_000;

/// Whether dotfiles are visited. `.git` never is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HiddenEntries {
    Include,
    Skip,
}

#[derive(Debug)]
pub(crate) struct VisitedPath {
    /// Path from the workspace's root.
    pub(crate) path: WorkspacePath,
    pub(crate) is_dir: bool,
    pub(crate) is_link: bool,
    /// Depth below the walked folder, from 1.
    pub(crate) depth: usize,
}

/// Walks below `folder`, sorted by path, with a folder before its contents.
pub(crate) fn walk_folder(
    root: &Dir,
    folder: Option<&WorkspacePath>,
    depth_max: Option<usize>,
    hidden: HiddenEntries,
) -> Result<impl Iterator<Item = VisitedPath>, FileError> {
    use std::os::unix::ffi::OsStrExt as _;
    if let Some(folder) = folder {
        let meta = root.metadata(super::files::os_path(folder)).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound => FileError::Missing(folder.clone()),
            _ => FileError::Io { path: folder.clone(), source },
        })?;
        if !meta.is_dir() {
            return Err(FileError::NotAFolder(folder.clone()));
        }
    }
    let within = folder.cloned();
    let below = within.clone();
    let extra = folder.map_or(0, |folder| folder.components().count());
    let (base, mut builder) = walk_builder(root);
    let wanted = visit_filter(root, &base, hidden)?;
    builder
        .max_depth(depth_max.map(|depth| depth.saturating_add(extra)))
        .sort_by_file_name(std::cmp::Ord::cmp);
    let strip = base.clone();
    // Ignore rules of parent folders apply, so the walk starts at the root and enters only what leads to the
    // requested folder.
    builder.filter_entry(move |entry| {
        if !wanted(entry) {
            return false;
        }
        let Some(folder) = &within else { return true };
        let Ok(path) = entry.path().strip_prefix(&strip) else { return true };
        let (path, folder) = (path.as_os_str().as_bytes(), folder.as_bytes());
        path.is_empty() || is_within(path, folder) || is_within(folder, path)
    });
    Ok(builder.build().take(VISITED_MAX).filter_map(move |entry| {
        let entry = entry.ok()?;
        let path = workspace_path(&base, &entry)?;
        if let Some(folder) = &below
            && (path == *folder || !is_within(path.as_bytes(), folder.as_bytes()))
        {
            return None;
        }
        let kind = entry.file_type()?;
        Some(VisitedPath {
            path,
            is_dir: kind.is_dir(),
            is_link: kind.is_symlink(),
            depth: entry.depth() - extra,
        })
    }))
}

/// Creates a walk of the root; ignore files above the workspace and a user's own are not used.
fn walk_builder(root: &Dir) -> (PathBuf, WalkBuilder) {
    // The handle's path in /proc: the walk starts at the handle's folder, even if it was renamed.
    let base = PathBuf::from(format!("/proc/self/fd/{}/.", root.as_raw_fd()));
    let mut builder = WalkBuilder::new(&base);
    builder.standard_filters(false).follow_links(false);
    (base, builder)
}

/// Decides by ripgrep's rules whether a walk visits an entry.
fn visit_filter(
    root: &Dir,
    base: &Path,
    hidden: HiddenEntries,
) -> Result<impl Fn(&DirEntry) -> bool + Send + Sync + Clone + 'static, FileError> {
    use std::os::unix::ffi::OsStrExt as _;
    let files = IgnoreFiles::new(root).map_err(FileError::Root)?;
    let (files, base) = (Arc::new(files), base.to_owned());
    Ok(move |entry: &DirEntry| {
        let Ok(path) = entry.path().strip_prefix(&base) else { return true };
        if path.as_os_str().is_empty() {
            return true;
        }
        let name = entry.file_name().as_bytes();
        if name == b".git" {
            return false;
        }
        let is_dir = entry.file_type().is_some_and(|kind| kind.is_dir());
        match files.match_path(path.as_os_str().as_bytes(), is_dir) {
            Match::Ignore(()) => false,
            Match::Whitelist(()) => true,
            Match::None => hidden == HiddenEntries::Include || !name.starts_with(b"."),
        }
    })
}

fn workspace_path(base: &Path, entry: &DirEntry) -> Option<WorkspacePath> {
    use std::os::unix::ffi::OsStrExt as _;
    WorkspacePath::new(entry.path().strip_prefix(base).ok()?.as_os_str().as_bytes().to_vec())
}

/// Visits every file that is neither hidden nor a link, on several threads and in no particular order. Each thread
/// creates its own visitor; one that returns [`WalkState::Quit`] ends the walk.
pub(crate) fn walk_files<V>(root: &Dir, visitor: impl Fn() -> V + Sync)
where
    V: FnMut(WorkspacePath) -> WalkState + Send,
{
    let (base, mut builder) = walk_builder(root);
    // A handle that cannot be duplicated cannot open anything either.
    let Ok(wanted) = visit_filter(root, &base, HiddenEntries::Skip) else { return };
    // Two threads keep a small tree's names coming; more than eight gain nothing.
    let threads =
        std::thread::available_parallelism().map_or(2, std::num::NonZero::get).clamp(2, THREADS_MAX);
    builder.threads(threads).filter_entry(wanted);
    builder.build_parallel().visit(&mut ThreadVisitors { base: &base, visitor: &visitor });
}

/// Most threads of one walk.
const THREADS_MAX: usize = 8;

/// Creates a visitor for each thread.
struct ThreadVisitors<'a, F> {
    base: &'a Path,
    visitor: &'a F,
}

impl<'a, V, F> ParallelVisitorBuilder<'a> for ThreadVisitors<'a, F>
where
    V: FnMut(WorkspacePath) -> WalkState + Send + 'a,
    F: Fn() -> V + Sync,
{
    fn build(&mut self) -> Box<dyn ParallelVisitor + 'a> {
        Box::new(ThreadVisitor { base: self.base, visitor: (self.visitor)() })
    }
}

struct ThreadVisitor<'a, V> {
    base: &'a Path,
    visitor: V,
}

impl<V: FnMut(WorkspacePath) -> WalkState + Send> ParallelVisitor for ThreadVisitor<'_, V> {
    fn visit(&mut self, entry: Result<DirEntry, ignore::Error>) -> WalkState {
        let Ok(entry) = entry else { return WalkState::Continue };
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            return WalkState::Continue;
        }
        match workspace_path(self.base, &entry) {
            Some(path) => (self.visitor)(path),
            None => WalkState::Continue,
        }
    }
}

fn is_within(inner: &[u8], outer: &[u8]) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.first() == Some(&b'/'))
}

/// A file glob: without a slash it matches names, with a slash paths.
#[derive(Debug)]
pub(crate) struct FileGlob {
    matcher: GlobMatcher,
    matches_name: bool,
    /// A glob that names a folder covers everything below it.
    folder_matcher: Option<GlobMatcher>,
}

impl FileGlob {
    pub(crate) fn new(field: &str, text: &str) -> Result<Self, String> {
        let text = crate::calls::strip_workspace_prefix(text);
        let text = text.strip_prefix("./").unwrap_or(text);
        let compiled = |text: &str| {
            let glob: Result<Glob, _> = globset::GlobBuilder::new(text).literal_separator(true).build();
            glob.map(|glob| glob.compile_matcher())
                .map_err(|error| format!("`{field}` is not a glob: {error}"))
        };
        let folder = text.trim_end_matches('/');
        let is_plain = text.ends_with('/') || !text.contains(['*', '?', '[', '{']);
        let below = if is_plain { Some(compiled(&format!("{folder}/**"))?) } else { None };
        Ok(Self { matcher: compiled(folder)?, matches_name: !folder.contains('/'), folder_matcher: below })
    }

    pub(crate) fn is_match(&self, path: &WorkspacePath) -> bool {
        let path = super::files::os_path(path);
        if self.folder_matcher.as_ref().is_some_and(|below| below.is_match(path)) {
            return true;
        }
        if self.matches_name {
            path.file_name().is_some_and(|name| self.matcher.is_match(name))
        } else {
            self.matcher.is_match(path)
        }
    }
}

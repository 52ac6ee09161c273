//! Unusual trees that any command can create: very wide, very deep, very large, unreadable, growing.

use std::{
    fs,
    io::Write as _,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt as _, net::UnixListener},
    },
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use docket_schema::{
    content::BlobRef,
    snapshot::{EntryKind, OmissionReason},
};
use nix::{
    fcntl::{OFlag, openat},
    sys::stat::{Mode, SFlag, fchmod, mkdirat, mknod},
    unistd::{Uid, geteuid, mkfifo, setfsuid},
};

use super::support::{
    RecordedRun, WorkspaceFixture, path, read_plain_tree, script_output, set_mode, write_file,
};
use crate::workspace::{PinnedBase, SnapshotDelta, Workspace, snapshot::walk::PATH_DEPTH_MAX};

async fn start_workspace() -> (WorkspaceFixture, PinnedBase, Workspace) {
    let mut house = WorkspaceFixture::new();
    write_file(&house.source_repo(), "a", "1\n");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let workspace = house.materialize_workspace("run", &pinned).await;
    (house, pinned, workspace)
}

/// A scan that fails midway keeps what it has seen: a later restore starts from that and verifies the tree.
#[tokio::test]
async fn tree_matches_index_after_failed_scan() {
    let (_house, _pinned, mut workspace) = start_workspace().await;
    write_file(workspace.path(), "b", "2\n");
    fs::remove_file(workspace.path().join("a")).unwrap();
    let before = workspace.tree_hash();
    let delta = workspace.snapshot_walk().unwrap();
    // The state if the same scan fails at its last file.
    for change in &delta.changes {
        let was = (change.entry.is_none()).then(|| workspace.base_manifest().entries[&change.path]);
        workspace.tree.set_entry(&change.path, was);
    }
    assert_eq!(workspace.tree_hash(), before);
    let failed = workspace.update_tree(Err((b"c".to_vec(), nix::errno::Errno::EIO)));
    assert!(failed.unwrap_err().to_string().contains("`c`"));
    assert_eq!(workspace.tree_hash(), delta.tree);
    assert_eq!(workspace.tree_hash(), workspace.manifest().tree_hash());
}

fn left_out_paths(delta: &SnapshotDelta) -> Vec<(String, OmissionReason)> {
    delta.left_out.iter().map(|left| (left.path.to_string(), left.why)).collect()
}

/// Creates a nested folder by handle, which works for paths of any length.
fn make_folder_in(folder: OwnedFd, name: &str) -> OwnedFd {
    mkdirat(&folder, name, Mode::from_bits_truncate(0o755)).unwrap();
    let made = openat(&folder, name, OFlag::O_DIRECTORY, Mode::empty()).unwrap();
    fchmod(&made, Mode::from_bits_truncate(0o755)).unwrap();
    made
}

fn make_nested_folders(dir: &Path, name: &str, depth: usize) -> OwnedFd {
    (0..depth).fold(fs::File::open(dir).unwrap().into(), |folder, _| make_folder_in(folder, name))
}

fn write_file_at(folder: &OwnedFd, name: &str, bytes: &[u8], mode: u32) {
    let mode = Mode::from_bits_truncate(mode);
    let mut file = fs::File::from(openat(folder, name, OFlag::O_CREAT | OFlag::O_WRONLY, mode).unwrap());
    fchmod(&file, mode).unwrap();
    file.write_all(bytes).unwrap();
}

/// Names, types, modes and contents according to `find` and `cat`, which have no path limit.
async fn list_tree(dir: &Path) -> String {
    let script = "find . -path ./.git -prune -o -printf '%P %y %m %s\\n' | sort; \
                  find . -path ./.git -prune -o -type f -execdir cat {} ';' | sort";
    script_output(dir, script).await
}

#[tokio::test]
async fn folder_with_two_hundred_thousand_files_is_captured() {
    let (mut house, _, mut workspace) = start_workspace().await;
    let dir = house.path_to("run/wide");
    fs::create_dir(&dir).unwrap();
    // Hard links of a few files: ext4 allows 65,000 per file.
    for nth in 0..200_000 {
        let file = dir.join(format!("file-{nth:06}"));
        match nth % 50_000 {
            0 => fs::write(file, nth.to_string()).unwrap(),
            past => fs::hard_link(dir.join(format!("file-{:06}", nth - past)), file).unwrap(),
        }
    }
    let mut recorded = RecordedRun::default();
    let delta = workspace.snapshot_walk().unwrap();
    assert_eq!((delta.changes.len(), delta.blobs.len()), (200_000, 4));
    recorded.apply_delta(delta, &mut house.blobs);

    while workspace.snapshot_walk().unwrap().files_read > 0 {}
    fs::remove_file(dir.join("file-123456")).unwrap();
    fs::write(dir.join("file-123456"), "another").unwrap();
    let named = workspace.snapshot_paths(&[path("wide/file-123456")]).unwrap();
    assert_eq!((named.changes.len(), named.files_read), (1, 1));
    fs::remove_file(dir.join("file-000007")).unwrap();
    let walked = workspace.snapshot_walk().unwrap();
    assert_eq!(walked.changes.len(), 1);
    assert_eq!(walked.tree, workspace.manifest().tree_hash());

    let restored = recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    assert_eq!(restored.written_paths, 3, "one is removed, two are written, and all others stay");
    assert_eq!(fs::read(dir.join("file-123456")).unwrap(), b"100000");
    fs::remove_dir_all(&dir).unwrap();
    assert_eq!(workspace.snapshot_walk().unwrap().changes.len(), 200_000);
}

#[tokio::test]
async fn paths_deeper_and_longer_than_one_syscall_accepts_are_restored() {
    let (mut house, pinned, mut workspace) = start_workspace().await;
    let name = "n".repeat(255);
    let deep = make_nested_folders(&house.path_to("run"), "d", 500);
    write_file_at(&deep, "leaf", b"deep\n", 0o600);
    let long = make_nested_folders(&house.path_to("run"), &name, 40);
    write_file_at(&long, &name, b"long\n", 0o644);
    make_folder_in(long, "hollow");
    let mut recorded = RecordedRun::default();
    let delta = workspace.snapshot_walk().unwrap();
    assert_eq!((left_out_paths(&delta), delta.changes.len()), (vec![], 3));
    assert!(delta.changes.iter().any(|change| change.path.as_bytes().len() > 10_000));
    recorded.apply_delta(delta, &mut house.blobs);
    assert!(workspace.snapshot_walk().unwrap().is_empty());
    let expected = list_tree(&house.path_to("run")).await;
    assert!(expected.contains("deep\n") && expected.contains("long\n"));

    let mut fresh = house.materialize_workspace("fresh", &pinned).await;
    recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(list_tree(&house.path_to("fresh")).await, expected);
    RecordedRun::default().restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(read_plain_tree(&house.path_to("fresh")).len(), 1);
}

#[tokio::test]
async fn paths_too_deep_to_restore_are_left_out_and_removed() {
    let (mut house, _, mut workspace) = start_workspace().await;
    let before = RecordedRun::default();
    write_file_at(&make_nested_folders(&house.path_to("run"), "d", 3000), "leaf", b"deep\n", 0o644);
    let mut recorded = RecordedRun::default();
    let delta = workspace.snapshot_walk().unwrap();
    let [(deepest, OmissionReason::TooLarge)] = &left_out_paths(&delta)[..] else {
        panic!("{:?}", left_out_paths(&delta))
    };
    assert_eq!(deepest.matches('/').count(), PATH_DEPTH_MAX + 1);
    recorded.apply_delta(delta, &mut house.blobs);
    recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    before.restore_into(&mut workspace, &house.blobs).await.unwrap();
    assert_eq!(read_plain_tree(&house.path_to("run")).len(), 1);
}

#[tokio::test]
async fn names_differing_only_by_case_are_distinct() {
    let (mut house, pinned, mut workspace) = start_workspace().await;
    for (name, text) in [("README", "1"), ("readme", "2"), ("Src/a", "3"), ("src/a", "4"), ("A", "5")] {
        write_file(&house.path_to("run"), name, text);
    }
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    fs::rename(house.path_to("run/README"), house.path_to("run/ReadMe")).unwrap();
    let delta = workspace.snapshot_walk().unwrap();
    assert_eq!(delta.changes.iter().map(|c| c.entry.is_some()).collect::<Vec<_>>(), [false, true]);
    recorded.apply_delta(delta, &mut house.blobs);
    let mut fresh = house.materialize_workspace("fresh", &pinned).await;
    recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(read_plain_tree(&house.path_to("fresh")), read_plain_tree(&house.path_to("run")));
}

/// Makes this thread access files as an ordinary user, so that modes apply even if root runs the tests.
struct FilesystemUser(Uid);

impl FilesystemUser {
    fn new(house: &WorkspaceFixture) -> Self {
        if geteuid().is_root() {
            for folder in [house.folder.path(), &house.path_to("run")] {
                std::os::unix::fs::chown(folder, Some(USER), Some(USER)).unwrap();
            }
            return Self(setfsuid(Uid::from_raw(USER)));
        }
        Self(geteuid())
    }
}

impl Drop for FilesystemUser {
    fn drop(&mut self) {
        setfsuid(self.0);
    }
}

const USER: u32 = 12_345;

#[tokio::test]
async fn unreadable_paths_are_left_out_and_reported() {
    let (mut house, _, mut workspace) = start_workspace().await;
    let user = FilesystemUser::new(&house);
    let dir = house.path_to("run");
    write_file(&dir, "secret", "s");
    write_file(&dir, "locked/inside", "i");
    write_file(&dir, "open", "o");
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    set_mode(&dir.join("secret"), 0o000);
    set_mode(&dir.join("locked"), 0o000);
    let delta = workspace.snapshot_walk().unwrap();
    let unreadable = ["locked", "secret"].map(|name| (name.to_owned(), OmissionReason::Unreadable));
    assert_eq!(left_out_paths(&delta), unreadable);
    let gone: Vec<_> = delta.changes.iter().map(|c| (c.path.to_string(), c.entry.is_some())).collect();
    assert_eq!(gone, [("locked/inside".to_owned(), false), ("secret".to_owned(), false)]);
    // Once readable again, it is captured again.
    set_mode(&dir.join("secret"), 0o600);
    set_mode(&dir.join("locked"), 0o700);
    let delta = workspace.snapshot_walk().unwrap();
    assert_eq!(delta.changes.iter().filter(|change| change.entry.is_some()).count(), 3);
    assert_eq!(delta.tree, workspace.manifest().tree_hash());
    drop(user);
}

#[tokio::test]
async fn fifos_sockets_and_devices_are_left_out_and_reported() {
    let (mut house, pinned, mut workspace) = start_workspace().await;
    let dir = house.path_to("run");
    mkfifo(&dir.join("fifo"), Mode::S_IRWXU).unwrap();
    let _listener = UnixListener::bind(dir.join("socket")).unwrap();
    let mut expected = vec!["fifo", "socket"];
    // Only root can create devices, and not in every container.
    if mknod(&dir.join("device"), SFlag::S_IFCHR, Mode::S_IRWXU, nix::sys::stat::makedev(1, 3)).is_ok() {
        expected.insert(0, "device");
    }
    let mut recorded = RecordedRun::default();
    let delta = workspace.snapshot_walk().unwrap();
    assert!(delta.changes.is_empty());
    let expected: Vec<_> =
        expected.into_iter().map(|name| (name.to_owned(), OmissionReason::NotAFile)).collect();
    assert_eq!(left_out_paths(&delta), expected);
    recorded.apply_delta(delta, &mut house.blobs);
    // A file that becomes a FIFO is removed from the snapshot and reported.
    fs::remove_file(dir.join("a")).unwrap();
    mkfifo(&dir.join("a"), Mode::S_IRWXU).unwrap();
    let named = workspace.snapshot_paths(&[path("a")]).unwrap();
    assert_eq!(left_out_paths(&named), [("a".to_owned(), OmissionReason::NotAFile)]);
    assert_eq!(named.changes[0].entry, None);
    recorded.apply_delta(named, &mut house.blobs);
    let mut fresh = house.materialize_workspace("fresh", &pinned).await;
    let restored = recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    assert_eq!(restored.missing.len(), expected.len() + 1);
    assert!(read_plain_tree(&house.path_to("fresh")).is_empty());
}

#[tokio::test]
async fn a_huge_sparse_file_is_left_out_unread() {
    let (mut house, _, mut workspace) = start_workspace().await;
    let file = house.path_to("run/huge");
    fs::File::create(&file).unwrap().set_len(1 << 40).unwrap();
    let delta = workspace.snapshot_walk().unwrap();
    assert_eq!(left_out_paths(&delta), [("huge".to_owned(), OmissionReason::TooLarge)]);
    assert_eq!((delta.files_read, delta.changes.len(), delta.blobs.len()), (0, 0, 0));
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(delta, &mut house.blobs);
    recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    assert_eq!(fs::metadata(&file).unwrap().len(), 1 << 40, "on its own machine it stays");
    // Once small again, it is captured.
    fs::File::options().write(true).open(&file).unwrap().set_len(10).unwrap();
    let delta = workspace.snapshot_walk().unwrap();
    assert_eq!(delta.changes[0].entry.map(|entry| (entry.kind, entry.size)), Some((EntryKind::File, 10)));
}

#[tokio::test]
async fn file_that_grows_while_being_read_is_captured_as_read() {
    let (mut house, _, mut workspace) = start_workspace().await;
    let file = house.path_to("run/growing");
    write_file(&house.path_to("run"), "growing", vec![b'x'; 1024 * 1024]);
    let stop = AtomicBool::new(false);
    let mut recorded = RecordedRun::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = fs::File::options().append(true).open(&file).unwrap();
            while !stop.load(Ordering::Relaxed) && file.metadata().unwrap().len() < 32 * 1024 * 1024 {
                file.write_all(&[b'y'; 4096]).unwrap();
            }
        });
        for _ in 0..20 {
            let delta = workspace.snapshot_walk().unwrap();
            assert_eq!(delta.tree, workspace.manifest().tree_hash());
            for (blob, bytes) in delta.blobs.iter() {
                assert_eq!(BlobRef::for_bytes(bytes), *blob);
            }
            recorded.apply_delta(delta, &mut house.blobs);
        }
        stop.store(true, Ordering::Relaxed);
    });
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let bytes = fs::read(&file).unwrap();
    assert_eq!(
        recorded.overlay[&path("growing")].map(|entry| entry.hash),
        Some(BlobRef::for_bytes(&bytes).hash)
    );
    set_mode(&file, 0o600);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    assert_eq!(fs::read(&file).unwrap(), bytes);
}

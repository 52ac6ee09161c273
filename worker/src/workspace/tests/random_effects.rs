//! Random sequences of everything that tools and commands do (files, modes, links, changing file types, real
//! shells, real git, clocks set back), with a snapshot after each turn; then every turn is restored into a
//! separate workspace and compared with a plain copy that was made at that turn.
//!
//! `random_edits` checks that file tools need no walk; here a turn may be anything, and the live workspace
//! sometimes goes back in time and continues from there.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use proptest::{prelude::*, sample::select, test_runner::TestCaseError};

use super::support::{
    PlainTree, RecordedRun, WorkspaceFixture, git_allow_failure, path, path_from_bytes, read_plain_tree,
    run_script, set_mode, write_file,
};
use crate::workspace::{
    PinnedBase, Workspace,
    snapshot::walk::{ListingMode, WalkScope},
};

type RawName = &'static [u8];

#[derive(Debug, Clone)]
enum TreeEffect {
    /// As file tools do it: write a temporary file, then rename it.
    Create(RawName, u8),
    /// In place, without a change of size, as a mapped page would be written.
    Overwrite(RawName, u8),
    /// The same with its mtime set back afterwards, as `touch -d` does.
    OverwriteBackdated(RawName, u8),
    Append(RawName),
    Truncate(RawName),
    Remove(RawName),
    Rename(RawName, RawName),
    Swap(RawName, RawName),
    Mode(RawName, u32),
    Symlink(RawName, RawName),
    Hardlink(RawName, RawName),
    Folder(RawName),
    FileToFolder(RawName, u8),
    FolderToFile(RawName, u8),
    Fifo(RawName),
    Shell(&'static str),
    Git(&'static [&'static str]),
}

/// A name of 255 bytes, the longest that Linux accepts.
const LONG_NAME: RawName = &[b'n'; 255];

/// Few names, so that effects collide; some are not UTF-8, some differ only by case, one has the maximum
/// length.
const NAMES: [RawName; 12] = [
    b"a",
    b"b",
    b"A",
    b"src/a",
    b"src/b",
    b"src/deep/c",
    b"src",
    b"src/deep",
    b"caf\xe9/\xff\xfe",
    b"caf\xe9",
    b"new\nline",
    LONG_NAME,
];

const SCRIPTS: [&str; 8] = [
    "for n in 1 2 3; do echo $n > made-$n; done",
    "mkdir -p out/x out/y && cp -a src out/x/ 2>/dev/null; echo done > out/y/log",
    "rm -rf src",
    "find . -path ./.git -prune -o -type f -exec sed -i s/1/2/ {} +",
    "mv src moved && mv moved src",
    "umask 077; mkdir -p private; echo k > private/key",
    "echo x >> a; touch -d '2001-01-01' a",
    "find . -path ./.git -prune -o -type d -empty -print0 | xargs -0r rmdir",
];

const GIT_COMMANDS: [&[&str]; 5] = [
    &["add", "-A", "."],
    &["commit", "-q", "--allow-empty", "-m", "mine"],
    &["stash", "push", "-q", "-u"],
    &["switch", "-q", "-c", "feature/x"],
    &["reset", "-q", "--hard", "HEAD"],
];

fn any_name() -> impl Strategy<Value = RawName> {
    select(NAMES.to_vec())
}

fn any_effect() -> impl Strategy<Value = TreeEffect> {
    let modes = select(vec![0o644, 0o755, 0o600, 0o700, 0o711, 0o444]);
    prop_oneof![
        6 => (any_name(), any::<u8>()).prop_map(|(name, byte)| TreeEffect::Create(name, byte)),
        4 => (any_name(), any::<u8>()).prop_map(|(name, byte)| TreeEffect::Overwrite(name, byte)),
        2 => (any_name(), any::<u8>()).prop_map(|(name, byte)| TreeEffect::OverwriteBackdated(name, byte)),
        2 => any_name().prop_map(TreeEffect::Append),
        1 => any_name().prop_map(TreeEffect::Truncate),
        3 => any_name().prop_map(TreeEffect::Remove),
        3 => (any_name(), any_name()).prop_map(|(from, to)| TreeEffect::Rename(from, to)),
        2 => (any_name(), any_name()).prop_map(|(one, other)| TreeEffect::Swap(one, other)),
        2 => (any_name(), modes).prop_map(|(name, mode)| TreeEffect::Mode(name, mode)),
        2 => (any_name(), any_name()).prop_map(|(name, target)| TreeEffect::Symlink(name, target)),
        2 => (any_name(), any_name()).prop_map(|(from, to)| TreeEffect::Hardlink(from, to)),
        2 => any_name().prop_map(TreeEffect::Folder),
        2 => (any_name(), any::<u8>()).prop_map(|(name, byte)| TreeEffect::FileToFolder(name, byte)),
        2 => (any_name(), any::<u8>()).prop_map(|(name, byte)| TreeEffect::FolderToFile(name, byte)),
        1 => any_name().prop_map(TreeEffect::Fifo),
        3 => select(SCRIPTS.to_vec()).prop_map(TreeEffect::Shell),
        2 => select(GIT_COMMANDS.to_vec()).prop_map(TreeEffect::Git),
    ]
}

fn content_bytes(byte: u8) -> Vec<u8> {
    format!("{byte:03} one\n").repeat(1 + usize::from(byte) % 3).into_bytes()
}

fn remove(at: &Path) {
    let _nothing = fs::remove_file(at).or_else(|_| fs::remove_dir_all(at));
}

/// Overwrites the first bytes of the file in place.
fn overwrite(at: &Path, byte: u8) -> std::io::Result<()> {
    let size = fs::metadata(at)?.len();
    let bytes = content_bytes(byte);
    let cut = bytes.len().min(usize::try_from(size).unwrap());
    fs::File::options().write(true).open(at)?.write_all_at(&bytes[..cut], 0)
}

/// Applies the effect; an effect that the file system refuses is skipped, as in a real run.
async fn apply_effect(dir: &Path, effect: &TreeEffect) {
    let at = |name: RawName| dir.join(path_from_bytes(name));
    let is_file = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
    let is_folder = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    let leads_out = |name: RawName| {
        let mut parent = at(name);
        while parent.pop() && parent != dir {
            if fs::symlink_metadata(&parent).is_ok_and(|meta| meta.is_symlink()) {
                return true;
            }
        }
        false
    };
    let names: &[RawName] = match effect {
        TreeEffect::Rename(one, other) | TreeEffect::Swap(one, other) | TreeEffect::Hardlink(one, other) => {
            &[one, other]
        }
        TreeEffect::Create(name, _)
        | TreeEffect::Overwrite(name, _)
        | TreeEffect::OverwriteBackdated(name, _)
        | TreeEffect::Append(name)
        | TreeEffect::Truncate(name)
        | TreeEffect::Remove(name)
        | TreeEffect::Mode(name, _)
        | TreeEffect::Symlink(name, _)
        | TreeEffect::Folder(name)
        | TreeEffect::FileToFolder(name, _)
        | TreeEffect::FolderToFile(name, _)
        | TreeEffect::Fifo(name) => &[name],
        TreeEffect::Shell(_) | TreeEffect::Git(_) => &[],
    };
    if names.iter().any(|name| leads_out(name)) {
        return;
    }
    let _refused = match *effect {
        TreeEffect::Create(name, byte) => fs::create_dir_all(at(name).parent().unwrap())
            .and_then(|()| fs::write(dir.join(".part"), content_bytes(byte)))
            .and_then(|()| fs::rename(dir.join(".part"), at(name)))
            .or_else(|_| fs::remove_file(dir.join(".part"))),
        TreeEffect::Overwrite(name, byte) if is_file(&at(name)) => overwrite(&at(name), byte),
        TreeEffect::OverwriteBackdated(name, byte) if is_file(&at(name)) => {
            let before = fs::metadata(at(name)).and_then(|meta| meta.modified());
            overwrite(&at(name), byte)
                .and_then(|()| fs::File::options().write(true).open(at(name))?.set_modified(before?))
        }
        TreeEffect::Append(name) if is_file(&at(name)) => {
            fs::read(at(name)).and_then(|old| fs::write(at(name), [&old[..], b"+"].concat()))
        }
        TreeEffect::Truncate(name) if is_file(&at(name)) => fs::write(at(name), b""),
        TreeEffect::Overwrite(..)
        | TreeEffect::OverwriteBackdated(..)
        | TreeEffect::Append(_)
        | TreeEffect::Truncate(_) => Ok(()),
        TreeEffect::Remove(name) => {
            remove(&at(name));
            Ok(())
        }
        TreeEffect::Rename(from, to) => fs::rename(at(from), at(to)),
        TreeEffect::Swap(one, other) => fs::rename(at(one), dir.join(".swap"))
            .and_then(|()| fs::rename(at(other), at(one)))
            .and_then(|()| fs::rename(dir.join(".swap"), at(other)))
            .or_else(|_| fs::rename(dir.join(".swap"), at(one))),
        TreeEffect::Mode(name, mode) => {
            if is_file(&at(name)) {
                set_mode(&at(name), mode);
            } else if is_folder(&at(name)) {
                set_mode(&at(name), 0o700 | mode & 0o055);
            }
            Ok(())
        }
        TreeEffect::Symlink(name, target) => symlink(path_from_bytes(target), at(name)),
        TreeEffect::Hardlink(from, to) if is_file(&at(from)) => fs::hard_link(at(from), at(to)),
        TreeEffect::Hardlink(..) => Ok(()),
        TreeEffect::Folder(name) => fs::create_dir_all(at(name)),
        TreeEffect::FileToFolder(name, byte) => {
            remove(&at(name));
            fs::create_dir_all(at(name))
                .and_then(|()| fs::write(at(name).join("inside"), content_bytes(byte)))
        }
        TreeEffect::FolderToFile(name, byte) => {
            remove(&at(name));
            fs::write(at(name), content_bytes(byte))
        }
        TreeEffect::Fifo(name) => {
            nix::unistd::mkfifo(&at(name), nix::sys::stat::Mode::S_IRWXU).map_err(std::io::Error::from)
        }
        TreeEffect::Shell(script) => {
            run_script(dir, script).await;
            Ok(())
        }
        TreeEffect::Git(args) => {
            git_allow_failure(dir, args).await;
            Ok(())
        }
    };
}

/// The work tree and the git folder of a turn as a plain copy, without anything that snapshots never contain
/// (FIFOs, locks, the path of this machine's cache).
#[derive(Debug, Clone, PartialEq)]
struct PlainCopy {
    work: PlainTree,
    git: PlainTree,
}

fn copy_plain(dir: &Path) -> PlainCopy {
    let mut work = read_plain_tree(dir);
    work.retain(|_, (kind, _)| kind != "special");
    let mut git =
        if dir.join(".git").is_dir() { read_plain_tree(&dir.join(".git")) } else { PlainTree::new() };
    git.retain(|name, _| !name.ends_with(b".lock") && name != b"objects/info/alternates");
    PlainCopy { work, git }
}

/// Returns the first path that differs, for a readable message.
fn first_difference(left: &PlainTree, right: &PlainTree) -> Option<String> {
    let name = left.keys().chain(right.keys()).find(|name| left.get(*name) != right.get(*name))?;
    let kind = |plain: &PlainTree| plain.get(name).map(|(kind, bytes)| (kind.clone(), bytes.len()));
    Some(format!("{}: {:?} / {:?}", String::from_utf8_lossy(name), kind(left), kind(right)))
}

#[derive(Debug, Clone)]
struct EffectTurn {
    effects: Vec<TreeEffect>,
    /// The live workspace goes back to this fraction of the turns so far, after the turn.
    back: Option<prop::sample::Index>,
}

fn any_turn() -> impl Strategy<Value = EffectTurn> {
    let back = prop_oneof![5 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)];
    (prop::collection::vec(any_effect(), 1..7), back).prop_map(|(effects, back)| EffectTurn { effects, back })
}

async fn start_workspace(house: &mut WorkspaceFixture) -> (PinnedBase, Workspace) {
    for (name, text) in [("a", "001 one\n"), ("src/a", "001 one\n"), ("src/deep/c", "1\n")] {
        write_file(&house.source_repo(), name, text);
    }
    write_file(&house.source_repo(), path_from_bytes(b"caf\xe9/\xff\xfe"), "1\n");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let workspace = house.materialize_workspace("run", &pinned).await;
    (pinned, workspace)
}

async fn play_turns(turns: Vec<EffectTurn>) -> Result<(), TestCaseError> {
    let mut house = WorkspaceFixture::new();
    let (pinned, mut workspace) = start_workspace(&mut house).await;
    let dir = house.path_to("run");
    let mut recorded = RecordedRun::default();
    let mut history: Vec<(RecordedRun, PlainCopy)> = Vec::new();
    for turn in &turns {
        for effect in &turn.effects {
            apply_effect(&dir, effect).await;
        }
        let delta = workspace.snapshot_walk().unwrap();
        let (after, again) = (copy_plain(&dir), workspace.snapshot_walk().unwrap());
        prop_assert!(again.changes.is_empty() && again.git_changes.is_empty(), "twice the same: {again:?}");
        recorded.apply_delta(delta, &mut house.blobs);
        history.push((recorded.clone(), after));
        if let Some(back) = turn.back {
            let (then, copy) = back.get(&history);
            then.restore_into(&mut workspace, &house.blobs).await.unwrap();
            prop_assert_eq!(first_difference(&copy_plain(&dir).work, &copy.work), None, "gone back");
            recorded = then.clone();
        }
    }
    for (nth, (recorded, copy)) in history.iter().enumerate() {
        let name = format!("fresh-{nth}");
        let mut fresh = house.materialize_workspace(&name, &pinned).await;
        recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
        let there = copy_plain(&house.path_to(&name));
        prop_assert_eq!(first_difference(&there.work, &copy.work), None, "turn {}", nth);
        prop_assert_eq!(first_difference(&there.git, &copy.git), None, "git at turn {}", nth);
        prop_assert_eq!(Some(fresh.tree_hash()), recorded.tree);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn every_turn_of_random_effects_restores_to_its_plain_copy(turns in prop::collection::vec(any_turn(), 1..7)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play_turns(turns))?;
    }
}

/// One name changes in the same clock tick as the previous snapshot, in every possible way.
#[tokio::test]
async fn names_changed_in_the_tick_of_a_snapshot_are_not_missed() {
    let mut house = WorkspaceFixture::new();
    let (_, mut workspace) = start_workspace(&mut house).await;
    let dir = house.path_to("run/src/deep");
    for nth in 0..300 {
        let (one, other) = (dir.join("one"), dir.join("other"));
        match nth % 3 {
            0 => fs::write(&one, "1").unwrap(),
            1 => fs::rename(&one, &other).unwrap(),
            _ => fs::remove_file(&other).unwrap(),
        }
        let changes = workspace.snapshot_walk().unwrap().changes.len();
        assert_eq!(changes, if nth % 3 == 1 { 2 } else { 1 }, "step {nth}");
    }
}

/// Every way to change a file that leaves its size and all but one of its timestamps unchanged.
#[tokio::test]
async fn content_changed_without_its_stamps_is_detected() {
    let mut house = WorkspaceFixture::new();
    let (_, mut workspace) = start_workspace(&mut house).await;
    let dir = house.path_to("run");
    let file = dir.join("a");
    for nth in 0..100_u8 {
        let before = fs::metadata(&file).unwrap();
        if nth % 2 == 0 {
            overwrite(&file, nth).unwrap();
        } else {
            fs::write(dir.join("b"), &content_bytes(nth)[..8]).unwrap();
            fs::rename(dir.join("b"), &file).unwrap();
        }
        fs::File::options()
            .write(true)
            .open(&file)
            .unwrap()
            .set_modified(before.modified().unwrap())
            .unwrap();
        let after = fs::metadata(&file).unwrap();
        assert_eq!(
            (after.len(), after.mtime(), after.mtime_nsec()),
            (before.len(), before.mtime(), before.mtime_nsec())
        );
        let delta = workspace.snapshot_walk().unwrap();
        assert_eq!(delta.changes.len(), 1, "change {nth}");
    }
}

/// An untouched tree is not read again, and an untouched folder is not listed again.
#[tokio::test]
async fn untouched_files_are_not_read_and_untouched_folders_not_listed() {
    let mut house = WorkspaceFixture::new();
    for nth in 0..500 {
        write_file(&house.source_repo(), format!("dir{}/file{nth}", nth % 20), format!("{nth}\n"));
    }
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("run", &pinned).await;
    let dir = house.path_to("run");
    // The first snapshot of a new base reads only files written in the last tick before it.
    let stamps = |at: &Path| fs::metadata(at).map(|meta| (meta.ctime(), meta.ctime_nsec())).unwrap();
    let all: Vec<_> = (0..500).map(|nth| stamps(&dir.join(format!("dir{}/file{nth}", nth % 20)))).collect();
    let last = *all.iter().max().unwrap();
    let tick = Duration::from_millis(10).as_nanos();
    let nanos = |(seconds, nanos): (i64, i64)| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let young =
        all.iter().filter(|stamp| nanos(last) - nanos(**stamp) <= i128::try_from(tick).unwrap()).count();
    let first = workspace.snapshot_walk().unwrap();
    assert!(first.is_empty() && first.files_read <= young + 5, "{} read, {young} young", first.files_read);

    // Repeats until no timestamp of the tree is from the current tick.
    while workspace.snapshot_walk().unwrap().files_read > 0 {}
    write_file(&dir, "dir3/new", "1");
    let delta = workspace.snapshot_walk().unwrap();
    assert_eq!((delta.changes.len(), delta.files_read), (1, 1));

    // A wrong index is trusted while the folder's stamp is unchanged: that is what saves the listing.
    workspace.snapshot_walk().unwrap();
    while workspace.work_area.index.folder(b"dir5").unwrap().listed_stamp.is_none() {
        workspace.snapshot_walk().unwrap();
    }
    workspace.work_area.index.remove_slot(b"dir5", b"file5").unwrap();
    let believed = workspace.snapshot_walk().unwrap().changes.is_empty();
    assert_eq!(believed, workspace.listing_mode == ListingMode::ChangedFolders);
    write_file(&dir, "dir5/other", "1");
    let found: Vec<_> = workspace.snapshot_walk().unwrap().changes.into_iter().map(|c| c.path).collect();
    assert!(found.contains(&path("dir5/other")));
    assert!(!believed || found.contains(&path("dir5/file5")), "{found:?}");
}

/// With timestamps of tick resolution, a folder may change after it was listed and keep its stamp.
#[tokio::test]
async fn stamp_from_the_tick_of_the_scan_is_not_trusted() {
    let mut house = WorkspaceFixture::new();
    let (_, mut workspace) = start_workspace(&mut house).await;
    let believed = |workspace: &Workspace| {
        [&b""[..], b"src", b"src/deep"]
            .map(|folder| workspace.work_area.index.folder(folder).unwrap().listed_stamp.is_some())
    };
    // Scanned with a time before everything was created, and with one long after.
    workspace.scan_scope(WalkScope::WorkTree, (0, 0), None, None).unwrap();
    assert_eq!(believed(&workspace), [false; 3]);
    workspace.scan_scope(WalkScope::WorkTree, (i64::MAX, 0), None, None).unwrap();
    assert_eq!(believed(&workspace), [true; 3]);
}

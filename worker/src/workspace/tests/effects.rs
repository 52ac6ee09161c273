//! Random sequences of all that tools and commands do (files, modes, links, kinds that change, real shells,
//! real git, clocks set back), with a snapshot after each turn; then every turn is restored into a workspace
//! of its own and compared with a plain copy that was made when the turn was fresh.
//!
//! `property` holds that file tools need no walk; here each turn may have been anything, and the living
//! workspace goes back in time in between and on from there.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, symlink},
    path::{Path, PathBuf},
    time::Duration,
};

use proptest::{prelude::*, sample::select, test_runner::TestCaseError};

use super::support::{House, Plain, Recorded, git_anyhow, odd, path, plain, put, set_mode, shell};
use crate::workspace::{
    Pinned, Workspace,
    snapshot::walk::{Listing, Realm},
};

type Name = &'static [u8];

#[derive(Debug, Clone)]
enum Effect {
    /// As file tools do it: beside, then renamed over.
    Create(Name, u8),
    /// In place, without a change of size, as a mapped page would be written.
    Overwrite(Name, u8),
    /// The same with its mtime set back afterwards, as `touch -d` does.
    OverwriteBackdated(Name, u8),
    Append(Name),
    Truncate(Name),
    Remove(Name),
    Rename(Name, Name),
    Swap(Name, Name),
    Mode(Name, u32),
    Symlink(Name, Name),
    Hardlink(Name, Name),
    Folder(Name),
    FileToFolder(Name, u8),
    FolderToFile(Name, u8),
    Fifo(Name),
    Shell(&'static str),
    Git(&'static [&'static str]),
}

/// A name of 255 bytes, the longest that Linux takes.
const LONG: Name = &[b'n'; 255];

/// Few names, so that effects meet; some are no text, some differ by case alone, one is as long as can be.
const NAMES: [Name; 12] = [
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
    LONG,
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

const GITS: [&[&str]; 5] = [
    &["add", "-A", "."],
    &["commit", "-q", "--allow-empty", "-m", "mine"],
    &["stash", "push", "-q", "-u"],
    &["switch", "-q", "-c", "feature/x"],
    &["reset", "-q", "--hard", "HEAD"],
];

fn any_name() -> impl Strategy<Value = Name> {
    select(NAMES.to_vec())
}

fn any_effect() -> impl Strategy<Value = Effect> {
    let modes = select(vec![0o644, 0o755, 0o600, 0o700, 0o711, 0o444]);
    prop_oneof![
        6 => (any_name(), any::<u8>()).prop_map(|(name, byte)| Effect::Create(name, byte)),
        4 => (any_name(), any::<u8>()).prop_map(|(name, byte)| Effect::Overwrite(name, byte)),
        2 => (any_name(), any::<u8>()).prop_map(|(name, byte)| Effect::OverwriteBackdated(name, byte)),
        2 => any_name().prop_map(Effect::Append),
        1 => any_name().prop_map(Effect::Truncate),
        3 => any_name().prop_map(Effect::Remove),
        3 => (any_name(), any_name()).prop_map(|(from, to)| Effect::Rename(from, to)),
        2 => (any_name(), any_name()).prop_map(|(one, other)| Effect::Swap(one, other)),
        2 => (any_name(), modes).prop_map(|(name, mode)| Effect::Mode(name, mode)),
        2 => (any_name(), any_name()).prop_map(|(name, target)| Effect::Symlink(name, target)),
        2 => (any_name(), any_name()).prop_map(|(from, to)| Effect::Hardlink(from, to)),
        2 => any_name().prop_map(Effect::Folder),
        2 => (any_name(), any::<u8>()).prop_map(|(name, byte)| Effect::FileToFolder(name, byte)),
        2 => (any_name(), any::<u8>()).prop_map(|(name, byte)| Effect::FolderToFile(name, byte)),
        1 => any_name().prop_map(Effect::Fifo),
        3 => select(SCRIPTS.to_vec()).prop_map(Effect::Shell),
        2 => select(GITS.to_vec()).prop_map(Effect::Git),
    ]
}

fn bytes_of(byte: u8) -> Vec<u8> {
    format!("{byte:03} one\n").repeat(1 + usize::from(byte) % 3).into_bytes()
}

fn remove(at: &Path) {
    let _nothing = fs::remove_file(at).or_else(|_| fs::remove_dir_all(at));
}

/// Writes over the first bytes of what stands there, in place.
fn overwrite(at: &Path, byte: u8) -> std::io::Result<()> {
    let size = fs::metadata(at)?.len();
    let bytes = bytes_of(byte);
    let cut = bytes.len().min(usize::try_from(size).unwrap());
    fs::File::options().write(true).open(at)?.write_all_at(&bytes[..cut], 0)
}

/// Does it; what the file system refuses is not done, as in a real run.
async fn perform(dir: &Path, effect: &Effect) {
    let at = |name: Name| dir.join(odd(name));
    let is_file = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
    let is_folder = |path: &PathBuf| fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir());
    let leads_out = |name: Name| {
        let mut parent = at(name);
        while parent.pop() && parent != dir {
            if fs::symlink_metadata(&parent).is_ok_and(|meta| meta.is_symlink()) {
                return true;
            }
        }
        false
    };
    let names: &[Name] = match effect {
        Effect::Rename(one, other) | Effect::Swap(one, other) | Effect::Hardlink(one, other) => &[one, other],
        Effect::Create(name, _)
        | Effect::Overwrite(name, _)
        | Effect::OverwriteBackdated(name, _)
        | Effect::Append(name)
        | Effect::Truncate(name)
        | Effect::Remove(name)
        | Effect::Mode(name, _)
        | Effect::Symlink(name, _)
        | Effect::Folder(name)
        | Effect::FileToFolder(name, _)
        | Effect::FolderToFile(name, _)
        | Effect::Fifo(name) => &[name],
        Effect::Shell(_) | Effect::Git(_) => &[],
    };
    if names.iter().any(|name| leads_out(name)) {
        return;
    }
    let _refused = match *effect {
        Effect::Create(name, byte) => fs::create_dir_all(at(name).parent().unwrap())
            .and_then(|()| fs::write(dir.join(".part"), bytes_of(byte)))
            .and_then(|()| fs::rename(dir.join(".part"), at(name)))
            .or_else(|_| fs::remove_file(dir.join(".part"))),
        Effect::Overwrite(name, byte) if is_file(&at(name)) => overwrite(&at(name), byte),
        Effect::OverwriteBackdated(name, byte) if is_file(&at(name)) => {
            let before = fs::metadata(at(name)).and_then(|meta| meta.modified());
            overwrite(&at(name), byte)
                .and_then(|()| fs::File::options().write(true).open(at(name))?.set_modified(before?))
        }
        Effect::Append(name) if is_file(&at(name)) => {
            fs::read(at(name)).and_then(|old| fs::write(at(name), [&old[..], b"+"].concat()))
        }
        Effect::Truncate(name) if is_file(&at(name)) => fs::write(at(name), b""),
        Effect::Overwrite(..) | Effect::OverwriteBackdated(..) | Effect::Append(_) | Effect::Truncate(_) => {
            Ok(())
        }
        Effect::Remove(name) => {
            remove(&at(name));
            Ok(())
        }
        Effect::Rename(from, to) => fs::rename(at(from), at(to)),
        Effect::Swap(one, other) => fs::rename(at(one), dir.join(".swap"))
            .and_then(|()| fs::rename(at(other), at(one)))
            .and_then(|()| fs::rename(dir.join(".swap"), at(other)))
            .or_else(|_| fs::rename(dir.join(".swap"), at(one))),
        Effect::Mode(name, mode) => {
            if is_file(&at(name)) {
                set_mode(&at(name), mode);
            } else if is_folder(&at(name)) {
                set_mode(&at(name), 0o700 | mode & 0o055);
            }
            Ok(())
        }
        Effect::Symlink(name, target) => symlink(odd(target), at(name)),
        Effect::Hardlink(from, to) if is_file(&at(from)) => fs::hard_link(at(from), at(to)),
        Effect::Hardlink(..) => Ok(()),
        Effect::Folder(name) => fs::create_dir_all(at(name)),
        Effect::FileToFolder(name, byte) => {
            remove(&at(name));
            fs::create_dir_all(at(name)).and_then(|()| fs::write(at(name).join("inside"), bytes_of(byte)))
        }
        Effect::FolderToFile(name, byte) => {
            remove(&at(name));
            fs::write(at(name), bytes_of(byte))
        }
        Effect::Fifo(name) => {
            nix::unistd::mkfifo(&at(name), nix::sys::stat::Mode::S_IRWXU).map_err(std::io::Error::from)
        }
        Effect::Shell(script) => {
            shell(dir, script).await;
            Ok(())
        }
        Effect::Git(args) => {
            git_anyhow(dir, args).await;
            Ok(())
        }
    };
}

/// The work tree and the git folder of a turn, as a plain copy has them. What a snapshot never holds (FIFOs,
/// locks, the path of this machine's cache) is no part of it.
#[derive(Debug, Clone, PartialEq)]
struct Copied {
    work: Plain,
    git: Plain,
}

fn copied(dir: &Path) -> Copied {
    let mut work = plain(dir);
    work.retain(|_, (kind, _)| kind != "special");
    let mut git = if dir.join(".git").is_dir() { plain(&dir.join(".git")) } else { Plain::new() };
    git.retain(|name, _| !name.ends_with(b".lock") && name != b"objects/info/alternates");
    Copied { work, git }
}

/// The first path that differs, for a message that can be read.
fn difference(left: &Plain, right: &Plain) -> Option<String> {
    let name = left.keys().chain(right.keys()).find(|name| left.get(*name) != right.get(*name))?;
    let kind = |plain: &Plain| plain.get(name).map(|(kind, bytes)| (kind.clone(), bytes.len()));
    Some(format!("{}: {:?} / {:?}", String::from_utf8_lossy(name), kind(left), kind(right)))
}

#[derive(Debug, Clone)]
struct Turn {
    effects: Vec<Effect>,
    /// The living workspace goes back to this share of the turns so far, after the turn.
    back: Option<prop::sample::Index>,
}

fn any_turn() -> impl Strategy<Value = Turn> {
    let back = prop_oneof![5 => Just(None), 1 => any::<prop::sample::Index>().prop_map(Some)];
    (prop::collection::vec(any_effect(), 1..7), back).prop_map(|(effects, back)| Turn { effects, back })
}

async fn begin(house: &mut House) -> (Pinned, Workspace) {
    for (name, text) in [("a", "001 one\n"), ("src/a", "001 one\n"), ("src/deep/c", "1\n")] {
        put(&house.source(), name, text);
    }
    put(&house.source(), odd(b"caf\xe9/\xff\xfe"), "1\n");
    house.commit_source().await;
    let pinned = house.pin().await;
    let workspace = house.workspace("run", &pinned).await;
    (pinned, workspace)
}

async fn play(turns: Vec<Turn>) -> Result<(), TestCaseError> {
    let mut house = House::new();
    let (pinned, mut workspace) = begin(&mut house).await;
    let dir = house.at("run");
    let mut recorded = Recorded::default();
    let mut history: Vec<(Recorded, Copied)> = Vec::new();
    for turn in &turns {
        for effect in &turn.effects {
            perform(&dir, effect).await;
        }
        let delta = workspace.snapshot_walk().unwrap();
        let (after, again) = (copied(&dir), workspace.snapshot_walk().unwrap());
        prop_assert!(again.changes.is_empty() && again.git_changes.is_empty(), "twice the same: {again:?}");
        recorded.take(delta, &mut house.blobs);
        history.push((recorded.clone(), after));
        if let Some(back) = turn.back {
            let (then, copy) = back.get(&history);
            then.restore_into(&mut workspace, &house.blobs).await.unwrap();
            prop_assert_eq!(difference(&copied(&dir).work, &copy.work), None, "gone back");
            recorded = then.clone();
        }
    }
    for (nth, (recorded, copy)) in history.iter().enumerate() {
        let name = format!("fresh-{nth}");
        let mut fresh = house.workspace(&name, &pinned).await;
        recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
        let there = copied(&house.at(&name));
        prop_assert_eq!(difference(&there.work, &copy.work), None, "turn {}", nth);
        prop_assert_eq!(difference(&there.git, &copy.git), None, "git at turn {}", nth);
        prop_assert_eq!(Some(fresh.tree()), recorded.tree);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_turn_did_it_is_restored_as_a_plain_copy_has_it(turns in prop::collection::vec(any_turn(), 1..7)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(turns))?;
    }
}

/// One name changes in the very tick of the snapshot before it, in every way that a name can.
#[tokio::test]
async fn names_that_come_and_go_in_the_tick_of_a_snapshot_are_not_missed() {
    let mut house = House::new();
    let (_, mut workspace) = begin(&mut house).await;
    let dir = house.at("run/src/deep");
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

/// Every way to change a file that leaves its size, and all but one of its stamps, as they were.
#[tokio::test]
async fn content_that_changes_behind_its_stamps_is_found() {
    let mut house = House::new();
    let (_, mut workspace) = begin(&mut house).await;
    let dir = house.at("run");
    let file = dir.join("a");
    for nth in 0..100_u8 {
        let before = fs::metadata(&file).unwrap();
        if nth % 2 == 0 {
            overwrite(&file, nth).unwrap();
        } else {
            fs::write(dir.join("b"), &bytes_of(nth)[..8]).unwrap();
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

/// A tree that nobody touched is not read again, and a folder that nobody touched is not listed again.
#[tokio::test]
async fn what_nobody_touched_is_neither_read_nor_listed() {
    let mut house = House::new();
    for nth in 0..500 {
        put(&house.source(), format!("dir{}/file{nth}", nth % 20), format!("{nth}\n"));
    }
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut workspace = house.workspace("run", &pinned).await;
    let dir = house.at("run");
    // The first snapshot of a fresh base reads what was written in the last tick before it, and no more.
    let stamps = |at: &Path| fs::metadata(at).map(|meta| (meta.ctime(), meta.ctime_nsec())).unwrap();
    let all: Vec<_> = (0..500).map(|nth| stamps(&dir.join(format!("dir{}/file{nth}", nth % 20)))).collect();
    let last = *all.iter().max().unwrap();
    let tick = Duration::from_millis(10).as_nanos();
    let nanos = |(seconds, nanos): (i64, i64)| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    let young =
        all.iter().filter(|stamp| nanos(last) - nanos(**stamp) <= i128::try_from(tick).unwrap()).count();
    let first = workspace.snapshot_walk().unwrap();
    assert!(first.is_empty() && first.files_read <= young + 5, "{} read, {young} young", first.files_read);

    // Until no stamp of the tree is of the tick in which it is looked at.
    while workspace.snapshot_walk().unwrap().files_read > 0 {}
    put(&dir, "dir3/new", "1");
    let delta = workspace.snapshot_walk().unwrap();
    assert_eq!((delta.changes.len(), delta.files_read), (1, 1));

    // An index that lies is believed while the folder's stamp stands: that is what spares the listing.
    workspace.snapshot_walk().unwrap();
    while workspace.work.index.folder(b"dir5").unwrap().listed.is_none() {
        workspace.snapshot_walk().unwrap();
    }
    workspace.work.index.take(b"dir5", b"file5").unwrap();
    let believed = workspace.snapshot_walk().unwrap().changes.is_empty();
    assert_eq!(believed, workspace.listing == Listing::Touched);
    put(&dir, "dir5/other", "1");
    let found: Vec<_> = workspace.snapshot_walk().unwrap().changes.into_iter().map(|c| c.path).collect();
    assert!(found.contains(&path("dir5/other")));
    assert!(!believed || found.contains(&path("dir5/file5")), "{found:?}");
}

/// Where stamps move by the tick, a folder may change after it was listed and keep its stamp.
#[tokio::test]
async fn a_stamp_of_the_tick_in_which_it_was_looked_at_is_not_believed() {
    let mut house = House::new();
    let (_, mut workspace) = begin(&mut house).await;
    let believed = |workspace: &Workspace| {
        [&b""[..], b"src", b"src/deep"]
            .map(|folder| workspace.work.index.folder(folder).unwrap().listed.is_some())
    };
    // Looked at before anything was made, and looked at long after.
    workspace.pass(Realm::Work, (0, 0), None, None).unwrap();
    assert_eq!(believed(&workspace), [false; 3]);
    workspace.pass(Realm::Work, (i64::MAX, 0), None, None).unwrap();
    assert_eq!(believed(&workspace), [true; 3]);
}

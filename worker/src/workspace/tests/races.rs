//! Folders that become links to the outside, or move, while docket writes, reads and removes below them. The
//! outside is never written, read or emptied; path-based access loses the same races, as the controls show.

use std::{
    fs,
    os::{fd::AsFd as _, unix::fs::symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use nix::{
    dir::Dir,
    fcntl::{AT_FDCWD, OFlag, RenameFlags, renameat2},
    sys::stat::Mode,
    unistd::{UnlinkatFlags, unlinkat},
};

use super::support::{RecordedRun, WorkspaceFixture, write_file};

/// Rounds of docket's own code: each has several hundred chances.
const ROUNDS: usize = 25;

/// Attempts within which a careless writer must have lost.
const TRIES: usize = 200_000;

const SECRET: &[u8] = b"of the outside";

/// Creates the outside folder: a file that could be read by mistake, with names that the workspace also has.
fn make_outside_folder(house: &WorkspaceFixture) -> PathBuf {
    let outside = house.path_to("outside");
    for name in ["a", "in/b", "in/c"] {
        write_file(&outside, name, SECRET);
    }
    outside
}

fn is_unchanged(outside: &Path) -> bool {
    let names = |dir: &Path| {
        let entries = fs::read_dir(dir).into_iter().flatten();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    names(outside) == ["a", "in"]
        && names(&outside.join("in")) == ["b", "c"]
        && ["a", "in/b", "in/c"].iter().all(|name| fs::read(outside.join(name)).is_ok_and(|at| at == SECRET))
}

/// Swaps `folder` with a link to `outside` repeatedly while `work` runs.
fn with_swapped_folder<T>(folder: &Path, swap: &Path, outside: &Path, work: impl FnOnce() -> T) -> T {
    struct EndGuard<'a>(&'a AtomicBool);
    impl Drop for EndGuard<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                if !swap.is_symlink() {
                    let _gone = fs::remove_dir_all(swap);
                    // Fails if a file was put into the folder in the meantime.
                    let _status = symlink(outside, swap);
                }
                for _ in 0..2 {
                    // Fails while docket has neither a folder nor a link there.
                    let _status = renameat2(AT_FDCWD, folder, AT_FDCWD, swap, RenameFlags::RENAME_EXCHANGE);
                    thread::yield_now();
                }
            }
        });
        let _end = EndGuard(&ended);
        work()
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restore_and_snapshot_stay_inside_while_folders_are_swapped() {
    let mut house = WorkspaceFixture::new();
    for name in ["deep/a", "deep/in/b", "deep/in/c"] {
        write_file(&house.source_repo(), name, "recorded\n");
    }
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let outside = make_outside_folder(&house);
    let mut workspace = house.materialize_workspace("run", &pinned).await;
    let (folder, swap) = (house.path_to("run/deep"), house.path_to("swap"));
    let mut recorded = RecordedRun::default();
    for n in 0..40 {
        write_file(&house.path_to("run"), format!("deep/in/new-{n}"), format!("{n}\n"));
    }
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let runtime = tokio::runtime::Handle::current();
    let mut read = Vec::new();
    for _ in 0..ROUNDS {
        let _gone = fs::remove_file(&folder).or_else(|_| fs::remove_dir_all(&folder));
        write_file(&house.path_to("run"), "deep/in/b", "in the way\n");
        write_file(&house.path_to("run"), "deep/extra/x/y", "in the way\n");
        with_swapped_folder(&folder, &swap, &outside, || {
            tokio::task::block_in_place(|| {
                // Success does not matter here: it may report a different tree.
                let _result = runtime.block_on(recorded.restore_into(&mut workspace, &house.blobs));
                for _ in 0..20 {
                    if let Ok(delta) = workspace.snapshot_walk() {
                        read.extend(delta.blobs.into_vec().into_iter().map(|(_, bytes)| bytes));
                    }
                }
            });
        });
        assert!(is_unchanged(&outside), "docket wrote outside");
    }
    assert!(read.iter().all(|bytes| bytes != SECRET), "docket read outside the workspace");
    // Without interference the restore succeeds.
    recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();

    // The controls: path-based access.
    let lost = with_swapped_folder(&folder, &swap, &outside, || {
        (0..TRIES).any(|_| fs::read(folder.join("in/b")).is_ok_and(|bytes| bytes == SECRET))
    });
    assert!(lost, "a careless reader was never led outside");
    let lost = with_swapped_folder(&folder, &swap, &outside, || {
        (0..TRIES).any(|_| {
            let _status = fs::write(folder.join("in/c"), "careless\n");
            !is_unchanged(&outside)
        })
    });
    assert!(lost, "a careless writer was never led outside");
}

/// Moves each folder out of `from` into `to`, under its own name, as soon as its first file is gone, so that
/// `..` of a folder being emptied changes.
fn with_moved_folders(from: &Path, to: &Path, full: usize, work: impl FnOnce()) {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                for n in 0..FOLDERS {
                    let (inside, away) = (from.join(format!("f{n}")), to.join(format!("f{n}")));
                    let count = fs::read_dir(&inside).map_or(full, Iterator::count);
                    if count < full {
                        let _status = fs::rename(inside, away);
                    }
                }
            }
        });
        work();
        ended.store(true, Ordering::Relaxed);
    });
}

const FOLDERS: usize = 6;
const FILES: usize = 120;

/// A folder full of folders, next to one with the outside's name.
fn fill_folder(dir: &Path) {
    for n in 0..FOLDERS {
        fs::create_dir_all(dir.join(format!("f{n}"))).unwrap();
        for file in 0..FILES {
            fs::write(dir.join(format!("f{n}/{file}")), "").unwrap();
        }
    }
    write_file(dir, "outside/x", "inside\n");
}

/// An earlier implementation in [`crate::workspace`], which trusts `..`.
fn careless_removal(folder: &Path) -> nix::Result<()> {
    fn listed(dir: &mut Dir) -> Vec<Vec<u8>> {
        let names = dir.iter().filter_map(|entry| Some(entry.ok()?.file_name().to_bytes().to_vec()));
        names.filter(|name| name != b"." && name != b"..").collect()
    }
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let mut here = Dir::open(folder, flags, Mode::empty())?;
    let mut left = vec![(Vec::new(), listed(&mut here))];
    while let Some((own, children)) = left.last_mut() {
        if let Some(child) = children.pop() {
            if unlinkat(here.as_fd(), &child[..], UnlinkatFlags::NoRemoveDir).is_err() {
                here = Dir::openat(here.as_fd(), &child[..], flags, Mode::empty())?;
                let children = listed(&mut here);
                left.push((child, children));
            }
        } else {
            if own.is_empty() {
                return Ok(());
            }
            here = Dir::openat(here.as_fd(), "..", flags, Mode::empty())?;
            unlinkat(here.as_fd(), &own[..], UnlinkatFlags::RemoveDir)?;
            left.pop();
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folder_moved_during_removal_takes_nothing_else_with_it() {
    let mut house = WorkspaceFixture::new();
    write_file(&house.source_repo(), "kept", "1\n");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("run", &pinned).await;
    let outside = make_outside_folder(&house);
    let away = house.folder.path().to_owned();
    let extra = house.path_to("run/extra");
    let runtime = tokio::runtime::Handle::current();
    let clear = || {
        for n in 0..FOLDERS {
            let _gone = fs::remove_dir_all(away.join(format!("f{n}")));
        }
        let _gone = fs::remove_dir_all(&extra);
    };
    for _ in 0..5 {
        fill_folder(&extra);
        with_moved_folders(&extra, &away, FILES, || {
            tokio::task::block_in_place(|| {
                let _result =
                    runtime.block_on(RecordedRun::default().restore_into(&mut workspace, &house.blobs));
            });
        });
        assert!(is_unchanged(&outside), "docket emptied the outside folder");
        clear();
    }
    let lost = (0..200).any(|_| {
        fill_folder(&extra);
        with_moved_folders(&extra, &away, FILES, || {
            let _status = careless_removal(&extra);
        });
        clear();
        !outside.exists() || !is_unchanged(&outside)
    });
    assert!(lost, "one that trusts `..` was never led outside");
}

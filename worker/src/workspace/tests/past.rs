//! Looking at the past: a checkout that stands on its own, patches between any two trees, who wrote a line.

use std::{fs, os::unix::fs::symlink};

use bytes::Bytes;
use docket_schema::{
    ids::{BlobHash, Seq, Turn},
    run::Phase,
    snapshot::{Base, Entry, EntryKind},
};
use proptest::prelude::*;

use super::support::{House, Recorded, git, git_with, odd, path, plain, put, set_mode};
use crate::workspace::{
    BLAME_BYTES_MAX, BeyondGit, BlameError, CheckedOut, CheckoutError, Contents, LineAuthors, LinesChanged,
    MemoryBlobs, Pinned, RestoreTarget, Touch, Workspace, compare_trees, tree_of,
    tree_view::{blame::blame, checkout::checkout},
};

/// A run that did everything a model may do, in two snapshots.
async fn lived_in() -> (House, Pinned, Workspace, Recorded, Recorded) {
    let mut house = House::new();
    let source = house.source();
    put(&source, ".gitignore", "*.log\n");
    put(&source, "src/a.rs", "one\ntwo\nthree\n");
    put(&source, "gone", "x\n");
    put(&source, "tool", "t\n");
    put(&source, "data", b"\x00\x01");
    put(&source, "was-file", "x\n");
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut workspace = house.workspace("run", &pinned).await;
    let dir = house.at("run");
    let mut first = Recorded::default();
    put(&dir, "src/a.rs", "one\nTWO\nthree\n");
    git(&dir, &["add", "-A"]).await;
    git(&dir, &["commit", "-q", "-m", "the model's own"]).await;
    put(&dir, "src/a.rs", "one\nstashed\nthree\n");
    git(&dir, &["stash", "-q"]).await;
    git(&dir, &["branch", "side"]).await;
    put(&dir, "build.log", "ignored\n");
    put(&dir, "untracked", "u");
    first.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);

    let mut second = first.clone();
    fs::remove_file(dir.join("gone")).unwrap();
    set_mode(&dir.join("tool"), 0o755);
    put(&dir, "data", b"\x00\x02\xff");
    put(&dir, odd(b"caf\xe9"), b"\xff\xfe no utf-8\n");
    fs::remove_file(dir.join("was-file")).unwrap();
    put(&dir, "was-file/inside", "no newline");
    symlink("../nowhere", dir.join("src/link")).unwrap();
    fs::create_dir(dir.join("hollow")).unwrap();
    put(&dir, "secret", "s");
    set_mode(&dir.join("secret"), 0o600);
    put(&dir, "vendor/.git/hooks/pre-commit", "#!/bin/sh\n");
    put(&dir, "vendor/file", "v\n");
    second.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    (house, pinned, workspace, first, second)
}

async fn check_out(
    house: &House,
    name: &str,
    base: &Base,
    recorded: &Recorded,
) -> Result<CheckedOut, CheckoutError> {
    let target = RestoreTarget {
        overlay: &recorded.overlay,
        git_overlay: &recorded.git_overlay,
        left_out: &recorded.left_out,
        tree: recorded.tree.unwrap_or(base.tree),
    };
    checkout(&house.at(name), base, &target, &house.blobs, &house.options()).await
}

#[tokio::test]
async fn a_checkout_is_the_workspace_of_that_turn_and_outlives_the_cache() {
    let (house, pinned, _, first, second) = lived_in().await;
    let dir = house.at("run");
    let mut asked = Vec::new();
    let questions: [&[&str]; 5] = [
        &["log", "--oneline", "--all"],
        &["stash", "list"],
        &["branch"],
        &["status", "-s"],
        &["stash", "show", "-p"],
    ];
    for args in questions {
        asked.push(git(&dir, args).await);
    }
    assert!(asked.iter().all(|answer| !answer.is_empty()), "the controls say something: {asked:?}");

    let made = check_out(&house, "now", &pinned.base, &second).await.unwrap();
    let early = check_out(&house, "early", &pinned.base, &first).await.unwrap();
    assert_eq!((Some(made.tree), Some(early.tree)), (second.tree, first.tree));
    assert_eq!(made.missing.iter().map(|left| left.path.to_string()).collect::<Vec<_>>(), ["build.log"]);
    assert_eq!(made.obeyed_by_git, [path("vendor/.git/hooks/pre-commit")]);
    assert!(early.obeyed_by_git.is_empty(), "{early:?}");

    // From here on, nothing of docket is left on the machine.
    fs::remove_dir_all(house.at("cache")).unwrap();
    fs::remove_dir_all(house.source()).unwrap();
    let mut expected = plain(&dir);
    expected.remove(&b"build.log"[..]);
    assert_eq!(plain(&house.at("now")), expected);
    let there = plain(&house.at("early"));
    assert_eq!(there.get(&b"src/a.rs"[..]).map(|(_, bytes)| &bytes[..]), Some(&b"one\nTWO\nthree\n"[..]));
    assert!(there.contains_key(&b"gone"[..]) && !there.contains_key(&b"hollow"[..]));
    for (args, answer) in questions.iter().zip(&asked) {
        assert_eq!(git(&house.at("now"), args).await, *answer, "git {args:?}");
    }
    for name in ["now", "early"] {
        git(&house.at(name), &["fsck", "--full", "--strict", "--no-dangling"]).await;
        assert!(!house.at(name).join(".git/objects/info/alternates").exists());
    }
    git(&house.at("early"), &["stash", "pop", "-q"]).await;
    assert_eq!(fs::read_to_string(house.at("early").join("src/a.rs")).unwrap(), "one\nstashed\nthree\n");
}

#[tokio::test]
async fn a_checkout_follows_no_link_that_the_run_put_into_its_git_folder() {
    let (mut house, pinned, mut workspace, _, mut recorded) = lived_in().await;
    let (dir, trap) = (house.at("run"), house.at("trap"));
    fs::create_dir(&trap).unwrap();
    fs::remove_dir_all(dir.join(".git/objects/pack")).unwrap();
    symlink(&trap, dir.join(".git/objects/pack")).unwrap();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    check_out(&house, "now", &pinned.base, &recorded).await.unwrap();
    assert_eq!(fs::read_dir(&trap).unwrap().count(), 0, "nothing went through the link");
    git(&house.at("now"), &["log", "--oneline"]).await;

    fs::remove_dir_all(dir.join(".git")).unwrap();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    check_out(&house, "bare", &pinned.base, &recorded).await.unwrap();
    assert!(!house.at("bare").join(".git").exists(), "a git folder that the run removed stays removed");
}

#[tokio::test]
async fn a_content_that_is_lost_makes_no_checkout() {
    let (mut house, pinned, _, _, second) = lived_in().await;
    house.blobs = MemoryBlobs::default();
    assert!(matches!(check_out(&house, "now", &pinned.base, &second).await, Err(CheckoutError::Base(_))));
}

#[tokio::test]
async fn a_patch_from_one_turn_to_another_makes_the_one_tree_of_the_other() {
    let (house, pinned, workspace, first, second) = lived_in().await;
    let base = workspace.base_objects();
    let turns = [Recorded::default(), first, second];
    let trees = turns.each_ref().map(|recorded| tree_of(base.manifest(), &recorded.overlay));
    let scratch = house.at("scratch");
    for (from, to) in [(0, 1), (0, 2), (1, 2), (2, 1), (2, 0), (1, 0), (1, 1)] {
        let diff = compare_trees(base, &trees[from], &trees[to], &house.blobs, &scratch).await.unwrap();
        let patch = diff.patch().await.unwrap();
        assert_eq!(patch.is_empty(), from == to);
        let name = format!("from-{from}-to-{to}");
        check_out(&house, &name, &pinned.base, &turns[from]).await.unwrap();
        let dir = house.at(&name);
        if from != to {
            git_with(&dir, &["apply", "-"], &patch).await;
        }
        let mut there = plain(&dir);
        check_out(&house, &format!("{name}-expected"), &pinned.base, &turns[to]).await.unwrap();
        let mut expected = plain(&house.at(&format!("{name}-expected")));
        // What git cannot carry is what was said, and nothing else.
        for (beyond, _) in diff.beyond_git() {
            for tree in [&mut there, &mut expected] {
                tree.remove(beyond.as_bytes());
            }
        }
        // The folders that hold a nested git folder go with it.
        for tree in [&mut there, &mut expected] {
            tree.retain(|path, _| path != b"vendor" && !path.starts_with(b"vendor/.git"));
        }
        assert_eq!(there, expected, "{from} to {to}");
        let beyond: Vec<_> = diff.beyond_git().iter().map(|(path, why)| (path.to_string(), *why)).collect();
        if (from, to) == (1, 2) {
            let expected = [
                ("hollow", BeyondGit::Folder),
                ("secret", BeyondGit::Mode),
                ("vendor/.git/hooks/pre-commit", BeyondGit::NestedGit),
            ];
            assert_eq!(beyond, expected.map(|(path, why)| (path.to_owned(), why)));
            let lines = diff.lines().await.unwrap();
            let of = |name: &[u8]| lines.iter().find(|(p, _)| p.as_bytes() == name).map(|(_, lines)| *lines);
            assert_eq!(of(b"gone"), Some(Some(LinesChanged { added: 0, removed: 1 })));
            assert_eq!(of(b"caf\xe9"), Some(Some(LinesChanged { added: 1, removed: 0 })));
            assert_eq!(of(b"data"), Some(None), "binary");
            assert_eq!(of(b"hollow"), None, "git does not see it");
            assert_eq!(of(b"src/a.rs"), None, "it did not change");
        }
    }
}

#[tokio::test]
async fn a_run_without_a_repository_has_patches_too() {
    let mut house = House::new();
    let source = crate::workspace::Source::Empty;
    let pinned = crate::workspace::pin(&source, &house.pin_options(), &mut house.blobs).await.unwrap();
    let mut workspace = house.workspace("run", &pinned).await;
    put(&house.at("run"), "a/b", "new\n");
    let mut recorded = Recorded::default();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let base = workspace.base_objects();
    let now = tree_of(base.manifest(), &recorded.overlay);
    let diff = compare_trees(base, base.manifest(), &now, &house.blobs, &house.at("scratch")).await.unwrap();
    let patch = String::from_utf8(diff.patch().await.unwrap()).unwrap();
    assert!(patch.contains("+++ b/a/b\n@@ -0,0 +1 @@\n+new\n"), "{patch}");
    check_out(&house, "now", &pinned.base, &recorded).await.unwrap();
    assert_eq!(plain(&house.at("now")), plain(&house.at("run")));
}

fn touch(turn: u32, entry: Option<Entry>) -> Touch {
    Touch {
        run: None,
        seq: Seq(1),
        turn: Turn(turn),
        phase: Phase::Editing,
        causes: Vec::new(),
        said: String::new(),
        entry,
    }
}

/// Puts a content into the store and gives its entry.
async fn file(house: &mut House, content: &[u8]) -> Entry {
    use crate::workspace::BlobSink as _;
    let blob = docket_schema::content::BlobRef::of(content);
    house.blobs.put(blob, content.to_vec()).await.unwrap();
    Entry { kind: EntryKind::File, mode: 0o644, size: blob.bytes, hash: blob.hash }
}

#[tokio::test]
async fn a_line_is_of_who_wrote_it_last() {
    let (mut house, _, workspace, ..) = lived_in().await;
    let base_objects = workspace.base_objects();
    let base = base_objects.manifest().entries[&path("src/a.rs")];
    let edited = file(&mut house, b"one\nTWO\nthree\nfour\n").await;
    let executable = Entry { mode: 0o755, ..edited };
    let link = Entry { kind: EntryKind::Symlink, mode: 0, size: 3, hash: BlobHash::of(b"one") };
    let binary = file(&mut house, b"one\n\0").await;
    let huge = Entry { size: BLAME_BYTES_MAX + 1, ..edited };
    let no_utf8 = file(&mut house, b"one\ncaf\xe9\r\n").await;
    let contents = Contents::new(base_objects, &house.blobs);
    let who = async |entries: &[Option<Entry>]| {
        let touches: Vec<Touch> = entries.iter().zip(1..).map(|(entry, turn)| touch(turn, *entry)).collect();
        let lines = blame(Some(base), &touches, &contents).await?;
        Ok::<_, BlameError>(lines.into_iter().map(|line| line.touch.map(|at| at + 1)).collect::<Vec<_>>())
    };
    assert_eq!(who(&[]).await.unwrap(), [None, None, None]);
    assert_eq!(who(&[Some(edited)]).await.unwrap(), [None, Some(1), None, Some(1)]);
    assert_eq!(who(&[Some(edited), Some(executable)]).await.unwrap(), [None, Some(1), None, Some(1)]);
    assert_eq!(who(&[Some(edited), Some(base)]).await.unwrap(), [None, Some(2), None]);
    assert_eq!(who(&[Some(no_utf8)]).await.unwrap(), [None, Some(1)]);
    // Gone, or something that has no lines, and back again: written anew, though it is the same.
    for gap in [None, Some(link), Some(huge)] {
        assert_eq!(who(&[gap, Some(base)]).await.unwrap(), [Some(2); 3], "{gap:?}");
    }
    assert!(matches!(who(&[None]).await, Err(BlameError::NotThere)));
    assert!(matches!(who(&[Some(link)]).await, Err(BlameError::NoFile("symbolic link"))));
    assert!(matches!(who(&[Some(binary)]).await, Err(BlameError::Binary)));
    assert!(matches!(who(&[Some(huge)]).await, Err(BlameError::TooLarge { .. })));
    assert_eq!(who(&[Some(binary), Some(base)]).await.unwrap(), [None, Some(2), Some(2)]);
}

#[derive(Debug, Clone)]
enum Change {
    /// New lines at a place.
    Insert { at: prop::sample::Index, count: usize },
    /// Lines from a place on are gone.
    Delete { at: prop::sample::Index, count: usize },
    /// The file is gone.
    Remove,
}

fn any_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => (any::<prop::sample::Index>(), 1..6usize).prop_map(|(at, count)| Change::Insert { at, count }),
        3 => (any::<prop::sample::Index>(), 1..4usize).prop_map(|(at, count)| Change::Delete { at, count }),
        1 => Just(Change::Remove),
    ]
}

proptest! {
    /// Each line bears its author's number and is unlike any other, so who wrote it is known without a
    /// search: the oracle is the text itself.
    #[test]
    fn every_line_is_attributed_to_the_turn_that_wrote_it(
        turns in prop::collection::vec(prop::collection::vec(any_change(), 1..5), 1..25),
    ) {
        let mut lines: Vec<String> = Vec::new();
        let mut authors = LineAuthors::new();
        let mut made = 0;
        for (turn, changes) in turns.iter().enumerate() {
            let mut there = true;
            for change in changes {
                match change {
                    Change::Insert { at, count } => {
                        let at = at.index(lines.len() + 1);
                        let new = (0..*count).map(|nth| format!("{turn} wrote {}\n", made + nth));
                        lines.splice(at..at, new.collect::<Vec<_>>());
                        made += count;
                        there = true;
                    }
                    Change::Delete { at, count } if !lines.is_empty() => {
                        let at = at.index(lines.len());
                        lines.drain(at..(at + count).min(lines.len()));
                    }
                    Change::Delete { .. } => {}
                    Change::Remove => {
                        lines.clear();
                        there = false;
                    }
                }
            }
            let content = Bytes::from(lines.concat());
            authors.version(there.then_some(&content), &turn);
            let found = authors.clone().into_lines();
            prop_assert_eq!(found.len(), lines.len());
            for ((text, author), line) in found.iter().zip(&lines) {
                prop_assert_eq!(&text[..], line.as_bytes());
                let known: usize = line.split(' ').next().unwrap().parse().unwrap();
                prop_assert_eq!(*author, known, "{}", line);
            }
        }
    }

    /// Of lines that are alike nobody can say who wrote which; but none may be lost, and each must be of a
    /// turn that did write such a line.
    #[test]
    fn lines_that_are_alike_are_of_somebody_who_wrote_such_a_line(
        versions in prop::collection::vec(prop::collection::vec(0..4u8, 0..20), 1..12),
    ) {
        let text = |version: &[u8]| version.iter().map(|kind| format!("{kind}\n")).collect::<String>();
        let mut authors = LineAuthors::new();
        for (turn, version) in versions.iter().enumerate() {
            authors.version(Some(&Bytes::from(text(version))), &turn);
        }
        let found = authors.into_lines();
        let last = versions.last().unwrap();
        prop_assert_eq!(found.iter().map(|(line, _)| &line[..]).collect::<Vec<_>>().concat(), text(last).into_bytes());
        for ((_, author), kind) in found.iter().zip(last) {
            prop_assert!(versions[*author].contains(kind));
            // It was there ever since.
            prop_assert!(versions[*author..].iter().all(|version| version.contains(kind)));
        }
    }
}

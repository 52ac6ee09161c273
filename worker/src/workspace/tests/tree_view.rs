//! Views of earlier states: a standalone checkout, patches between any two trees, line authors.

use std::{fs, os::unix::fs::symlink};

use bytes::Bytes;
use docket_schema::{
    ids::{BlobHash, Seq, Turn},
    run::RunPhase,
    snapshot::{Entry, EntryKind, WorkspaceBase},
};
use proptest::prelude::*;

use super::support::{
    RecordedRun, WorkspaceFixture, git, git_with_stdin, path, path_from_bytes, read_plain_tree, set_mode,
    write_file,
};
use crate::workspace::{
    BLAME_BYTES_MAX, BlameError, CheckoutError, CheckoutReport, ContentReader, LineAuthors, LineCounts,
    MemoryBlobs, PatchOmission, PathChangeEvent, PinnedBase, RestoreTarget, Workspace, compare_trees,
    tree_view::{blame::blame, checkout::checkout},
    tree_with_overlay,
};

/// A run that did everything a model may do, in two snapshots.
async fn run_with_two_snapshots() -> (WorkspaceFixture, PinnedBase, Workspace, RecordedRun, RecordedRun) {
    let mut house = WorkspaceFixture::new();
    let source = house.source_repo();
    write_file(&source, ".gitignore", "*.log\n");
    write_file(&source, "src/a.rs", "one\ntwo\nthree\n");
    write_file(&source, "gone", "x\n");
    write_file(&source, "tool", "t\n");
    write_file(&source, "data", b"\x00\x01");
    write_file(&source, "was-file", "x\n");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("run", &pinned).await;
    let dir = house.path_to("run");
    let mut first = RecordedRun::default();
    write_file(&dir, "src/a.rs", "one\nTWO\nthree\n");
    git(&dir, &["add", "-A"]).await;
    git(&dir, &["commit", "-q", "-m", "the model's own"]).await;
    write_file(&dir, "src/a.rs", "one\nstashed\nthree\n");
    git(&dir, &["stash", "-q"]).await;
    git(&dir, &["branch", "side"]).await;
    write_file(&dir, "build.log", "ignored\n");
    write_file(&dir, "untracked", "u");
    first.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);

    let mut second = first.clone();
    fs::remove_file(dir.join("gone")).unwrap();
    set_mode(&dir.join("tool"), 0o755);
    write_file(&dir, "data", b"\x00\x02\xff");
    write_file(&dir, path_from_bytes(b"caf\xe9"), b"\xff\xfe no utf-8\n");
    fs::remove_file(dir.join("was-file")).unwrap();
    write_file(&dir, "was-file/inside", "no newline");
    symlink("../nowhere", dir.join("src/link")).unwrap();
    fs::create_dir(dir.join("hollow")).unwrap();
    write_file(&dir, "secret", "s");
    set_mode(&dir.join("secret"), 0o600);
    write_file(&dir, "vendor/.git/hooks/pre-commit", "#!/bin/sh\n");
    write_file(&dir, "vendor/file", "v\n");
    second.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    (house, pinned, workspace, first, second)
}

async fn checkout_recorded(
    house: &WorkspaceFixture,
    name: &str,
    base: &WorkspaceBase,
    recorded: &RecordedRun,
) -> Result<CheckoutReport, CheckoutError> {
    let target = RestoreTarget {
        overlay: &recorded.overlay,
        git_overlay: &recorded.git_overlay,
        left_out: &recorded.left_out,
        tree: recorded.tree.unwrap_or(base.tree),
    };
    checkout(&house.path_to(name), base, &target, &house.blobs, &house.workspace_options()).await
}

#[tokio::test]
async fn checkout_matches_the_turn_and_outlives_the_cache() {
    let (house, pinned, _, first, second) = run_with_two_snapshots().await;
    let dir = house.path_to("run");
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

    let made = checkout_recorded(&house, "now", &pinned.base, &second).await.unwrap();
    let early = checkout_recorded(&house, "early", &pinned.base, &first).await.unwrap();
    assert_eq!((Some(made.tree), Some(early.tree)), (second.tree, first.tree));
    assert_eq!(made.missing.iter().map(|left| left.path.to_string()).collect::<Vec<_>>(), ["build.log"]);
    assert_eq!(made.obeyed_by_git, [path("vendor/.git/hooks/pre-commit")]);
    assert!(early.obeyed_by_git.is_empty(), "{early:?}");

    // From here on, nothing of docket is left on the machine.
    fs::remove_dir_all(house.path_to("cache")).unwrap();
    fs::remove_dir_all(house.source_repo()).unwrap();
    let mut expected = read_plain_tree(&dir);
    expected.remove(&b"build.log"[..]);
    assert_eq!(read_plain_tree(&house.path_to("now")), expected);
    let there = read_plain_tree(&house.path_to("early"));
    assert_eq!(there.get(&b"src/a.rs"[..]).map(|(_, bytes)| &bytes[..]), Some(&b"one\nTWO\nthree\n"[..]));
    assert!(there.contains_key(&b"gone"[..]) && !there.contains_key(&b"hollow"[..]));
    for (args, answer) in questions.iter().zip(&asked) {
        assert_eq!(git(&house.path_to("now"), args).await, *answer, "git {args:?}");
    }
    for name in ["now", "early"] {
        git(&house.path_to(name), &["fsck", "--full", "--strict", "--no-dangling"]).await;
        assert!(!house.path_to(name).join(".git/objects/info/alternates").exists());
    }
    git(&house.path_to("early"), &["stash", "pop", "-q"]).await;
    assert_eq!(fs::read_to_string(house.path_to("early").join("src/a.rs")).unwrap(), "one\nstashed\nthree\n");
}

#[tokio::test]
async fn checkout_follows_no_link_in_the_git_folder() {
    let (mut house, pinned, mut workspace, _, mut recorded) = run_with_two_snapshots().await;
    let (dir, trap) = (house.path_to("run"), house.path_to("trap"));
    fs::create_dir(&trap).unwrap();
    fs::remove_dir_all(dir.join(".git/objects/pack")).unwrap();
    symlink(&trap, dir.join(".git/objects/pack")).unwrap();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    checkout_recorded(&house, "now", &pinned.base, &recorded).await.unwrap();
    assert_eq!(fs::read_dir(&trap).unwrap().count(), 0, "nothing went through the link");
    git(&house.path_to("now"), &["log", "--oneline"]).await;

    fs::remove_dir_all(dir.join(".git")).unwrap();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    checkout_recorded(&house, "bare", &pinned.base, &recorded).await.unwrap();
    assert!(!house.path_to("bare").join(".git").exists(), "a git folder that the run removed stays removed");
}

#[tokio::test]
async fn checkout_fails_if_content_is_missing() {
    let (mut house, pinned, _, _, second) = run_with_two_snapshots().await;
    house.blobs = MemoryBlobs::default();
    assert!(matches!(
        checkout_recorded(&house, "now", &pinned.base, &second).await,
        Err(CheckoutError::Base(_))
    ));
}

#[tokio::test]
async fn patch_between_turns_reproduces_the_later_tree() {
    let (house, pinned, workspace, first, second) = run_with_two_snapshots().await;
    let base = workspace.base_objects();
    let turns = [RecordedRun::default(), first, second];
    let trees = turns.each_ref().map(|recorded| tree_with_overlay(base.manifest(), &recorded.overlay));
    let scratch = house.path_to("scratch");
    for (from, to) in [(0, 1), (0, 2), (1, 2), (2, 1), (2, 0), (1, 0), (1, 1)] {
        let diff = compare_trees(base, &trees[from], &trees[to], &house.blobs, &scratch).await.unwrap();
        let patch = diff.to_patch().await.unwrap();
        assert_eq!(patch.is_empty(), from == to);
        let name = format!("from-{from}-to-{to}");
        checkout_recorded(&house, &name, &pinned.base, &turns[from]).await.unwrap();
        let dir = house.path_to(&name);
        if from != to {
            git_with_stdin(&dir, &["apply", "-"], &patch).await;
        }
        let mut there = read_plain_tree(&dir);
        checkout_recorded(&house, &format!("{name}-expected"), &pinned.base, &turns[to]).await.unwrap();
        let mut expected = read_plain_tree(&house.path_to(&format!("{name}-expected")));
        // Exactly the paths that git cannot represent are reported.
        for (beyond, _) in diff.patch_omissions() {
            for tree in [&mut there, &mut expected] {
                tree.remove(beyond.as_bytes());
            }
        }
        // The parent folders of a nested git folder disappear with it.
        for tree in [&mut there, &mut expected] {
            tree.retain(|path, _| path != b"vendor" && !path.starts_with(b"vendor/.git"));
        }
        assert_eq!(there, expected, "{from} to {to}");
        let beyond: Vec<_> =
            diff.patch_omissions().iter().map(|(path, why)| (path.to_string(), *why)).collect();
        if (from, to) == (1, 2) {
            let expected = [
                ("hollow", PatchOmission::Folder),
                ("secret", PatchOmission::Mode),
                ("vendor/.git/hooks/pre-commit", PatchOmission::NestedGit),
            ];
            assert_eq!(beyond, expected.map(|(path, why)| (path.to_owned(), why)));
            let lines = diff.count_lines().await.unwrap();
            let of = |name: &[u8]| lines.iter().find(|(p, _)| p.as_bytes() == name).map(|(_, lines)| *lines);
            assert_eq!(of(b"gone"), Some(Some(LineCounts { added: 0, removed: 1 })));
            assert_eq!(of(b"caf\xe9"), Some(Some(LineCounts { added: 1, removed: 0 })));
            assert_eq!(of(b"data"), Some(None), "binary");
            assert_eq!(of(b"hollow"), None, "git does not see it");
            assert_eq!(of(b"src/a.rs"), None, "it did not change");
        }
    }
}

#[tokio::test]
async fn run_without_a_repository_can_produce_patches() {
    let mut house = WorkspaceFixture::new();
    let source = crate::workspace::BaseSource::Empty;
    let pinned = crate::workspace::pin_base(&source, &house.pin_options(), &mut house.blobs).await.unwrap();
    let mut workspace = house.materialize_workspace("run", &pinned).await;
    write_file(&house.path_to("run"), "a/b", "new\n");
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let base = workspace.base_objects();
    let now = tree_with_overlay(base.manifest(), &recorded.overlay);
    let diff =
        compare_trees(base, base.manifest(), &now, &house.blobs, &house.path_to("scratch")).await.unwrap();
    let patch = String::from_utf8(diff.to_patch().await.unwrap()).unwrap();
    assert!(patch.contains("+++ b/a/b\n@@ -0,0 +1 @@\n+new\n"), "{patch}");
    checkout_recorded(&house, "now", &pinned.base, &recorded).await.unwrap();
    assert_eq!(read_plain_tree(&house.path_to("now")), read_plain_tree(&house.path_to("run")));
}

fn path_change(turn: u32, entry: Option<Entry>) -> PathChangeEvent {
    PathChangeEvent {
        run: None,
        seq: Seq(1),
        turn: Turn(turn),
        phase: RunPhase::Editing,
        causes: Vec::new(),
        model_text: String::new(),
        entry,
    }
}

/// Stores a content and returns its entry.
async fn store_file(house: &mut WorkspaceFixture, content: &[u8]) -> Entry {
    use crate::workspace::BlobSink as _;
    let blob = docket_schema::content::BlobRef::for_bytes(content);
    house.blobs.put(blob, content.to_vec()).await.unwrap();
    Entry { kind: EntryKind::File, mode: 0o644, size: blob.bytes, hash: blob.hash }
}

#[tokio::test]
async fn line_is_attributed_to_its_last_writer() {
    let (mut house, _, workspace, ..) = run_with_two_snapshots().await;
    let base_objects = workspace.base_objects();
    let base = base_objects.manifest().entries[&path("src/a.rs")];
    let edited = store_file(&mut house, b"one\nTWO\nthree\nfour\n").await;
    let executable = Entry { mode: 0o755, ..edited };
    let link = Entry { kind: EntryKind::Symlink, mode: 0, size: 3, hash: BlobHash::hash_bytes(b"one") };
    let binary = store_file(&mut house, b"one\n\0").await;
    let huge = Entry { size: BLAME_BYTES_MAX + 1, ..edited };
    let no_utf8 = store_file(&mut house, b"one\ncaf\xe9\r\n").await;
    let contents = ContentReader::new(base_objects, &house.blobs);
    let who = async |entries: &[Option<Entry>]| {
        let touches: Vec<PathChangeEvent> =
            entries.iter().zip(1..).map(|(entry, turn)| path_change(turn, *entry)).collect();
        let lines = blame(Some(base), &touches, &contents).await?;
        Ok::<_, BlameError>(
            lines.into_iter().map(|line| line.change_index.map(|at| at + 1)).collect::<Vec<_>>(),
        )
    };
    assert_eq!(who(&[]).await.unwrap(), [None, None, None]);
    assert_eq!(who(&[Some(edited)]).await.unwrap(), [None, Some(1), None, Some(1)]);
    assert_eq!(who(&[Some(edited), Some(executable)]).await.unwrap(), [None, Some(1), None, Some(1)]);
    assert_eq!(who(&[Some(edited), Some(base)]).await.unwrap(), [None, Some(2), None]);
    assert_eq!(who(&[Some(no_utf8)]).await.unwrap(), [None, Some(1)]);
    // Removed or replaced by something without lines, then restored: all lines are new, although the content
    // is the same.
    for gap in [None, Some(link), Some(huge)] {
        assert_eq!(who(&[gap, Some(base)]).await.unwrap(), [Some(2); 3], "{gap:?}");
    }
    assert!(matches!(who(&[None]).await, Err(BlameError::NotFound)));
    assert!(matches!(who(&[Some(link)]).await, Err(BlameError::NotAFile("symbolic link"))));
    assert!(matches!(who(&[Some(binary)]).await, Err(BlameError::Binary)));
    assert!(matches!(who(&[Some(huge)]).await, Err(BlameError::TooLarge { .. })));
    assert_eq!(who(&[Some(binary), Some(base)]).await.unwrap(), [None, Some(2), Some(2)]);
}

#[derive(Debug, Clone)]
enum VersionChange {
    /// New lines at a position.
    Insert { at: prop::sample::Index, count: usize },
    /// Lines removed from a position on.
    Delete { at: prop::sample::Index, count: usize },
    /// The file is removed.
    Remove,
}

fn any_change() -> impl Strategy<Value = VersionChange> {
    prop_oneof![
        4 => (any::<prop::sample::Index>(), 1..6usize).prop_map(|(at, count)| VersionChange::Insert { at, count }),
        3 => (any::<prop::sample::Index>(), 1..4usize).prop_map(|(at, count)| VersionChange::Delete { at, count }),
        1 => Just(VersionChange::Remove),
    ]
}

proptest! {
    /// Each line contains its author's number and is unique, so its author is known without a search: the
    /// oracle is the text itself.
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
                    VersionChange::Insert { at, count } => {
                        let at = at.index(lines.len() + 1);
                        let new = (0..*count).map(|nth| format!("{turn} wrote {}\n", made + nth));
                        lines.splice(at..at, new.collect::<Vec<_>>());
                        made += count;
                        there = true;
                    }
                    VersionChange::Delete { at, count } if !lines.is_empty() => {
                        let at = at.index(lines.len());
                        lines.drain(at..(at + count).min(lines.len()));
                    }
                    VersionChange::Delete { .. } => {}
                    VersionChange::Remove => {
                        lines.clear();
                        there = false;
                    }
                }
            }
            let content = Bytes::from(lines.concat());
            authors.add_version(there.then_some(&content), &turn);
            let found = authors.clone().into_lines();
            prop_assert_eq!(found.len(), lines.len());
            for ((text, author), line) in found.iter().zip(&lines) {
                prop_assert_eq!(&text[..], line.as_bytes());
                let known: usize = line.split(' ').next().unwrap().parse().unwrap();
                prop_assert_eq!(*author, known, "{}", line);
            }
        }
    }

    /// The author of identical lines is ambiguous; but no line may be lost, and each must be attributed to a
    /// turn that wrote such a line.
    #[test]
    fn identical_lines_are_attributed_to_a_turn_that_wrote_one(
        versions in prop::collection::vec(prop::collection::vec(0..4u8, 0..20), 1..12),
    ) {
        let text = |version: &[u8]| version.iter().map(|kind| format!("{kind}\n")).collect::<String>();
        let mut authors = LineAuthors::new();
        for (turn, version) in versions.iter().enumerate() {
            authors.add_version(Some(&Bytes::from(text(version))), &turn);
        }
        let found = authors.into_lines();
        let last = versions.last().unwrap();
        prop_assert_eq!(found.iter().map(|(line, _)| &line[..]).collect::<Vec<_>>().concat(), text(last).into_bytes());
        for ((_, author), kind) in found.iter().zip(last) {
            prop_assert!(versions[*author].contains(kind));
            // It was present ever since.
            prop_assert!(versions[*author..].iter().all(|version| version.contains(kind)));
        }
    }
}

//! Changes that a command was not allowed to make are reverted: the rest of the tree is as before, allowed
//! changes are kept, and the snapshot reports exactly that.

use std::path::Path;

use super::support::{
    PlainTree, RecordedRun, WorkspaceFixture, path_from_bytes, read_plain_tree, run_script, set_mode,
    write_file,
};
use crate::workspace::{RevertOutcome, revert_disallowed_changes};

const SCRIPTS: [&str; 16] = [
    "true",
    "echo 2 > a.py; echo 2 > tests/a.py",
    "rm -rf src tests",
    "rm tests/a.py; echo new > tests/new.py; echo new > src/new.py",
    "mkdir -p far/down empty tests/empty tests/far/down; echo 1 > far/down/b.py; echo 1 > tests/far/down/b.py",
    "chmod 755 a.py tests/a.py; chmod 700 src tests",
    "rm a.py; mkdir -p a.py/tests; echo 1 > a.py/tests/b.py",
    "rm -rf tests; echo flat > tests",
    "mv src tests/src; mv tests/a.py a.py",
    "ln -s tests/a.py link; rm a.py; ln -s nowhere a.py; ln -s ../a.py tests/link",
    "rm -rf hollow; mkdir -p hollow/tests; echo 1 > hollow/tests/b.py",
    "mkfifo pipe; rm a.py; mkfifo a.py; echo 1 > tests/b.py",
    "echo x > out/made; echo y > out2; rm .gitignore",
    "echo x > src-1; echo x > src.py; echo x > srcs; rm src/b.py",
    "git add -A; git -c user.name=t -c user.email=t@example.org commit -qm x --allow-empty; echo 3 > a.py",
    "rm -rf .git a.py; touch -d 2001-01-01 tests/a.py",
];

fn is_in_tests_folder(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|part| part == b"tests")
}

/// Files and links; folders follow from them.
fn plain_files(dir: &Path) -> PlainTree {
    let mut all = read_plain_tree(dir);
    all.retain(|path, (kind, _)| !kind.starts_with("dir") && !path.starts_with(b"out/") && kind != "special");
    all
}

#[tokio::test]
async fn disallowed_changes_are_reverted_and_the_rest_is_kept() {
    let mut house = WorkspaceFixture::new();
    let source = house.source_repo();
    for (name, text) in [
        ("a.py", "1\n"),
        ("src/b.py", "1\n"),
        ("src/deep/c.py", "1\n"),
        ("tests/a.py", "1\n"),
        (".gitignore", "out/\n"),
        ("src.md", "1\n"),
    ] {
        write_file(&source, name, text);
    }
    write_file(&source, path_from_bytes(b"caf\xe9/\xff"), "odd\n");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    for (nth, script) in SCRIPTS.into_iter().enumerate() {
        for anything in [false, true] {
            let name = format!("work-{nth}-{anything}");
            let mut workspace = house.materialize_workspace(&name, &pinned).await;
            let mut recorded = RecordedRun::default();
            let mut blobs = house.blobs.clone();
            // A path that the base does not have: its content comes from the log.
            run_script(&house.path_to(&name), "echo own > own.py; mkdir -p hollow out; echo made > out/log")
                .await;
            recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut blobs);
            let before = plain_files(&house.path_to(&name));
            run_script(&house.path_to(&name), &format!("echo gone > own.py; {script}")).await;
            let changed = plain_files(&house.path_to(&name));
            let may = |path: &docket_schema::content::WorkspacePath| {
                !anything && is_in_tests_folder(path.as_bytes())
            };
            let RevertOutcome { delta, reverted_paths: paths } =
                revert_disallowed_changes(&mut workspace, may, &blobs).await.expect(script);
            assert!(paths.iter().any(|path| path.to_string() == "own.py"), "{script}: {paths:?}");
            // An empty folder has no entry of its own once something remains in it.
            let filled = |at: &[u8]| {
                delta.changes.iter().any(|change| change.path.as_bytes().starts_with(&[at, b"/"].concat()))
            };
            let stays =
                delta.changes.iter().all(|change| may(&change.path) || filled(change.path.as_bytes()));
            assert!(stays, "{script}: {:?}", delta.changes);
            recorded.apply_delta(delta, &mut blobs);
            let after = plain_files(&house.path_to(&name));
            for path in before.keys().chain(changed.keys()).chain(after.keys()) {
                let own = !anything && is_in_tests_folder(path);
                let in_the_way =
                    own && before.keys().any(|file| path.starts_with(&[file.as_slice(), b"/"].concat()));
                let wanted = if own && !in_the_way { changed.get(path) } else { before.get(path) };
                // A file in place of a folder is in the way of the folder's contents.
                let wanted = if before.keys().any(|file| file.starts_with(&[path.as_slice(), b"/"].concat()))
                    && !own
                {
                    None
                } else {
                    wanted
                };
                let name = String::from_utf8_lossy(path);
                assert_eq!(after.get(path), wanted, "{script}: {name}");
            }
            // The record matches the disk: another walk finds nothing, and a restore elsewhere gives the same
            // tree.
            assert!(workspace.snapshot_walk().unwrap().changes.is_empty(), "{script}");
            let copy = format!("copy-{nth}-{anything}");
            let mut elsewhere = house.materialize_workspace(&copy, &pinned).await;
            recorded.restore_into(&mut elsewhere, &blobs).await.expect(script);
            assert_eq!(plain_files(&house.path_to(&copy)), after, "{script}");
            set_mode(&house.path_to(&name), 0o755);
        }
    }
}

#[tokio::test]
async fn paths_no_snapshot_captured_are_not_reverted_as_new() {
    let mut house = WorkspaceFixture::new();
    let source = house.source_repo();
    write_file(&source, "a.py", "1\n");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("work", &pinned).await;
    run_script(&house.path_to("work"), "mkfifo pipe; mkdir deep; mkfifo deep/pipe").await;
    workspace.snapshot_walk().unwrap();
    let script = "rm pipe deep/pipe; echo mine > pipe; mkdir deep/pipe; echo mine > deep/pipe/b; echo 2 > a.py; echo 2 > new";
    run_script(&house.path_to("work"), script).await;
    let RevertOutcome { delta, reverted_paths: paths } =
        revert_disallowed_changes(&mut workspace, |_| false, &house.blobs).await.unwrap();
    let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
    assert_eq!(paths, ["a.py", "new"]);
    let now = |name: &str| std::fs::read_to_string(house.path_to("work").join(name)).unwrap();
    assert_eq!(
        (now("pipe"), now("deep/pipe/b"), now("a.py")),
        ("mine\n".into(), "mine\n".into(), "1\n".into())
    );
    assert!(!house.path_to("work").join("new").exists());
    let there: Vec<String> = delta
        .changes
        .iter()
        .filter(|change| change.entry.is_some())
        .map(|change| change.path.to_string())
        .collect();
    assert_eq!(there, ["deep/pipe/b", "pipe"], "they are recorded");
    assert!(workspace.snapshot_walk().unwrap().changes.is_empty());
}

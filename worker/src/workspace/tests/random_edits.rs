//! Random sequences of file changes by tools and commands, against an oracle of plain copies: every turn can
//! be restored, into a new folder and into the live one.

use std::{fs, os::unix::fs::symlink, path::Path};

use proptest::{prelude::*, test_runner::TestCaseError};

use super::support::{PlainTree, RecordedRun, WorkspaceFixture, path, read_plain_tree, set_mode, write_file};

#[derive(Debug, Clone)]
enum FileEffect {
    Write(String, u8),
    Append(String),
    Remove(String),
    Rename(String, String),
    Mode(String, u32),
    Link(String, String),
    Folder(String),
    Touch(String),
}

fn any_path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "x.log", "é"]), 1..4)
        .prop_map(|parts| parts.join("/"))
}

fn any_effect() -> impl Strategy<Value = FileEffect> {
    prop_oneof![
        4 => (any_path(), any::<u8>()).prop_map(|(path, byte)| FileEffect::Write(path, byte)),
        1 => any_path().prop_map(FileEffect::Append),
        3 => any_path().prop_map(FileEffect::Remove),
        2 => (any_path(), any_path()).prop_map(|(from, to)| FileEffect::Rename(from, to)),
        2 => (any_path(), prop::sample::select(vec![0o644, 0o755, 0o600, 0o700])).prop_map(|(p, m)| FileEffect::Mode(p, m)),
        1 => (any_path(), any_path()).prop_map(|(at, to)| FileEffect::Link(at, to)),
        1 => any_path().prop_map(FileEffect::Folder),
        1 => any_path().prop_map(FileEffect::Touch),
    ]
}

/// Applies the effect as a shell would; an effect that the file system refuses is skipped.
fn apply_effect(dir: &Path, effect: &FileEffect) {
    let at = |name: &str| dir.join(name);
    // An effect through a link would leave the folder or hit another name: tools refuse that, and so does
    // this test.
    let leads_through_link = |name: &str| {
        let mut parent = at(name);
        while parent.pop() && parent != dir {
            if fs::symlink_metadata(&parent).is_ok_and(|meta| meta.is_symlink()) {
                return true;
            }
        }
        false
    };
    let is_link = |name: &str| fs::symlink_metadata(at(name)).is_ok_and(|meta| meta.is_symlink());
    let _refused = match effect {
        FileEffect::Write(name, _)
        | FileEffect::Append(name)
        | FileEffect::Mode(name, _)
        | FileEffect::Touch(name)
            if leads_through_link(name) || is_link(name) =>
        {
            return;
        }
        FileEffect::Remove(name) | FileEffect::Link(name, _) | FileEffect::Folder(name)
            if leads_through_link(name) =>
        {
            return;
        }
        FileEffect::Rename(from, to) if leads_through_link(from) || leads_through_link(to) => return,
        FileEffect::Write(name, byte) => fs::create_dir_all(at(name).parent().unwrap())
            .and_then(|()| fs::write(at(name), vec![*byte; usize::from(*byte) * 40])),
        FileEffect::Append(name) => {
            fs::read(at(name)).and_then(|old| fs::write(at(name), [&old[..], b"+"].concat()))
        }
        FileEffect::Remove(name) => fs::remove_file(at(name)).or_else(|_| fs::remove_dir_all(at(name))),
        FileEffect::Rename(from, to) => fs::rename(at(from), at(to)),
        FileEffect::Mode(name, mode) if at(name).is_dir() || at(name).is_file() => {
            set_mode(&at(name), *mode);
            Ok(())
        }
        FileEffect::Mode(..) => Ok(()),
        FileEffect::Link(name, target) => symlink(target, at(name)),
        FileEffect::Folder(name) => fs::create_dir_all(at(name)),
        FileEffect::Touch(name) => fs::read(at(name)).and_then(|old| fs::write(at(name), old)),
    };
}

fn effect_paths(effect: &FileEffect) -> Vec<&String> {
    match effect {
        FileEffect::Rename(from, to) => vec![from, to],
        FileEffect::Write(name, _)
        | FileEffect::Append(name)
        | FileEffect::Remove(name)
        | FileEffect::Mode(name, _)
        | FileEffect::Link(name, _)
        | FileEffect::Folder(name)
        | FileEffect::Touch(name) => vec![name],
    }
}

#[derive(Debug)]
struct RandomTurn {
    recorded: RecordedRun,
    plain: PlainTree,
}

async fn play_turns(turns: Vec<Vec<FileEffect>>, has_rules: bool) -> Result<(), TestCaseError> {
    let mut house = WorkspaceFixture::new();
    write_file(&house.source_repo(), "a/a", "base\n");
    write_file(&house.source_repo(), "b", "base\n");
    write_file(&house.source_repo(), "c/x.log", "tracked though ignored\n");
    if has_rules {
        write_file(&house.source_repo(), ".gitignore", "*.log\n");
    }
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("run", &pinned).await;
    let dir = house.path_to("run");
    let mut recorded = RecordedRun::default();
    let mut history = Vec::new();
    for (nth, effects) in turns.iter().enumerate() {
        for effect in effects {
            apply_effect(&dir, effect);
        }
        // Every other turn uses file tools, which name their paths; both must see the same.
        let delta = if nth % 2 == 0 {
            workspace.snapshot_walk().unwrap()
        } else {
            let paths: Vec<_> =
                effects.iter().flat_map(effect_paths).map(|name| path(name.as_bytes())).collect();
            workspace.snapshot_paths(&paths).unwrap()
        };
        prop_assert_eq!(delta.tree, workspace.manifest().tree_hash(), "incremental = rebuilt");
        recorded.apply_delta(delta, &mut house.blobs);
        prop_assert!(workspace.snapshot_walk().unwrap().changes.is_empty(), "nothing was missed");
        history.push(RandomTurn { recorded: recorded.clone(), plain: read_plain_tree(&dir) });
    }
    let mut other = house.materialize_workspace("other", &pinned).await;
    for turn in history.iter().rev().chain(&history) {
        turn.recorded.restore_into(&mut other, &house.blobs).await.unwrap();
        let restored = read_plain_tree(&house.path_to("other"));
        if has_rules {
            // Ignored paths are missing; nothing else may be missing or added.
            for (name, what) in &turn.plain {
                let ignored = name.split(|b| *b == b'/').any(|part| part.ends_with(b".log"));
                prop_assert!(
                    ignored || restored.get(name) == Some(what),
                    "{}",
                    String::from_utf8_lossy(name)
                );
            }
            prop_assert!(restored.iter().all(|(name, what)| turn.plain.get(name) == Some(what)));
        } else {
            prop_assert_eq!(&restored, &turn.plain);
        }
    }
    // The live folder goes back to the first turn, although it is dirty.
    if let Some(first) = history.first() {
        first.recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
        prop_assert_eq!(Some(workspace.tree_hash()), first.recorded.tree);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_turn_restores_to_its_plain_copy(
        turns in prop::collection::vec(prop::collection::vec(any_effect(), 1..8), 1..8),
        has_rules in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play_turns(turns, has_rules))?;
    }
}

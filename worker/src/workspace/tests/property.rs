//! Random sequences of what tools and commands do to files, against an oracle made with plain copies: every
//! turn is restorable, into a fresh folder and into the living one.

use std::{fs, os::unix::fs::symlink, path::Path};

use proptest::{prelude::*, test_runner::TestCaseError};

use super::support::{House, Plain, Recorded, path, plain, put, set_mode};

#[derive(Debug, Clone)]
enum Effect {
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

fn any_effect() -> impl Strategy<Value = Effect> {
    prop_oneof![
        4 => (any_path(), any::<u8>()).prop_map(|(path, byte)| Effect::Write(path, byte)),
        1 => any_path().prop_map(Effect::Append),
        3 => any_path().prop_map(Effect::Remove),
        2 => (any_path(), any_path()).prop_map(|(from, to)| Effect::Rename(from, to)),
        2 => (any_path(), prop::sample::select(vec![0o644, 0o755, 0o600, 0o700])).prop_map(|(p, m)| Effect::Mode(p, m)),
        1 => (any_path(), any_path()).prop_map(|(at, to)| Effect::Link(at, to)),
        1 => any_path().prop_map(Effect::Folder),
        1 => any_path().prop_map(Effect::Touch),
    ]
}

/// Does it as a shell would; what the file system refuses is not done.
fn perform(dir: &Path, effect: &Effect) {
    let at = |name: &str| dir.join(name);
    // An effect through a link would leave the folder or hit another name: tools refuse that, so do we.
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
        Effect::Write(name, _) | Effect::Append(name) | Effect::Mode(name, _) | Effect::Touch(name)
            if leads_through_link(name) || is_link(name) =>
        {
            return;
        }
        Effect::Remove(name) | Effect::Link(name, _) | Effect::Folder(name) if leads_through_link(name) => {
            return;
        }
        Effect::Rename(from, to) if leads_through_link(from) || leads_through_link(to) => return,
        Effect::Write(name, byte) => fs::create_dir_all(at(name).parent().unwrap())
            .and_then(|()| fs::write(at(name), vec![*byte; usize::from(*byte) * 40])),
        Effect::Append(name) => {
            fs::read(at(name)).and_then(|old| fs::write(at(name), [&old[..], b"+"].concat()))
        }
        Effect::Remove(name) => fs::remove_file(at(name)).or_else(|_| fs::remove_dir_all(at(name))),
        Effect::Rename(from, to) => fs::rename(at(from), at(to)),
        Effect::Mode(name, mode) if at(name).is_dir() || at(name).is_file() => {
            set_mode(&at(name), *mode);
            Ok(())
        }
        Effect::Mode(..) => Ok(()),
        Effect::Link(name, target) => symlink(target, at(name)),
        Effect::Folder(name) => fs::create_dir_all(at(name)),
        Effect::Touch(name) => fs::read(at(name)).and_then(|old| fs::write(at(name), old)),
    };
}

fn paths_of(effect: &Effect) -> Vec<&String> {
    match effect {
        Effect::Rename(from, to) => vec![from, to],
        Effect::Write(name, _)
        | Effect::Append(name)
        | Effect::Remove(name)
        | Effect::Mode(name, _)
        | Effect::Link(name, _)
        | Effect::Folder(name)
        | Effect::Touch(name) => vec![name],
    }
}

#[derive(Debug)]
struct Turn {
    recorded: Recorded,
    plain: Plain,
}

async fn play(turns: Vec<Vec<Effect>>, has_rules: bool) -> Result<(), TestCaseError> {
    let mut house = House::new();
    put(&house.source(), "a/a", "base\n");
    put(&house.source(), "b", "base\n");
    put(&house.source(), "c/x.log", "tracked though ignored\n");
    if has_rules {
        put(&house.source(), ".gitignore", "*.log\n");
    }
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut workspace = house.workspace("run", &pinned).await;
    let dir = house.at("run");
    let mut recorded = Recorded::default();
    let mut history = Vec::new();
    for (nth, effects) in turns.iter().enumerate() {
        for effect in effects {
            perform(&dir, effect);
        }
        // Every other turn is one of file tools, which name their paths; both must see the same.
        let delta = if nth % 2 == 0 {
            workspace.snapshot_walk().unwrap()
        } else {
            let paths: Vec<_> = effects.iter().flat_map(paths_of).map(|name| path(name.as_bytes())).collect();
            workspace.snapshot_paths(&paths).unwrap()
        };
        prop_assert_eq!(delta.tree, workspace.manifest().tree_hash(), "kept current = made anew");
        recorded.take(delta, &mut house.blobs);
        prop_assert!(workspace.snapshot_walk().unwrap().changes.is_empty(), "nothing was missed");
        history.push(Turn { recorded: recorded.clone(), plain: plain(&dir) });
    }
    let mut other = house.workspace("other", &pinned).await;
    for turn in history.iter().rev().chain(&history) {
        turn.recorded.restore_into(&mut other, &house.blobs).await.unwrap();
        let restored = plain(&house.at("other"));
        if has_rules {
            // What was ignored is not there; nothing else may be missing, and nothing may be more.
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
    // The living folder goes back to the first turn, dirty as it is.
    if let Some(first) = history.first() {
        first.recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
        prop_assert_eq!(Some(workspace.tree()), first.recorded.tree);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn every_turn_is_restored_as_plain_copies_have_it(
        turns in prop::collection::vec(prop::collection::vec(any_effect(), 1..8), 1..8),
        has_rules in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(play(turns, has_rules))?;
    }
}

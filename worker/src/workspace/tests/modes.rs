//! Modes that no snapshot and no restore brings onto a disk.

use std::{fs, os::unix::fs::PermissionsExt as _};

use docket_schema::snapshot::{Entry, EntryKind, Manifest, PathChange};

use super::support::{House, Recorded, path, put, set_mode};
use crate::workspace::{MaterializeError, RestoreError, cached_base};

#[tokio::test]
async fn set_id_bits_are_neither_recorded_nor_kept_by_a_restore() {
    let mut house = House::new();
    put(&house.source(), "tool", "t\n");
    put(&house.source(), "dir/x", "x\n");
    house.commit_source().await;
    let pinned = house.pin().await;
    let mut workspace = house.workspace("run", &pinned).await;
    let dir = house.at("run");
    put(&dir, "new", "n\n");
    for (name, mode) in [("tool", 0o6755), ("new", 0o4711), ("dir", 0o3777)] {
        set_mode(&dir.join(name), mode);
    }
    let mut recorded = Recorded::default();
    recorded.take(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let mode = |name: &str| recorded.overlay.get(&path(name)).copied().flatten().map(|entry| entry.mode);
    assert_eq!((mode("new"), mode("dir")), (Some(0o711), Some(0o777)));
    assert_eq!(mode("tool"), Some(0o755));

    recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    let mut fresh = house.workspace("fresh", &pinned).await;
    recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    for place in ["run", "fresh"] {
        for (name, wanted) in [("tool", 0o755), ("new", 0o711), ("dir", 0o777)] {
            let found = fs::metadata(house.at(place).join(name)).unwrap().permissions().mode() & 0o7777;
            assert_eq!(found, wanted, "{place}/{name} has {found:o}");
        }
    }
}

/// The list of a base is bytes that somebody else made, and so may be the list of changes.
#[tokio::test]
async fn list_with_set_id_bits_makes_no_such_file() {
    let mut house = House::new();
    put(&house.source(), "tool", "t\n");
    house.commit_source().await;
    let pinned = house.pin().await;
    let cached = cached_base(&pinned.base, &house.blobs, &house.at("cache")).await.unwrap();
    let entry = cached.manifest().entries[&path("tool")];
    let evil = Entry { mode: 0o6755, ..entry };
    assert_eq!(entry.kind, EntryKind::File);

    let mut manifest = Manifest::default();
    manifest.apply([&PathChange { path: path("tool"), entry: Some(evil) }]);
    let (encoded, mut base) = (manifest.encode(), pinned.base.clone());
    base.manifest = docket_schema::content::BlobRef::of(&encoded);
    base.tree = manifest.tree_hash();
    crate::workspace::BlobSink::put(&mut house.blobs, base.manifest, encoded).await.unwrap();
    let refused = cached_base(&base, &house.blobs, &house.at("cache")).await;
    assert!(matches!(refused, Err(MaterializeError::Manifest(_))));

    let mut workspace = house.workspace("run", &pinned).await;
    let overlay = [(path("tool"), Some(evil))].into();
    let recorded = Recorded { overlay, tree: Some(manifest.tree_hash()), ..Recorded::default() };
    let refused = recorded.restore_into(&mut workspace, &house.blobs).await;
    assert!(matches!(refused, Err(RestoreError::OtherTree { .. })));
    let found = fs::metadata(house.at("run/tool")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(found, 0o755, "{found:o}");
}

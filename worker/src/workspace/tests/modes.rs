//! Modes that neither snapshots nor restores write to disk.

use std::{fs, os::unix::fs::PermissionsExt as _};

use docket_schema::snapshot::{Entry, EntryKind, Manifest, PathChange};

use super::support::{RecordedRun, WorkspaceFixture, path, set_mode, write_file};
use crate::workspace::{MaterializeError, RestoreError, ensure_cached_base};

#[tokio::test]
async fn set_id_bits_are_not_recorded_and_are_cleared_by_restore() {
    let mut house = WorkspaceFixture::new();
    write_file(&house.source_repo(), "tool", "t\n");
    write_file(&house.source_repo(), "dir/x", "x\n");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let mut workspace = house.materialize_workspace("run", &pinned).await;
    let dir = house.path_to("run");
    write_file(&dir, "new", "n\n");
    for (name, mode) in [("tool", 0o6755), ("new", 0o4711), ("dir", 0o3777)] {
        set_mode(&dir.join(name), mode);
    }
    let mut recorded = RecordedRun::default();
    recorded.apply_delta(workspace.snapshot_walk().unwrap(), &mut house.blobs);
    let mode = |name: &str| recorded.overlay.get(&path(name)).copied().flatten().map(|entry| entry.mode);
    assert_eq!((mode("new"), mode("dir")), (Some(0o711), Some(0o777)));
    assert_eq!(mode("tool"), Some(0o755));

    recorded.restore_into(&mut workspace, &house.blobs).await.unwrap();
    let mut fresh = house.materialize_workspace("fresh", &pinned).await;
    recorded.restore_into(&mut fresh, &house.blobs).await.unwrap();
    for place in ["run", "fresh"] {
        for (name, wanted) in [("tool", 0o755), ("new", 0o711), ("dir", 0o777)] {
            let found = fs::metadata(house.path_to(place).join(name)).unwrap().permissions().mode() & 0o7777;
            assert_eq!(found, wanted, "{place}/{name} has {found:o}");
        }
    }
}

/// The manifest of a base is untrusted data, and so is the list of changes.
#[tokio::test]
async fn set_id_bits_in_a_manifest_are_not_written() {
    let mut house = WorkspaceFixture::new();
    write_file(&house.source_repo(), "tool", "t\n");
    house.commit_source().await;
    let pinned = house.pin_source().await;
    let cached = ensure_cached_base(&pinned.base, &house.blobs, &house.path_to("cache")).await.unwrap();
    let entry = cached.manifest().entries[&path("tool")];
    let evil = Entry { mode: 0o6755, ..entry };
    assert_eq!(entry.kind, EntryKind::File);

    let mut manifest = Manifest::default();
    manifest.apply_changes([&PathChange { path: path("tool"), entry: Some(evil) }]);
    let (encoded, mut base) = (manifest.encode(), pinned.base.clone());
    base.manifest = docket_schema::content::BlobRef::for_bytes(&encoded);
    base.tree = manifest.tree_hash();
    crate::workspace::BlobSink::put(&mut house.blobs, base.manifest, encoded).await.unwrap();
    let refused = ensure_cached_base(&base, &house.blobs, &house.path_to("cache")).await;
    assert!(matches!(refused, Err(MaterializeError::Manifest(_))));

    let mut workspace = house.materialize_workspace("run", &pinned).await;
    let overlay = [(path("tool"), Some(evil))].into();
    let recorded = RecordedRun { overlay, tree: Some(manifest.tree_hash()), ..RecordedRun::default() };
    let refused = recorded.restore_into(&mut workspace, &house.blobs).await;
    assert!(matches!(refused, Err(RestoreError::TreeMismatch { .. })));
    let found = fs::metadata(house.path_to("run/tool")).unwrap().permissions().mode() & 0o7777;
    assert_eq!(found, 0o755, "{found:o}");
}

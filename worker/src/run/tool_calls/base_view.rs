//! What stood before a run, for the calls of the runtime that ask for it: no tool reaches the base or the log. Called by
//! the workbench before a batch; looks at nothing where no open call asks.

use docket_schema::{run::RunState, snapshot::EntryKind};

use crate::{
    tools::{self, BaseEntry, BaseView},
    workspace::{BlobReader, Workspace},
};

/// Paths that are compared: who changed more generated them.
const PATHS_COMPARED_MAX: usize = 300;

/// As [`BaseView`]. What cannot be read is told as such, and keeps nobody from working.
pub(in crate::run) async fn load_base_view<S: BlobReader>(
    workspace: &Workspace,
    state: &RunState,
    blobs: &S,
) -> BaseView {
    let mut view = BaseView::default();
    let is_open =
        |name: &str| state.open_tools.iter().any(|(open, tool)| tool.call.is_runtime() && open.tool == name);
    if is_open(tools::SHOW_CHANGES) {
        let is_folder = |kind: Option<EntryKind>| kind.is_some_and(|kind| matches!(kind, EntryKind::Dir));
        let changed = state.overlay.iter().filter(|(_, entry)| !is_folder(entry.map(|entry| entry.kind)));
        for (nth, (path, _)) in changed.enumerate() {
            if nth >= PATHS_COMPARED_MAX {
                view.omitted_count = view.omitted_count.saturating_add(1);
                continue;
            }
            let entry = workspace.base_manifest().entries.get(path);
            let is_executable = entry.is_some_and(|entry| entry.mode & 0o111 != 0);
            let was = match entry.map(|entry| entry.kind) {
                None | Some(EntryKind::Dir) => BaseEntry::Absent,
                Some(EntryKind::Symlink) => BaseEntry::Opaque,
                Some(EntryKind::File) => match workspace.base_objects().read_file(path).await {
                    Ok(Some(bytes)) => BaseEntry::File(bytes, is_executable),
                    Ok(None) => BaseEntry::Absent,
                    Err(_) => BaseEntry::Opaque,
                },
            };
            view.base_entries.insert(path.clone(), was);
        }
    }
    if is_open(tools::SURVEY) {
        let recent = state.pins.as_ref().and_then(|pins| pins.base.git.as_ref()?.recent);
        if let Some(blob) = recent {
            view.recent_commits =
                blobs.get(&blob).await.ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    view
}

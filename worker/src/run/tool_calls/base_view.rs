//! Loads base content for runtime tools that need it, because tools can reach neither the base nor the log. The tool
//! executor calls this before a batch; it reads nothing unless an open call asks for it.

use docket_schema::{run::RunState, snapshot::EntryKind};

use crate::{
    tools::{self, BaseEntry, BaseView},
    workspace::{BlobReader, Workspace},
};

/// Paths that are compared: a run that changed more has generated them.
const PATHS_COMPARED_MAX: usize = 300;

/// Loads the [`BaseView`]. Content that cannot be read is reported as such and does not stop the work.
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

//! What stood before a run, for the calls of the runtime that ask for it: no tool reaches the base or the log. Called by
//! the workbench before a batch; looks at nothing where no open call asks.

use docket_schema::{run::RunState, snapshot::EntryKind};

use crate::{
    tools::{self, BaseView, Was},
    workspace::{Blobs, Workspace},
};

/// Paths that are compared: who changed more generated them.
const PATHS_MAX: usize = 300;

/// As [`BaseView`]. What cannot be read is told as such, and keeps nobody from working.
pub(in crate::run) async fn at_hand<S: Blobs>(
    workspace: &Workspace,
    state: &RunState,
    blobs: &S,
) -> BaseView {
    let mut view = BaseView::default();
    let is_open =
        |name: &str| state.open_tools.iter().any(|(open, tool)| tool.call.is_own() && open.tool == name);
    if is_open(tools::SHOW_CHANGES) {
        let is_folder = |kind: Option<EntryKind>| kind.is_some_and(|kind| matches!(kind, EntryKind::Dir));
        let changed = state.overlay.iter().filter(|(_, entry)| !is_folder(entry.map(|entry| entry.kind)));
        for (nth, (path, _)) in changed.enumerate() {
            if nth >= PATHS_MAX {
                view.more = view.more.saturating_add(1);
                continue;
            }
            let entry = workspace.base_manifest().entries.get(path);
            let is_executable = entry.is_some_and(|entry| entry.mode & 0o111 != 0);
            let was = match entry.map(|entry| entry.kind) {
                None | Some(EntryKind::Dir) => Was::Nothing,
                Some(EntryKind::Symlink) => Was::Opaque,
                Some(EntryKind::File) => match workspace.base_objects().file(path).await {
                    Ok(Some(bytes)) => Was::File(bytes, is_executable),
                    Ok(None) => Was::Nothing,
                    Err(_) => Was::Opaque,
                },
            };
            view.before.insert(path.clone(), was);
        }
    }
    if is_open(tools::SURVEY) {
        let recent = state.pins.as_ref().and_then(|pins| pins.base.git.as_ref()?.recent);
        if let Some(blob) = recent {
            view.recent =
                blobs.get(&blob).await.ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    view
}

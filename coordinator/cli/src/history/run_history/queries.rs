//! Queries of the history service, implemented with the same code as the history commands.

use crate::history::file_view;
use crate::history::run_export;
use std::{ffi::OsStr, io::Seek as _};

use bytes::Bytes;
use docket_coordinator::{
    history_cache::CachedRun,
    history_provider::{ContentAccess, ExportedRun},
};
use docket_schema::{
    api::{
        ChangeView, DiffQuery, DiffView, ExportFormat, FILE_VIEW_BYTES_MAX, FileView, FilesQuery, LedgerFile,
        LedgerLine, LedgerView, TurnResponse,
    },
    event::TypedEvent as _,
    history::NoSuchTurn,
    ids::{RunId, Turn},
    message::MessagePart,
    run::{RunEvent, RunLedger, RunState},
    snapshot::Manifest,
};
use docket_worker::workspace::{
    ContentReader, PathState, diff_manifests, path_state_at, similar_paths, tree_with_overlay,
};

use super::RunHistoryService;
use crate::{
    history::{
        blobs::{FallbackBlobs, RemoteBlobs},
        recorded_output::read_recorded_output,
        recorded_run::parse_tree_path,
        turns::{TurnReader, to_change_view},
    },
    output::error::{CliError, CliResult, ExitKind, FailWith as _},
};

/// Limit of all diffs in one reply; further files are listed without a diff.
const DIFFS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Maximum number of similar paths suggested for a missing path.
const NEAREST_MAX: usize = 3;

impl RunHistoryService {
    pub(super) async fn query_turn(
        &self,
        run: &CachedRun,
        turn: Option<u32>,
        eyes: ContentAccess,
    ) -> CliResult<TurnResponse> {
        let (turn, state) = state_after(run, turn)?;
        let ledger = to_ledger_view(&state.ledger);
        let base = match run.folded.state().pins {
            Some(_) => Some(self.load_base(run).await?),
            None => None,
        };
        let with_diffs = eyes == ContentAccess::Exact;
        let reader = TurnReader { client: self.client()?, base: base.as_deref(), with_diffs };
        let mut turns = Box::pin(reader.read_turns(run.run, run.folded.history(), &(turn..=turn))).await?;
        let mut turn =
            turns.pop().ok_or_else(|| CliError::new(ExitKind::NotFound, format!("no turn {turn}")))?;
        drop_excess_diffs(&mut turn.changes);
        let thinking = collect_thinking(run, Turn(turn.turn));
        let diffs_withheld = eyes == ContentAccess::Redacted && !turn.changes.is_empty();
        Ok(TurnResponse { turn, ledger, thinking, diffs_withheld })
    }

    pub(super) async fn query_files(&self, run: &CachedRun, query: FilesQuery) -> CliResult<FileView> {
        let path = parse_tree_path(OsStr::new(query.path.as_deref().unwrap_or(".")))?;
        let (turn, tree) = self.tree_after(run, query.turn).await?;
        let standing = match (path_state_at(&tree, path.as_ref()), &path) {
            (Some(standing), _) => standing,
            (None, None) => PathState::Folder { mode: 0o755, children: Vec::new() },
            (None, Some(path)) => {
                let near = similar_paths(&tree, path, NEAREST_MAX);
                let near: Vec<String> = near.iter().map(|path| format!("`{path}`")).collect();
                let perhaps = if near.is_empty() {
                    String::new()
                } else {
                    format!("; did you mean {}?", near.join(" or "))
                };
                let message = format!("`{path}` does not exist after turn {turn}{perhaps}");
                return Err(CliError::new(ExitKind::NotFound, message));
            }
        };
        let base = self.load_base(run).await?;
        let content = match &standing {
            PathState::File(entry) | PathState::Link(entry) if entry.size <= FILE_VIEW_BYTES_MAX => {
                let blobs = RemoteBlobs(self.client()?);
                let read = ContentReader::new(&base, &blobs).read_entry(entry).await;
                Some(read.fail_with(ExitKind::Failed, || "cannot read the recorded content".to_owned())?)
            }
            PathState::File(_) | PathState::Link(_) | PathState::Folder { .. } => None,
        };
        Ok(file_view::build_file_view(run.run, turn, path.as_ref(), &standing, content.as_deref()))
    }

    pub(super) async fn query_diff(
        &self,
        run: &CachedRun,
        with: Option<&CachedRun>,
        query: DiffQuery,
    ) -> CliResult<DiffView> {
        let newer = with.unwrap_or(run);
        let (old_base, new_base) = (self.load_base(run).await?, self.load_base(newer).await?);
        let (from, old) = match (query.from, with) {
            (None, None) => (None, old_base.manifest().clone()),
            (turn, _) => {
                let (turn, tree) = self.tree_after(run, turn).await?;
                (Some(turn.0), tree)
            }
        };
        let (to, new) = self.tree_after(newer, query.to).await?;
        let remote = RemoteBlobs(self.client()?);
        let blobs = FallbackBlobs(ContentReader::new(&new_base, &remote));
        let contents = ContentReader::new(&old_base, &blobs);
        let files = Box::pin(diff_manifests(&old, &new, &contents))
            .await
            .fail_with(ExitKind::Failed, || "cannot read the recorded contents".to_owned())?;
        let mut changes: Vec<ChangeView> = files.into_iter().map(|file| to_change_view(file, None)).collect();
        drop_excess_diffs(&mut changes);
        Ok(DiffView { run: run.run, from, with: newer.run, to: to.0, changes })
    }

    pub(super) async fn query_output(&self, run: &CachedRun, call: &str) -> CliResult<Bytes> {
        let (_, bytes) = read_recorded_output(self.client()?, run.run, &run.folded, call).await?;
        Ok(bytes.into())
    }

    pub(super) async fn query_export(&self, run: RunId, form: ExportFormat) -> CliResult<ExportedRun> {
        let (media, ending) = match form {
            ExportFormat::Docket => ("application/zstd", "docket"),
            ExportFormat::Jsonl => ("application/x-ndjson", "jsonl"),
            ExportFormat::Atif => ("application/json", "atif.json"),
            ExportFormat::Otlp => ("application/json", "otlp.json"),
        };
        // It is unlinked: nothing remains of it, even if the caller goes away.
        let mut file = tempfile::tempfile_in(&self.scratch).fail_as(ExitKind::Failed)?;
        run_export::export_run(self.client()?, run, form, &mut file).await?;
        let bytes = file.stream_position().fail_as(ExitKind::Failed)?;
        file.rewind().fail_as(ExitKind::Failed)?;
        Ok(ExportedRun { media_type: media, name: format!("docket-{}.{ending}", run.short()), file, bytes })
    }

    /// Returns the files after a turn, or after the newest.
    async fn tree_after(&self, run: &CachedRun, turn: Option<u32>) -> CliResult<(Turn, Manifest)> {
        let (turn, state) = state_after(run, turn)?;
        let base = self.load_base(run).await?;
        Ok((turn, tree_with_overlay(base.manifest(), &state.overlay)))
    }
}

/// Returns the run's state after a turn, or after the newest.
fn state_after(run: &CachedRun, turn: Option<u32>) -> CliResult<(Turn, RunState)> {
    let last = run.folded.turns().last().map_or(Turn(0), |turn| turn.turn);
    let turn = turn.map_or(last, Turn);
    let state = run
        .folded
        .state_after(turn)
        .map_err(|error: NoSuchTurn| CliError { exit: ExitKind::NotFound, error: error.into() })?;
    Ok((turn, state))
}

/// Collects the model's reasoning in a turn, if its provider shows it.
fn collect_thinking(run: &CachedRun, turn: Turn) -> Vec<String> {
    let Ok(turn) = run.folded.turn(turn) else { return Vec::new() };
    let mut thoughts = Vec::new();
    for event in run.folded.history().turn_events(turn).iter().filter(|event| event.kind == "ModelAnswered") {
        let Ok(RunEvent::ModelAnswered(answer)) =
            RunEvent::decode(&event.kind, event.version, event.payload.as_str())
        else {
            continue;
        };
        for part in &answer.parts {
            if let MessagePart::Thinking { data, .. } = part {
                thoughts.push(run_export::reasoning_text(data).to_owned());
            }
        }
    }
    thoughts.retain(|thought| !thought.trim().is_empty());
    thoughts
}

/// Drops diffs that exceed the size limit of one reply.
fn drop_excess_diffs(changes: &mut [ChangeView]) {
    let mut room = DIFFS_BYTES_MAX;
    for change in changes {
        let bytes = change.diff.as_ref().map_or(0, String::len);
        if bytes > room {
            change.diff = None;
        } else {
            room -= bytes;
        }
    }
}

fn to_ledger_view(ledger: &RunLedger) -> LedgerView {
    let line =
        |(tried, came_to): &(String, String)| LedgerLine { tried: tried.clone(), came_to: came_to.clone() };
    let files = ledger.files.iter().map(|(path, change)| LedgerFile {
        path: path.clone(),
        created: change.created,
        times: change.change_count,
        added: change.added,
        removed: change.removed,
    });
    LedgerView {
        plan: ledger.plan.clone(),
        files: files.collect(),
        commands: ledger.commands.iter().map(line).collect(),
        errors: ledger.errors.iter().map(line).collect(),
        words: ledger.user_messages.iter().cloned().collect(),
    }
}

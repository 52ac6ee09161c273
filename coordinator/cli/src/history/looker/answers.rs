//! What the looker answers, made by the same code as the commands that look back.

use crate::history::file_view;
use crate::history::run_export;
use std::{ffi::OsStr, io::Seek as _};

use bytes::Bytes;
use docket_coordinator::{
    history::CachedRun,
    past::{Exported, Eyes},
};
use docket_schema::{
    event::TypedEvent as _,
    history::NoSuchTurn,
    ids::{RunId, Turn},
    message::Part,
    run::{Ledger, RunEvent, RunState},
    snapshot::Manifest,
    wire::{
        ChangeView, DiffQuery, DiffView, ExportForm, FILE_SHOWN_BYTES_MAX, FileView, FilesQuery, LedgerFile,
        LedgerLine, LedgerView, TurnAnswer,
    },
};
use docket_worker::workspace::{Contents, Standing, diff_manifests, nearest_paths, standing_at, tree_of};

use super::Looker;
use crate::{
    history::{
        blobs::{Beside, Remote},
        past::path_in_tree,
        recorded_output::recorded,
        turns::{Reader, shown},
    },
    output::fail::{Exit, FailWith as _, Failure, Outcome},
};

/// Bytes of all differences in one answer; the paths of the rest are named alone.
const DIFFS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Paths that are named where one is not there.
const NEAREST_MAX: usize = 3;

impl Looker {
    pub(super) async fn turn_of(
        &self,
        run: &CachedRun,
        turn: Option<u32>,
        eyes: Eyes,
    ) -> Outcome<TurnAnswer> {
        let (turn, state) = state(run, turn)?;
        let ledger = ledger(&state.ledger);
        let base = match run.folded.state().pins {
            Some(_) => Some(self.base(run).await?),
            None => None,
        };
        let with_diffs = eyes == Eyes::Exact;
        let reader = Reader { client: self.client()?, base: base.as_deref(), with_diffs };
        let mut turns = Box::pin(reader.turns(run.run, run.folded.history(), &(turn..=turn))).await?;
        let mut turn =
            turns.pop().ok_or_else(|| Failure::new(Exit::NotFound, format!("there is no turn {turn}")))?;
        shorten(&mut turn.changes);
        let thinking = thinking(run, Turn(turn.turn));
        let diffs_withheld = eyes == Eyes::Redacted && !turn.changes.is_empty();
        Ok(TurnAnswer { turn, ledger, thinking, diffs_withheld })
    }

    pub(super) async fn files_of(&self, run: &CachedRun, query: FilesQuery) -> Outcome<FileView> {
        let path = path_in_tree(OsStr::new(query.path.as_deref().unwrap_or(".")))?;
        let (turn, tree) = self.tree(run, query.turn).await?;
        let standing = match (standing_at(&tree, path.as_ref()), &path) {
            (Some(standing), _) => standing,
            (None, None) => Standing::Folder { mode: 0o755, children: Vec::new() },
            (None, Some(path)) => {
                let near = nearest_paths(&tree, path, NEAREST_MAX);
                let near: Vec<String> = near.iter().map(|path| format!("`{path}`")).collect();
                let perhaps =
                    if near.is_empty() { String::new() } else { format!("; perhaps {}", near.join(" or ")) };
                let message = format!("`{path}` is not there after turn {turn}{perhaps}");
                return Err(Failure::new(Exit::NotFound, message));
            }
        };
        let base = self.base(run).await?;
        let content = match &standing {
            Standing::File(entry) | Standing::Link(entry) if entry.size <= FILE_SHOWN_BYTES_MAX => {
                let blobs = Remote(self.client()?);
                let read = Contents::new(&base, &blobs).read(entry).await;
                Some(read.fail_with(Exit::Failed, || "the recorded content cannot be read".to_owned())?)
            }
            Standing::File(_) | Standing::Link(_) | Standing::Folder { .. } => None,
        };
        Ok(file_view::view(run.run, turn, path.as_ref(), &standing, content.as_deref()))
    }

    pub(super) async fn diff_of(
        &self,
        run: &CachedRun,
        with: Option<&CachedRun>,
        query: DiffQuery,
    ) -> Outcome<DiffView> {
        let newer = with.unwrap_or(run);
        let (old_base, new_base) = (self.base(run).await?, self.base(newer).await?);
        let (from, old) = match (query.from, with) {
            (None, None) => (None, old_base.manifest().clone()),
            (turn, _) => {
                let (turn, tree) = self.tree(run, turn).await?;
                (Some(turn.0), tree)
            }
        };
        let (to, new) = self.tree(newer, query.to).await?;
        let remote = Remote(self.client()?);
        let blobs = Beside(Contents::new(&new_base, &remote));
        let contents = Contents::new(&old_base, &blobs);
        let files = Box::pin(diff_manifests(&old, &new, &contents))
            .await
            .fail_with(Exit::Failed, || "the recorded contents cannot be read".to_owned())?;
        let mut changes: Vec<ChangeView> = files.into_iter().map(|file| shown(file, None)).collect();
        shorten(&mut changes);
        Ok(DiffView { run: run.run, from, with: newer.run, to: to.0, changes })
    }

    pub(super) async fn output_of(&self, run: &CachedRun, call: &str) -> Outcome<Bytes> {
        let (_, bytes) = recorded(self.client()?, run.run, &run.folded, call).await?;
        Ok(bytes.into())
    }

    pub(super) async fn export_of(&self, run: RunId, form: ExportForm) -> Outcome<Exported> {
        let (media, ending) = match form {
            ExportForm::Docket => ("application/zstd", "docket"),
            ExportForm::Jsonl => ("application/x-ndjson", "jsonl"),
            ExportForm::Atif => ("application/json", "atif.json"),
            ExportForm::Otlp => ("application/json", "otlp.json"),
        };
        // It has no name: whatever becomes of whoever asked, nothing is left of it.
        let mut file = tempfile::tempfile_in(&self.scratch).fail_as(Exit::Failed)?;
        run_export::of_run(self.client()?, run, form, &mut file).await?;
        let bytes = file.stream_position().fail_as(Exit::Failed)?;
        file.rewind().fail_as(Exit::Failed)?;
        Ok(Exported { media, name: format!("docket-{}.{ending}", run.short()), file, bytes })
    }

    /// The files after a turn, or after the newest.
    async fn tree(&self, run: &CachedRun, turn: Option<u32>) -> Outcome<(Turn, Manifest)> {
        let (turn, state) = state(run, turn)?;
        let base = self.base(run).await?;
        Ok((turn, tree_of(base.manifest(), &state.overlay)))
    }
}

/// What the run knew after a turn, or after the newest.
fn state(run: &CachedRun, turn: Option<u32>) -> Outcome<(Turn, RunState)> {
    let last = run.folded.turns().last().map_or(Turn(0), |turn| turn.turn);
    let turn = turn.map_or(last, Turn);
    let state = run
        .folded
        .state_after(turn)
        .map_err(|error: NoSuchTurn| Failure { exit: Exit::NotFound, error: error.into() })?;
    Ok((turn, state))
}

/// What the model reasoned in a turn, where its provider shows it.
fn thinking(run: &CachedRun, turn: Turn) -> Vec<String> {
    let Ok(turn) = run.folded.turn(turn) else { return Vec::new() };
    let mut thoughts = Vec::new();
    for event in run.folded.history().events_of(turn).iter().filter(|event| event.kind == "ModelAnswered") {
        let Ok(RunEvent::ModelAnswered(answer)) =
            RunEvent::decode(&event.kind, event.version, event.payload.as_str())
        else {
            continue;
        };
        for part in &answer.parts {
            if let Part::Thinking { data, .. } = part {
                thoughts.push(run_export::thought(data).to_owned());
            }
        }
    }
    thoughts.retain(|thought| !thought.trim().is_empty());
    thoughts
}

/// Keeps the differences that fit into one answer.
fn shorten(changes: &mut [ChangeView]) {
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

fn ledger(ledger: &Ledger) -> LedgerView {
    let line =
        |(tried, came_to): &(String, String)| LedgerLine { tried: tried.clone(), came_to: came_to.clone() };
    let files = ledger.files.iter().map(|(path, change)| LedgerFile {
        path: path.clone(),
        created: change.created,
        times: change.times,
        added: change.added,
        removed: change.removed,
    });
    LedgerView {
        plan: ledger.plan.clone(),
        files: files.collect(),
        commands: ledger.commands.iter().map(line).collect(),
        errors: ledger.errors.iter().map(line).collect(),
        words: ledger.words.iter().cloned().collect(),
    }
}

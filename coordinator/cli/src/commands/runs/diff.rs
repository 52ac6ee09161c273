//! `docket diff`: the difference between two points of a run, as a patch for `git apply`.

mod render;

use docket_schema::{content::WorkspacePath, snapshot::Manifest};
use docket_worker::workspace::{TreeDiff, compare_trees};

use crate::{
    connect::{coordinator::Coordinator, resolve},
    context::CliContext,
    history::{blobs::RemoteBlobs, recorded_run::RecordedRun},
    output::{
        display,
        error::{CliResult, ExitKind, FailWith as _},
    },
};

/// Maximum number of manually changed paths that the note lists.
const BY_HAND_SHOWN_MAX: usize = 5;

/// Command-line arguments of `docket diff`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Writes the patch to standard output byte for byte; on a terminal, control characters are escaped.
Without --turn, --from and --to, it shows what the run changed since its base; an unfinished turn
is shown as far as it got. Turn 0 is what happened before the first turn: the setup commands.
Changes that a person made in `docket shell` at the end of a turn are not part of that turn:
--turn leaves them out with a note, --by-hand shows only them. Changes that git cannot represent
(empty folders, modes other than 644 and 755) are named on standard error.

Examples:
  docket diff 3f9c01ab
  docket diff 3f9c01ab | git apply
  docket diff 3f9c01ab --turn 4                what turn 4 changed
  docket diff 3f9c01ab --turn 4 --by-hand      what a person changed at the end of turn 4
  docket diff 3f9c01ab --from 4 --to 9 --stat  line counts of turns 5 to 9"
)]
pub(crate) struct DiffArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// Show only what this turn changed
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "to"])]
    turn: Option<u32>,
    /// Show only what a person changed at the end of that turn
    #[arg(long, requires = "turn")]
    by_hand: bool,
    /// Start from the tree after turn A [default: the base]
    #[arg(long, value_name = "A")]
    from: Option<u32>,
    /// End with the tree after turn B [default: the last turn]
    #[arg(long, value_name = "B")]
    to: Option<u32>,
    /// Show only the lines added and removed in each file
    #[arg(long, conflicts_with = "name_only")]
    stat: bool,
    /// Show only the paths that differ
    #[arg(long)]
    name_only: bool,
    /// With --name-only: print exact paths, each terminated by a zero byte
    #[arg(short = 'z', long, requires = "name_only")]
    null: bool,
}

/// Two trees of a run and the turns they belong to.
struct ComparedTrees {
    /// The turns after which the trees were recorded; `None` is the base.
    from: Option<u32>,
    to: u32,
    old: Manifest,
    new: Manifest,
    /// With a single turn: paths that a person changed at its end.
    by_hand: Vec<WorkspacePath>,
}

pub(crate) async fn run_diff(cx: CliContext, args: DiffArgs) -> CliResult {
    let access = Coordinator::connect_for_reading(&cx, &args.id).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    let past = RecordedRun::open(&cx, &access.client, run).await?;
    let compared = select_trees(&past, &args)?;
    let scratch = cx.home.ensure_folder("scratch")?;
    let blobs = RemoteBlobs(&access.client);
    let diff = compare_trees(&past.base, &compared.old, &compared.new, &blobs, &scratch)
        .await
        .fail_as(ExitKind::Failed)?;
    print_diff(&cx, &args, &past, &compared, &diff).await?;
    access.close().await?;
    Ok(ExitKind::Ok)
}

fn select_trees(past: &RecordedRun, args: &DiffArgs) -> CliResult<ComparedTrees> {
    let after = past.at_turn(args.turn.or(args.to))?;
    after.note_if_open();
    let to = after.turn.0;
    let (from, old) = match (args.turn, args.from) {
        (Some(turn), _) => return turn_trees(past, turn, args.by_hand),
        (None, Some(from)) => (Some(from), past.at_turn(Some(from))?.tree),
        (None, None) => (None, past.base.manifest().clone()),
    };
    Ok(ComparedTrees { from, to, old, new: after.tree, by_hand: Vec::new() })
}

fn turn_trees(past: &RecordedRun, turn: u32, by_hand: bool) -> CliResult<ComparedTrees> {
    let apart = past.attribute_changes(turn)?;
    let (from, old, new) = match apart.manual_trees {
        Some((found, left)) if by_hand => (Some(turn), found, left),
        None if by_hand => (Some(turn), apart.run_tree.clone(), apart.run_tree),
        Some(_) | None => (turn.checked_sub(1), apart.before, apart.run_tree),
    };
    Ok(ComparedTrees { from, to: turn, old, new, by_hand: apart.manual_paths.into_iter().collect() })
}

fn note_by_hand(args: &DiffArgs, compared: &ComparedTrees, short: &str) {
    let (Some(turn), false) = (args.turn, compared.by_hand.is_empty()) else { return };
    let names: Vec<String> =
        compared.by_hand.iter().take(BY_HAND_SHOWN_MAX).map(ToString::to_string).collect();
    let more = compared.by_hand.len() - names.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    display::print_note(&format!(
        "changed manually at the end of turn {turn}, not shown: {}{more}; \
         use `docket diff {short} --turn {turn} --by-hand`",
        display::sanitize_line(&names.join(", "))
    ));
}

async fn print_diff(
    cx: &CliContext,
    args: &DiffArgs,
    past: &RecordedRun,
    compared: &ComparedTrees,
    diff: &TreeDiff,
) -> CliResult<()> {
    let short = past.run.short();
    if cx.is_json() {
        let row = render::DiffRow::from_diff(past, compared, diff).await?;
        display::print_json(&row);
        return Ok(());
    }
    if !args.by_hand {
        note_by_hand(args, compared, &short);
    }
    if diff.paths().is_empty() {
        let what = match (args.turn, compared.from) {
            (Some(turn), _) if args.by_hand => {
                format!("no manual changes in turn {turn} of run {short}")
            }
            (Some(turn), _) => format!("turn {turn} of run {short} changed nothing"),
            (None, Some(from)) => {
                format!("run {short} has the same files after turn {from} and after turn {}", compared.to)
            }
            (None, None) => format!("run {short} changed nothing"),
        };
        display::print_note(&what);
    }
    if args.name_only {
        render::print_names(diff, args.null);
        return Ok(());
    }
    if args.stat {
        display::print_line(&render::format_stat(cx.screen, diff).await?);
        return Ok(());
    }
    let patch = diff.to_patch().await.fail_as(ExitKind::Failed)?;
    display::print_exact(&patch);
    for (path, why) in diff.patch_omissions() {
        display::print_note(&format!(
            "not in the patch: {} ({})",
            display::sanitize_line(&path.to_string()),
            why.as_str()
        ));
    }
    Ok(())
}

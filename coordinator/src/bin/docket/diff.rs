//! `docket diff`: what a run changed, as `git apply` takes it.

use crate::{
    access::{Access, Need},
    context::Context,
    delivery, display,
    fail::{Exit, FailWith as _, Outcome},
    resolve,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The patch goes to standard output, byte for byte; a run that is still going shows what it has so far.

Examples:
  docket diff 3f9c01ab
  docket diff 3f9c01ab | git apply"
)]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
}

/// Prints the patch.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Read).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    let (result, state) = delivery::result_of(&cx, &access.client, run).await?;
    let patch = result.patch().await.fail_as(Exit::Failed)?;
    access.close().await?;
    if cx.json() {
        let paths: Vec<String> = state.overlay.keys().map(ToString::to_string).collect();
        let patch = docket_schema::content::Content::inline(&patch);
        display::say_json(&serde_json::json!({ "run": run, "paths": paths, "patch": patch }));
        return Ok(Exit::Ok);
    }
    if patch.is_empty() {
        display::note(&format!("run {} changed nothing", run.short()));
    }
    // A patch must stay what it is; on a terminal it would be obeyed.
    if std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        display::say(&display::block(&String::from_utf8_lossy(&patch)));
    } else {
        display::say_bytes(&patch);
    }
    for path in result.skipped() {
        display::note(&format!("not in the patch, git cannot hold it: {}", display::line(&path.to_string())));
    }
    Ok(Exit::Ok)
}

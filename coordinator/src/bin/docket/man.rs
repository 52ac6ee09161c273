//! `docket man`: manual pages, made from the same words as `--help`.

use std::path::PathBuf;

use clap::CommandFactory as _;
use clap_mangen::Man;

use crate::{
    context::Context,
    display,
    fail::{Exit, FailWith as _, Failure, Outcome},
};

/// What stands at the foot of each page: subcommands have no version of their own.
const SOURCE: &str = concat!("docket ", env!("CARGO_PKG_VERSION"));

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Writes docket.1, docket-submit.1 and so on. Without a folder the page of docket itself is printed.

Examples:
  docket man ~/.local/share/man/man1
  docket man | man -l -
  man docket-fork"
)]
pub(crate) struct Args {
    /// Where they are written; the folder is made
    folder: Option<PathBuf>,
}

/// Writes them.
pub(crate) fn run(cx: &Context, args: &Args) -> Outcome {
    let pages = pages();
    let Some(folder) = &args.folder else {
        if cx.json() {
            let message = "--json tells of the pages that were written; name a folder for them: `docket man DIR --json`";
            return Err(Failure::new(Exit::Usage, message));
        }
        let mut page = Vec::new();
        if let Some((_, whole)) = pages.first() {
            whole.render(&mut page).fail_as(Exit::Failed)?;
        }
        display::say_bytes(&page);
        return Ok(Exit::Ok);
    };
    let failed = || format!("cannot write manual pages into {}", folder.display());
    std::fs::create_dir_all(folder).fail_with(Exit::Failed, failed)?;
    for (name, page) in &pages {
        let mut text = Vec::new();
        page.render(&mut text).fail_with(Exit::Failed, failed)?;
        std::fs::write(folder.join(name), text).fail_with(Exit::Failed, failed)?;
    }
    if cx.json() {
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        display::say_json(&serde_json::json!({ "folder": folder, "pages": names }));
    } else {
        display::note(&format!("{} manual pages are in {}", pages.len(), folder.display()));
    }
    Ok(Exit::Ok)
}

/// The pages by their files' names, docket's own first. `help` gets none: it is each command's `--help`.
fn pages() -> Vec<(String, Man)> {
    let mut command = crate::args::Cli::command().disable_help_subcommand(true);
    // Gives each command its whole name, `docket-db-backup`.
    command.build();
    let mut pages = Vec::new();
    let mut left = vec![command];
    while let Some(command) = left.pop() {
        left.extend(command.get_subcommands().filter(|of| !of.is_hide_set()).cloned());
        let page = Man::new(command).source(SOURCE).manual("docket");
        pages.push((page.get_filename(), page));
    }
    pages[1..].sort_by(|one, other| one.0.cmp(&other.0));
    pages
}

//! `docket man`: manual pages, made from the same words as `--help`.

use std::path::PathBuf;

use clap::CommandFactory as _;

use crate::{
    display,
    fail::{Exit, FailWith as _, Outcome},
};

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
pub(crate) fn run(args: &Args) -> Outcome {
    let mut command = crate::args::Cli::command();
    command.build();
    let Some(folder) = &args.folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).fail_as(Exit::Failed)?;
        display::say_bytes(&page);
        return Ok(Exit::Ok);
    };
    let failed = || format!("cannot write manual pages into {}", folder.display());
    std::fs::create_dir_all(folder).fail_with(Exit::Failed, failed)?;
    clap_mangen::generate_to(command, folder).fail_with(Exit::Failed, failed)?;
    display::note(&format!("manual pages are in {}", folder.display()));
    Ok(Exit::Ok)
}

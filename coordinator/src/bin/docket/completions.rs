//! `docket completions`: a script that teaches a shell docket's words.

use clap::CommandFactory as _;

use crate::fail::{Exit, Failure, Outcome};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket completions bash > ~/.local/share/bash-completion/completions/docket
  docket completions zsh > ~/.zfunc/_docket
  docket completions fish > ~/.config/fish/completions/docket.fish")]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Prints the script.
pub(crate) fn run(args: &Args, json: bool) -> Outcome {
    if json {
        return Err(Failure::new(Exit::Usage, "a completion script is for a shell, and has no form of JSON; leave --json out"));
    }
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::args::Cli::command(), "docket", &mut script);
    crate::display::say_bytes(&script);
    Ok(Exit::Ok)
}

//! `docket completions`: prints a shell completion script.

use std::collections::BTreeSet;

use clap_complete::Shell;

use crate::output::error::{CliError, CliResult, ExitKind, FailWith as _};

/// Command-line arguments of `docket completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket completions bash > ~/.local/share/bash-completion/completions/docket
  docket completions zsh > ~/.zfunc/_docket
  docket completions fish > ~/.config/fish/completions/docket.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell to generate the script for
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the completion script.
pub(crate) fn run_completions(args: &CompletionsArgs, json: bool, mut command: clap::Command) -> CliResult {
    if json {
        return Err(CliError::new(ExitKind::Usage, "completion scripts have no JSON form; omit --json"));
    }
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "docket", &mut script);
    let script = String::from_utf8(script).fail_as(ExitKind::Failed)?;
    crate::output::display::print_bytes(
        remove_hidden_flags(args.shell, &script, &hidden_flags(&command)).as_bytes(),
    );
    Ok(ExitKind::Ok)
}

/// Returns hidden flags that are not visible on another command. clap completes hidden flags too.
fn hidden_flags(command: &clap::Command) -> BTreeSet<String> {
    let (mut hidden, mut named, mut left) = (BTreeSet::new(), BTreeSet::new(), vec![command]);
    while let Some(command) = left.pop() {
        for argument in command.get_arguments() {
            let to = if argument.is_hide_set() { &mut hidden } else { &mut named };
            to.extend(argument.get_long().map(ToOwned::to_owned));
        }
        left.extend(command.get_subcommands());
    }
    &hidden - &named
}

/// Removes the lines of hidden flags from the script. In bash one line holds all flags of a
/// command.
fn remove_hidden_flags(shell: Shell, script: &str, hidden: &BTreeSet<String>) -> String {
    let is_hidden = |word: &str| {
        let name = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let name = name.split(['=', '[', '+']).next().unwrap_or_default();
        hidden.contains(name)
    };
    let mut out = String::with_capacity(script.len());
    for line in script.lines() {
        if shell != Shell::Bash {
            if !line.split_whitespace().take(FLAG_WORDS_MAX).any(is_hidden) {
                out.push_str(line);
                out.push('\n');
            }
            continue;
        }
        match line.trim_start().strip_prefix("opts=\"").and_then(|rest| rest.strip_suffix('"')) {
            Some(flags) => {
                let flags: Vec<&str> = flags.split(' ').filter(|flag| !is_hidden(flag)).collect();
                out.push_str(&format!("            opts=\"{}\"\n", flags.join(" ")));
            }
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

/// Number of leading words of a script line that can contain the flag; help text follows.
const FLAG_WORDS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, ValueEnum as _};

    use super::*;

    #[test]
    fn completions_omit_only_hidden_flags() {
        let mut command = crate::args::Cli::command();
        let mut long = Vec::new();
        let mut left = vec![&command];
        while let Some(command) = left.pop() {
            let named = command.get_arguments().filter(|of| !of.is_hide_set());
            long.extend(named.filter_map(|of| of.get_long().map(ToOwned::to_owned)));
            left.extend(command.get_subcommands());
        }
        let hidden = hidden_flags(&command);
        assert!(hidden.contains("failpoints") && hidden.contains("first-frame"), "{hidden:?}");
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command, "docket", &mut script);
            let script = String::from_utf8(script).expect("UTF-8");
            let shown = remove_hidden_flags(*shell, &script, &hidden);
            let lists = |flag: &str| {
                let lists = shown.lines().filter(|line| *shell != Shell::Bash || line.contains("opts=\""));
                lists.into_iter().any(|line| {
                    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_')
                        .any(|word| word.trim_start_matches('-') == flag)
                })
            };
            for flag in &hidden {
                assert!(!lists(flag), "{shell} completes --{flag}");
            }
            for flag in &long {
                assert!(lists(flag), "{shell} does not complete --{flag}");
            }
        }
    }
}

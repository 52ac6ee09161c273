//! The context of every subcommand: home, settings, screen and output format.

use std::path::PathBuf;

use crate::{
    config::Config,
    home::DocketHome,
    output::{
        display::{ColorChoice, OutputScreen},
        error::{CliResult, ExitKind, FailWith as _},
    },
};

/// Flags of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct GlobalArgs {
    /// Directory of docket's log, token and settings [default: ~/.local/share/docket]
    #[arg(long, global = true, env = "DOCKET_HOME", value_name = "DIR", hide_env_values = true)]
    pub(crate) home: Option<PathBuf>,

    /// Remote coordinator, e.g. http://HOST:PORT; its token is read from DOCKET_TOKEN
    #[arg(long, global = true, env = "DOCKET_URL", value_name = "URL", hide_env_values = true)]
    pub(crate) url: Option<String>,

    /// Print JSON instead of text
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// When to use colors
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: ColorChoice,

    /// More detail: causes of errors, and more log output from servers and workers
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The context of a subcommand.
#[derive(Debug, Clone)]
pub(crate) struct CliContext {
    pub(crate) home: DocketHome,
    /// The settings in force.
    pub(crate) config: Config,
    /// The remote coordinator, if one was given.
    pub(crate) url: Option<String>,
    /// Standard output.
    pub(crate) screen: OutputScreen,
    pub(crate) output: OutputFormat,
    /// Log verbosity of servers and workers: 0 = warnings, 1 = info, 2 or more = everything.
    pub(crate) verbose: u8,
}

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl CliContext {
    /// Opens the home and reads the settings.
    pub(crate) fn new(args: &GlobalArgs) -> CliResult<Self> {
        let home = DocketHome::open(args.home.as_deref())?;
        let config = Config::load(&home.config_file(), |name| std::env::var(name).ok())?;
        let url = args.url.clone().filter(|url| !url.trim().is_empty());
        let output = if args.json { OutputFormat::Json } else { OutputFormat::Text };
        Ok(Self {
            home,
            config,
            url,
            screen: OutputScreen::for_stdout(args.color),
            output,
            verbose: args.verbose,
        })
    }

    /// Reads the CA certificates from the file in the settings.
    pub(crate) fn ca_certificates(&self) -> CliResult<Option<String>> {
        let Some(path) = &self.config.ca_file else { return Ok(None) };
        let read = std::fs::read_to_string(path);
        read.map(Some).fail_with(ExitKind::Usage, || {
            format!(
                "cannot read {} (DOCKET_CA, `client.ca`); it must be a PEM file of certificates",
                path.display()
            )
        })
    }

    /// Whether the output is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.output == OutputFormat::Json
    }
}

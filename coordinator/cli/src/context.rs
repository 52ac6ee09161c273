//! What every subcommand starts with: home, settings, screen, and how output is wanted.

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
    /// Where docket keeps its log, token and settings [default: ~/.local/share/docket]
    #[arg(long, global = true, env = "DOCKET_HOME", value_name = "DIR", hide_env_values = true)]
    pub(crate) home: Option<PathBuf>,

    /// A coordinator elsewhere, as http://HOST:PORT; its token comes in DOCKET_TOKEN
    #[arg(long, global = true, env = "DOCKET_URL", value_name = "URL", hide_env_values = true)]
    pub(crate) url: Option<String>,

    /// JSON for programs, in place of text for people
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Colours
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub(crate) color: ColorChoice,

    /// Say more: the causes of an error, and what servers and workers log
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct CliContext {
    /// The home.
    pub(crate) home: DocketHome,
    /// The settings in force.
    pub(crate) config: Config,
    /// A coordinator elsewhere.
    pub(crate) url: Option<String>,
    /// Standard output.
    pub(crate) screen: OutputScreen,
    /// For whom the output is.
    pub(crate) output: OutputFormat,
    /// How much servers and workers say: 0 warnings, 1 what happens, 2 and more all.
    pub(crate) verbose: u8,
}

/// For whom the output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// People.
    Text,
    /// Programs.
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

    /// The certificates of the one CA to trust, as the setting's file has them.
    pub(crate) fn ca_certificates(&self) -> CliResult<Option<String>> {
        let Some(path) = &self.config.ca_file else { return Ok(None) };
        let read = std::fs::read_to_string(path);
        read.map(Some).fail_with(ExitKind::Usage, || {
            format!(
                "cannot read {} (DOCKET_CA, `client.ca`); it must be a file of certificates",
                path.display()
            )
        })
    }

    /// Whether programs read the output.
    pub(crate) fn is_json(&self) -> bool {
        self.output == OutputFormat::Json
    }
}

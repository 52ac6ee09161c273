//! What every subcommand starts with: home, settings, screen, and how output is wanted.

use crate::{
    args::Cli,
    config::Config,
    display::Screen,
    fail::{Exit, FailWith as _, Outcome},
    home::Home,
};

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The home.
    pub(crate) home: Home,
    /// The settings in force.
    pub(crate) config: Config,
    /// A coordinator elsewhere.
    pub(crate) url: Option<String>,
    /// Standard output.
    pub(crate) screen: Screen,
    /// For whom the output is.
    pub(crate) output: Output,
    /// How much servers and workers say: 0 warnings, 1 what happens, 2 and more all.
    pub(crate) verbose: u8,
}

/// For whom the output is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// People.
    Text,
    /// Programs.
    Json,
}

impl Context {
    /// Opens the home and reads the settings.
    pub(crate) fn new(cli: &Cli) -> Outcome<Self> {
        let home = Home::open(cli.home.as_deref())?;
        let config = Config::load(&home.config_file(), |name| std::env::var(name).ok())?;
        let url = cli.url.clone().filter(|url| !url.trim().is_empty());
        let output = if cli.json { Output::Json } else { Output::Text };
        Ok(Self { home, config, url, screen: Screen::stdout(cli.color), output, verbose: cli.verbose })
    }

    /// The certificates of the one CA to trust, as the setting's file has them.
    pub(crate) fn ca(&self) -> Outcome<Option<String>> {
        let Some(path) = &self.config.ca else { return Ok(None) };
        let read = std::fs::read_to_string(path);
        read.map(Some).fail_with(Exit::Usage, || {
            format!(
                "cannot read {} (DOCKET_CA, `client.ca`); it must be a file of certificates",
                path.display()
            )
        })
    }

    /// Whether programs read the output.
    pub(crate) fn json(&self) -> bool {
        self.output == Output::Json
    }
}

//! Calls of `venv_install`, translated to a pip command. Pure.

use docket_schema::content::WorkspacePath;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{ShellLine, join_quoted, parse_workspace_path};

pub(crate) const NAME: &str = "venv_install";
pub(crate) const DESCRIPTION: &str = "Installs packages into the workspace's Python environment, and makes \
    the environment where it is not there (also without packages). Without the network only files of the workspace can \
    be installed.";

/// Packages of one call at most.
const PACKAGES_MAX: usize = 100;
/// Longest package specifier, in bytes.
const PACKAGE_BYTES_MAX: usize = 300;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct VenvInstallArgs {
    /// Packages as pip takes them: requests, "django>=5", ./wheels/a.whl.
    #[serde(default)]
    packages: Option<Vec<String>>,
    /// A requirements file, relative to the workspace.
    #[serde(default)]
    requirements: Option<String>,
}

impl VenvInstallArgs {
    /// Returns the line that policies read, whatever else is done: the packages decide.
    pub(super) fn to_shell_line(&self) -> Result<ShellLine, String> {
        let words = [vec!["pip".to_owned(), "install".to_owned()], self.pip_args()?].concat();
        let reads = self.requirements_path()?.iter().map(ToString::to_string).collect();
        Ok(ShellLine { command: join_quoted(&words), read_paths: reads, ..ShellLine::default() })
    }

    /// Returns the requirements file, if one is named.
    pub(crate) fn requirements_path(&self) -> Result<Option<WorkspacePath>, String> {
        let file = self.requirements.as_deref().filter(|file| !file.trim().is_empty());
        file.map(parse_workspace_path).transpose().map_err(|error| format!("`requirements`: {error}"))
    }

    /// Returns the arguments of pip after `install`.
    pub(crate) fn pip_args(&self) -> Result<Vec<String>, String> {
        let packages = self.packages.as_deref().unwrap_or_default();
        if packages.len() > PACKAGES_MAX {
            return Err(format!("`packages` names {}, more than {PACKAGES_MAX}", packages.len()));
        }
        let mut words = Vec::new();
        if let Some(path) = self.requirements_path()? {
            words.extend(["-r".to_owned(), format!("./{path}")]);
        }
        for package in packages {
            let package = package.trim();
            let legal = package.len() <= PACKAGE_BYTES_MAX && !package.chars().any(char::is_control);
            if package.is_empty() || package.starts_with('-') || !legal {
                let shown: String = package.chars().take(80).collect();
                return Err(format!("`packages`: `{shown}` is no package, as requests or ./wheels/a.whl"));
            }
            words.push(package.to_owned());
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_quoted_and_never_run_as_commands() {
        let packages = Some(vec!["a; rm -rf x".to_owned(), "$(id)".to_owned()]);
        let args = VenvInstallArgs { packages, requirements: None };
        assert_eq!(args.to_shell_line().expect("a line").command, "pip install 'a; rm -rf x' '$(id)'");
    }
}

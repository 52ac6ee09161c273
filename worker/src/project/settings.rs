//! Parses a project's `docket.toml`: the test command and the linters.

use std::collections::BTreeMap;

use crate::lint::LinterSettings;

/// Name of the settings file in the repository root. File tools do not write it: a model must not choose the checks
/// that judge it.
pub const SETTINGS_FILE: &str = "docket.toml";

/// Longest accepted shell line, in bytes.
const LINE_BYTES_MAX: usize = 4096;

/// Settings of a project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProjectSettings {
    /// `tests.command`: the shell line that runs the tests; `{path}` is replaced by the quoted test path.
    pub test_command: Option<String>,
    /// `lint.NAME`: by linter, the settings that override the detected ones.
    pub linters: BTreeMap<String, LinterSettings>,
}

/// A mistake in the file, with its remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProjectSettingsError {
    /// The file is not TOML.
    #[error("the project's docket.toml: line {line} is not valid TOML ({message})")]
    Toml {
        /// The line, from 1.
        line: usize,
        /// The parser's message.
        message: String,
    },
    /// An unknown setting.
    #[error("the project's docket.toml: unknown setting `{name}`; known settings are {known}")]
    UnknownSetting {
        /// The setting's name.
        name: String,
        /// The known settings.
        known: &'static str,
    },
    /// A value that is not allowed.
    #[error("the project's docket.toml: `{name}` must be {must}")]
    InvalidValue {
        /// The setting's name.
        name: String,
        /// The allowed values.
        must: &'static str,
    },
}

const KNOWN_SETTINGS: &str = "tests.command, lint.NAME.{enabled, extensions, check, project, fix, gates}";

impl ProjectSettings {
    /// Parses the file's text.
    ///
    /// # Errors
    /// Returns [`ProjectSettingsError`] for the first mistake.
    pub fn parse(text: &str) -> Result<Self, ProjectSettingsError> {
        let table: toml::Table =
            text.parse().map_err(|error: toml::de::Error| ProjectSettingsError::Toml {
                line: error
                    .span()
                    .map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1)),
                message: error.message().to_owned(),
            })?;
        let mut settings = Self::default();
        for (section, value) in &table {
            match (section.as_str(), value) {
                ("tests", toml::Value::Table(values)) => {
                    for (name, value) in values {
                        let name = format!("tests.{name}");
                        match name.as_str() {
                            "tests.command" => settings.test_command = Some(parse_shell_line(&name, value)?),
                            _ => {
                                return Err(ProjectSettingsError::UnknownSetting {
                                    name,
                                    known: KNOWN_SETTINGS,
                                });
                            }
                        }
                    }
                }
                ("lint", toml::Value::Table(linters)) => {
                    for (linter, values) in linters {
                        let name = format!("lint.{linter}");
                        let toml::Value::Table(values) = values else {
                            return Err(ProjectSettingsError::InvalidValue { name, must: "a section" });
                        };
                        settings.linters.insert(linter.clone(), parse_linter(&name, values)?);
                    }
                }
                ("tests" | "lint", _) => {
                    return Err(ProjectSettingsError::InvalidValue {
                        name: section.clone(),
                        must: "a section",
                    });
                }
                _ => {
                    return Err(ProjectSettingsError::UnknownSetting {
                        name: section.clone(),
                        known: KNOWN_SETTINGS,
                    });
                }
            }
        }
        settings.check_linters()
    }

    /// A linter that docket does not know needs both a check line and file extensions.
    fn check_linters(self) -> Result<Self, ProjectSettingsError> {
        const KNOWN: [&str; 8] =
            ["biome", "cargo check", "eslint", "flake8", "go vet", "gofmt", "ruff", "rustfmt"];
        for (name, linter) in &self.linters {
            // Final checks already use these names.
            if matches!(name.as_str(), "tests" | "requires") {
                let name = format!("lint.{name}");
                return Err(ProjectSettingsError::InvalidValue {
                    name,
                    must: "renamed: this name is reserved",
                });
            }
            if KNOWN.contains(&name.as_str()) || linter.enabled == Some(false) {
                continue;
            }
            let lacks = |field, must| {
                Err(ProjectSettingsError::InvalidValue { name: format!("lint.{name}.{field}"), must })
            };
            if linter.check.is_none() {
                return lacks("check", "a shell line, because docket does not know this linter");
            }
            if linter.extensions.is_none() {
                return lacks(
                    "extensions",
                    "a list of extensions such as [\"py\"], because docket does not know this linter",
                );
            }
        }
        Ok(self)
    }
}

fn parse_linter(linter: &str, values: &toml::Table) -> Result<LinterSettings, ProjectSettingsError> {
    let mut out = LinterSettings::default();
    for (name, value) in values {
        let full = format!("{linter}.{name}");
        match name.as_str() {
            "enabled" => out.enabled = Some(parse_flag(&full, value)?),
            "gates" => out.gates = Some(parse_flag(&full, value)?),
            "check" => out.check = Some(parse_shell_line(&full, value)?),
            "project" => out.project = Some(parse_shell_line(&full, value)?),
            "fix" => out.fix = Some(parse_shell_line(&full, value)?),
            "extensions" => out.extensions = Some(parse_extensions(&full, value)?),
            _ => return Err(ProjectSettingsError::UnknownSetting { name: full, known: KNOWN_SETTINGS }),
        }
    }
    Ok(out)
}

fn parse_shell_line(name: &str, value: &toml::Value) -> Result<String, ProjectSettingsError> {
    let text = value.as_str().map(str::trim).filter(|text| !text.is_empty() && text.len() <= LINE_BYTES_MAX);
    text.map(str::to_owned).ok_or_else(|| ProjectSettingsError::InvalidValue {
        name: name.to_owned(),
        must: "a shell line of at most 4096 bytes",
    })
}

fn parse_flag(name: &str, value: &toml::Value) -> Result<bool, ProjectSettingsError> {
    value
        .as_bool()
        .ok_or_else(|| ProjectSettingsError::InvalidValue { name: name.to_owned(), must: "true or false" })
}

fn parse_extensions(name: &str, value: &toml::Value) -> Result<Vec<String>, ProjectSettingsError> {
    let ending = |value: &toml::Value| {
        let text = value.as_str()?;
        (!text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric())).then(|| text.to_owned())
    };
    let all: Option<Vec<String>> = value.as_array().and_then(|all| all.iter().map(ending).collect());
    all.filter(|all| !all.is_empty()).ok_or_else(|| ProjectSettingsError::InvalidValue {
        name: name.to_owned(),
        must: "a list of extensions without the dot, such as [\"py\", \"pyi\"]",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_linters_are_parsed() {
        let text = "[tests]\ncommand = \"pytest -q {path}\"\n[lint.ruff]\ngates = false\n\
                    [lint.mine]\ncheck = \"mine {files}\"\nextensions = [\"txt\"]\n[lint.\"go vet\"]\nenabled = false\n";
        let settings = ProjectSettings::parse(text).expect("legal");
        assert_eq!(settings.test_command.as_deref(), Some("pytest -q {path}"));
        let names: Vec<&str> = settings.linters.keys().map(String::as_str).collect();
        assert_eq!(names, ["go vet", "mine", "ruff"]);
        assert_eq!(settings.linters["mine"].check.as_deref(), Some("mine {files}"));
        assert_eq!(ProjectSettings::parse(""), Ok(ProjectSettings::default()));
    }

    #[test]
    fn invalid_settings_are_reported_with_the_allowed_values() {
        for (text, message) in [
            ("[tests\n", "line 1 is not valid TOML"),
            ("[tests]\ncommand = 1\n", "`tests.command` must be a shell line"),
            ("[tests]\ncommand = \" \"\n", "`tests.command` must be a shell line"),
            (
                "[tests]\nrunner = \"x\"\n",
                "unknown setting `tests.runner`; known settings are tests.command, lint.NAME",
            ),
            ("tests = 1\n", "`tests` must be a section"),
            ("[lint]\nruff = 1\n", "`lint.ruff` must be a section"),
            (
                "[lint.ruff]\nextensions = [\".py\"]\n",
                "`lint.ruff.extensions` must be a list of extensions without the dot",
            ),
            ("[lint.ruff]\ngates = \"no\"\n", "`lint.ruff.gates` must be true or false"),
            (
                "[lint.mine]\nextensions = [\"a\"]\n",
                "`lint.mine.check` must be a shell line, because docket does not know",
            ),
            ("[lint.mine]\ncheck = \"a\"\n", "`lint.mine.extensions` must be"),
            ("[run]\nturns_max = 5\n", "unknown setting `run`"),
            ("[lint.tests]\ncheck = \"a\"\n", "`lint.tests` must be renamed"),
        ] {
            let error = ProjectSettings::parse(text).expect_err(text).to_string();
            assert!(error.starts_with("the project's docket.toml: ") && error.contains(message), "{error}");
        }
    }
}

//! Detects a project's linters from its files when a run starts; `docket.toml` can change them.
//!
//! Whether a linter is installed is only known inside the sandbox: a missing one exits with status 127.

use std::collections::BTreeMap;

use docket_schema::run::LinterSpec;

/// The project files that detection reads.
pub struct ProjectFiles<'a> {
    /// Paths of all files of the base.
    pub paths: &'a [String],
    /// Reads the text of a file of the base; `None` if it is missing or too large.
    pub read_text: &'a dyn Fn(&str) -> Option<String>,
}

/// Settings of one linter in `docket.toml`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LinterSettings {
    /// `false` turns the linter off.
    pub enabled: Option<bool>,
    /// See [`LinterSpec::extensions`].
    pub extensions: Option<Vec<String>>,
    /// See [`LinterSpec::check`].
    pub check: Option<String>,
    /// See [`LinterSpec::project`].
    pub project: Option<String>,
    /// See [`LinterSpec::fix`].
    pub fix: Option<String>,
    /// See [`LinterSpec::gates`].
    pub gates: Option<bool>,
}

impl ProjectFiles<'_> {
    fn contains_any(&self, names: &[&str]) -> bool {
        self.paths.iter().any(|file| names.contains(&file.as_str()))
    }

    fn file_contains(&self, name: &str, word: &str) -> bool {
        self.contains_any(&[name]) && (self.read_text)(name).is_some_and(|text| text.contains(word))
    }

    /// Whether the project has no file of the language, so that every finding is the run's own.
    fn has_no_files_with(&self, extensions: &[&str]) -> bool {
        let of = |file: &String| file.rsplit_once('.').is_some_and(|(_, end)| extensions.contains(&end));
        !self.paths.iter().any(of)
    }
}

/// Resolves a project's linters, sorted by name: detected ones with the project's settings applied.
#[must_use]
pub fn resolve_linters(
    project: &ProjectFiles<'_>,
    settings: &BTreeMap<String, LinterSettings>,
) -> Vec<LinterSpec> {
    let mut found: BTreeMap<String, LinterSpec> =
        detect_linters(project).into_iter().map(|linter| (linter.name.clone(), linter)).collect();
    for (name, settings) in settings {
        if settings.enabled == Some(false) {
            found.remove(name);
            continue;
        }
        let linter = found.entry(name.clone()).or_insert_with(|| LinterSpec {
            name: name.clone(),
            extensions: Vec::new(),
            check: String::new(),
            project: None,
            fix: None,
            gates: false,
        });
        let set = |place: &mut String, value: &Option<String>| {
            if let Some(value) = value {
                place.clone_from(value);
            }
        };
        set(&mut linter.check, &settings.check);
        if let Some(extensions) = &settings.extensions {
            linter.extensions.clone_from(extensions);
        }
        linter.project = settings.project.clone().or(linter.project.take());
        linter.fix = settings.fix.clone().or(linter.fix.take());
        // A linter that the project configures explicitly gates by default.
        linter.gates = settings.gates.unwrap_or(true);
    }
    found.into_values().collect()
}

fn detect_linters(project: &ProjectFiles<'_>) -> Vec<LinterSpec> {
    let mut found = vec![python_linter(project)];
    found.push(javascript_linter(project));
    found.extend(rust_linters(project));
    found.extend(go_linters(project));
    found
}

const PYTHON_EXTENSIONS: [&str; 2] = ["py", "pyi"];
const JAVASCRIPT_EXTENSIONS: [&str; 8] = ["js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts"];

/// Puts the project's own tools before those of the host.
const VENV_PATH_PREFIX: &str = "PATH=\"$PWD/.venv/bin:$PWD/venv/bin:$PATH\"; ";
const NODE_MODULES_PATH_PREFIX: &str = "PATH=\"$PWD/node_modules/.bin:$PATH\"; ";

struct DetectedLinter<'a> {
    name: &'a str,
    extensions: &'a [&'a str],
    check: String,
    fix: Option<String>,
}

impl DetectedLinter<'_> {
    /// `asked`: the project's own files configure this linter, so changed files must pass it at the end.
    fn into_spec(self, project: &ProjectFiles<'_>, asked: bool) -> LinterSpec {
        LinterSpec {
            name: self.name.to_owned(),
            extensions: self.extensions.iter().map(|end| (*end).to_owned()).collect(),
            check: self.check,
            // Only the project's own settings may check more than the files that a run changed.
            project: None,
            fix: self.fix,
            gates: asked || project.has_no_files_with(self.extensions),
        }
    }
}

fn python_linter(project: &ProjectFiles<'_>) -> LinterSpec {
    let ruff = project.contains_any(&["ruff.toml", ".ruff.toml"])
        || project.file_contains("pyproject.toml", "[tool.ruff");
    let flake8 = project.contains_any(&[".flake8"])
        || ["setup.cfg", "tox.ini"].iter().any(|name| project.file_contains(name, "[flake8]"));
    if flake8 && !ruff {
        let found = DetectedLinter {
            name: "flake8",
            extensions: &PYTHON_EXTENSIONS,
            check: format!("{VENV_PATH_PREFIX}flake8 {{files}}"),
            fix: None,
        };
        return found.into_spec(project, true);
    }
    let check = "ruff check --quiet --no-cache --output-format concise";
    let found = DetectedLinter {
        name: "ruff",
        extensions: &PYTHON_EXTENSIONS,
        check: format!("{VENV_PATH_PREFIX}{check} --force-exclude {{files}}"),
        fix: Some(format!("{VENV_PATH_PREFIX}ruff check --quiet --no-cache --fix --force-exclude {{files}}")),
    };
    found.into_spec(project, ruff)
}

fn javascript_linter(project: &ProjectFiles<'_>) -> LinterSpec {
    let eslint =
        project.paths.iter().any(|file| file.starts_with("eslint.config.") || file.starts_with(".eslintrc"))
            || project.file_contains("package.json", "\"eslintConfig\"");
    if eslint {
        let found = DetectedLinter {
            name: "eslint",
            extensions: &JAVASCRIPT_EXTENSIONS,
            check: format!("{NODE_MODULES_PATH_PREFIX}eslint --no-color {{files}}"),
            fix: Some(format!("{NODE_MODULES_PATH_PREFIX}eslint --no-color --fix {{files}}")),
        };
        return found.into_spec(project, true);
    }
    let found = DetectedLinter {
        name: "biome",
        extensions: &JAVASCRIPT_EXTENSIONS,
        check: format!("{NODE_MODULES_PATH_PREFIX}biome lint --colors=off --reporter=github {{files}}"),
        fix: Some(format!("{NODE_MODULES_PATH_PREFIX}biome lint --colors=off --write {{files}}")),
    };
    found.into_spec(project, project.contains_any(&["biome.json", "biome.jsonc"]))
}

/// rustfmt reads from stdin: given a path it would follow every module below it.
fn rust_linters(project: &ProjectFiles<'_>) -> [LinterSpec; 2] {
    let manifest = (project.read_text)("Cargo.toml").unwrap_or_default();
    let editions = ["2015", "2018", "2024"];
    let edition = editions.into_iter().find(|edition| manifest.contains(&format!("edition = \"{edition}\"")));
    let rustfmt = format!("rustfmt --edition {}", edition.unwrap_or("2021"));
    let format = DetectedLinter {
        name: "rustfmt",
        extensions: &["rs"],
        check: format!(
            "s=0; for f in {{files}}; do d=$({rustfmt} --check --color never <\"$f\" 2>&1) || s=$?; \
             [ -z \"$d\" ] || {{ [ $s -ne 0 ] || s=1; printf '%s\\n' \"$d\" | sed \"s|<stdin>|$f|g\"; }}; done; exit $s"
        ),
        fix: Some(format!(
            "t=$(mktemp); for f in {{files}}; do {rustfmt} <\"$f\" >\"$t\" && [ -s \"$t\" ] && cat \"$t\" >\"$f\"; done"
        )),
    };
    // A target folder that git does not ignore would become part of the result. Missing dependencies are not a
    // finding: there is no network to fetch them.
    let check = DetectedLinter {
        name: "cargo check",
        extensions: &["rs"],
        check: "[ -f Cargo.toml ] || exit 0; git check-ignore -q target 2>/dev/null || \
                export CARGO_TARGET_DIR=/tmp/docket-target; \
                o=$(cargo check --quiet --offline --message-format short 2>&1); s=$?; printf '%s\\n' \"$o\"; \
                case \"$o\" in *'--offline'*|*'offline mode'*) exit 127;; esac; exit $s"
            .to_owned(),
        fix: None,
    };
    [
        format.into_spec(project, project.contains_any(&["rustfmt.toml", ".rustfmt.toml"])),
        check.into_spec(project, false),
    ]
}

fn go_linters(project: &ProjectFiles<'_>) -> [LinterSpec; 2] {
    let format = DetectedLinter {
        name: "gofmt",
        extensions: &["go"],
        check: "o=$(gofmt -l {files} 2>&1); s=$?; [ $s -ne 0 ] || [ -z \"$o\" ] || s=1; \
                [ -z \"$o\" ] || printf '%s\\n' \"$o\" | sed 's/\\.go$/.go: not as gofmt writes it/'; exit $s"
            .to_owned(),
        fix: Some("gofmt -w {files}".to_owned()),
    };
    let vet = DetectedLinter {
        name: "go vet",
        extensions: &["go"],
        check: "[ -f go.mod ] || exit 0; go vet ./...".to_owned(),
        fix: None,
    };
    [format.into_spec(project, false), vet.into_spec(project, false)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linters_for(files: &[(&str, &str)], settings: &[(&str, LinterSettings)]) -> Vec<LinterSpec> {
        let names: Vec<String> = files.iter().map(|(name, _)| (*name).to_owned()).collect();
        let text = |name: &str| files.iter().find(|(n, _)| *n == name).map(|(_, text)| (*text).to_owned());
        let settings = settings.iter().map(|(name, of)| ((*name).to_owned(), of.clone())).collect();
        resolve_linters(&ProjectFiles { paths: &names, read_text: &text }, &settings)
    }

    fn gating_names(linters: &[LinterSpec]) -> Vec<&str> {
        linters.iter().filter(|linter| linter.gates).map(|linter| linter.name.as_str()).collect()
    }

    #[test]
    fn configured_linters_and_linters_of_new_languages_gate() {
        let all = ["biome", "cargo check", "go vet", "gofmt", "ruff", "rustfmt"];
        assert_eq!(gating_names(&linters_for(&[], &[])), all, "nothing is there yet");
        let old = linters_for(&[("a.py", ""), ("a.ts", ""), ("a.rs", ""), ("a.go", "")], &[]);
        assert_eq!((old.len(), gating_names(&old)), (6, vec![]), "old findings are not a run's to mend");
        let asks = linters_for(
            &[
                ("pyproject.toml", "[tool.ruff.lint]\n"),
                ("a.py", ""),
                ("eslint.config.mjs", ""),
                ("a.js", ""),
                ("rustfmt.toml", ""),
                ("a.rs", ""),
                ("a.go", ""),
            ],
            &[],
        );
        assert_eq!(gating_names(&asks), ["eslint", "ruff", "rustfmt"]);
        assert!(asks.iter().all(|linter| linter.project.is_none()), "old findings elsewhere: {asks:?}");
        assert_eq!(
            gating_names(&linters_for(&[("setup.cfg", "[flake8]\n"), ("a.py", "")], &[])),
            ["biome", "cargo check", "flake8", "go vet", "gofmt", "rustfmt"]
        );
    }

    #[test]
    fn settings_change_add_and_disable_linters() {
        let off = LinterSettings { enabled: Some(false), ..LinterSettings::default() };
        let own = LinterSettings {
            check: Some("lint {files}".into()),
            extensions: Some(vec!["txt".into()]),
            ..LinterSettings::default()
        };
        let soft = LinterSettings { gates: Some(false), ..LinterSettings::default() };
        let all = linters_for(&[], &[("biome", off), ("mine", own), ("ruff", soft)]);
        assert_eq!(gating_names(&all), ["cargo check", "go vet", "gofmt", "mine", "rustfmt"]);
        assert!(
            all.iter().any(|linter| linter.name == "ruff")
                && !all.iter().any(|linter| linter.name == "biome")
        );
    }

    #[test]
    fn rustfmt_uses_the_edition_of_the_manifest() {
        let all = linters_for(&[("Cargo.toml", "[package]\nedition = \"2024\"\n")], &[]);
        assert!(all.iter().any(|linter| linter.check.contains("rustfmt --edition 2024")), "{all:?}");
    }
}

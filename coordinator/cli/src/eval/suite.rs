//! An evaluation suite: a folder with `suite.toml` and one file per task under `tasks/`. It is read and
//! validated completely before anything starts.

use crate::tasks::policy_file;
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use docket_schema::{
    content::WorkspacePath,
    eval::{EvalExpectation, EvalKind},
    message::ModelRef,
    policy::Policy,
    report::SCRIPTED_PROVIDER,
    task::{SettingsPatch, TEXT_BYTES_MAX, check_model},
};
use docket_worker::{
    model::{PriceTable, ScriptedModel},
    policy::PathGlob,
};

use super::{
    matrix::first_duplicate,
    overlay_files::OverlayFiles,
    suite_file::{
        EngineExpectSection, EngineName, NonEmptyText, SuiteDefaults, SuiteFile, TaskFile, TomlSource,
    },
};
use crate::{
    output::error::{CliError, CliResult, ExitKind, FailWith as _},
    tasks::task_args::title_from_text,
};

/// Maximum number of tasks of a suite.
const TASKS_MAX: usize = 1000;
/// Maximum length of the name of a suite or task.
const NAME_CHARS_MAX: usize = 100;
/// Default time limit of an acceptance command: tests of a small repository, including compilation.
const ACCEPT_TIMEOUT_MS: u64 = 120_000;

/// A suite.
#[derive(Debug)]
pub(super) struct EvalSuite {
    pub(super) name: String,
    pub(super) about: Option<String>,
    pub(super) tasks: Vec<EvalTask>,
    prices: toml::Table,
}

/// What a run must leave in its log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ExpectedTraces {
    /// Artifacts.
    pub(super) artifacts: Vec<String>,
    /// Rules that must have denied a call.
    pub(super) denied: Vec<String>,
}

impl From<EngineExpectSection> for ExpectedTraces {
    fn from(form: EngineExpectSection) -> Self {
        Self { artifacts: into_texts(form.artifacts), denied: into_texts(form.denied) }
    }
}

/// A task of a suite.
#[derive(Debug)]
pub(super) struct EvalTask {
    /// Its name, from its file name.
    pub(super) name: String,
    pub(super) kind: EvalKind,
    pub(super) title: String,
    pub(super) text: String,
    /// The base; `None` = an empty folder.
    pub(super) repo: Option<PathBuf>,
    pub(super) commit: Option<String>,
    /// The engines used unless the command line gives others.
    pub(super) engines: Vec<EngineName>,
    pub(super) model: Option<ModelRef>,
    /// Scripts by engine, and one for all other engines.
    pub(super) scripts: BTreeMap<EngineName, Vec<u8>>,
    pub(super) script: Option<Vec<u8>>,
    pub(super) setup: Vec<String>,
    pub(super) tests: Option<String>,
    pub(super) requires: Vec<WorkspacePath>,
    pub(super) policy: Option<Policy>,
    pub(super) settings: SettingsPatch,
    pub(super) accept: Vec<String>,
    /// Files copied over the result before the acceptance commands run.
    pub(super) accept_files: Option<OverlayFiles>,
    pub(super) accept_timeout_ms: u64,
    /// Paths that may change; `None` = any that is not forbidden.
    pub(super) allowed_changes: Option<Vec<PathGlob>>,
    pub(super) must_not_change: Vec<PathGlob>,
    pub(super) must_not_be_read: Vec<PathGlob>,
    pub(super) expected: EvalExpectation,
    pub(super) required_files: Vec<WorkspacePath>,
    traces: ExpectedTraces,
    /// Additional requirements per engine.
    engine_traces: BTreeMap<EngineName, ExpectedTraces>,
    /// The source file, for errors found later.
    pub(super) file: TomlSource,
}

impl EvalTask {
    /// Returns the script of the model for this engine.
    pub(super) fn script_for(&self, engine: &EngineName) -> Option<&[u8]> {
        self.scripts.get(engine).or(self.script.as_ref()).map(Vec::as_slice)
    }

    /// Returns what a run with this engine must leave in its log.
    pub(super) fn expected_traces(&self, engine: &EngineName) -> ExpectedTraces {
        let ExpectedTraces { mut artifacts, mut denied } = self.traces.clone();
        if let Some(more) = self.engine_traces.get(engine) {
            artifacts.extend(more.artifacts.iter().cloned());
            denied.extend(more.denied.iter().cloned());
        }
        ExpectedTraces { artifacts, denied }
    }

    /// The path that `--only` matches against.
    pub(super) fn filter_path(&self) -> String {
        format!("{}/{}", self.kind.as_str(), self.name)
    }
}

/// Whether a model is scripted.
pub(super) fn is_scripted(model: &ModelRef) -> bool {
    model.provider == SCRIPTED_PROVIDER
}

impl EvalSuite {
    /// Reads the suite in a folder.
    ///
    /// # Errors
    /// Fails with a usage error that names file, line and key of the first fault.
    pub(super) fn read(folder: &Path) -> CliResult<Self> {
        let suite = TomlSource::read(folder.join("suite.toml"))?;
        let form: SuiteFile = suite.parse()?;
        if form.name.trim().is_empty()
            || form.name.contains('\n')
            || form.name.chars().count() > NAME_CHARS_MAX
        {
            return Err(
                suite.error_at("name", format!("it must be one line of 1 to {NAME_CHARS_MAX} characters"))
            );
        }
        if !form.defaults.accept.commands.is_empty() {
            return Err(suite.error_at("defaults.accept.commands", "it can only be set per task"));
        }
        if form.defaults.accept.files.is_some() {
            return Err(suite.error_at("defaults.accept.files", "it can only be set per task"));
        }
        let is_real = |name: &&String| !name.starts_with(&format!("{SCRIPTED_PROVIDER}:"));
        if let Some(name) = form.prices.keys().find(is_real) {
            let why = format!("`{name}` is not a scripted model; set its prices in docket.toml");
            return Err(suite.error_at("prices", why));
        }
        PriceTable::load(Some(&form.prices.to_string())).map_err(|error| suite.error_at("prices", error))?;
        let mut tasks = Vec::new();
        for (name, path) in task_files(folder)? {
            let file = TomlSource::read(path)?;
            let task: TaskFile = file.parse()?;
            let reader = TaskReader { folder, suite: &suite, defaults: &form.defaults };
            tasks.push(reader.build_task(name, file, task)?);
        }
        tasks.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        Ok(Self { name: form.name, about: form.about, tasks, prices: form.prices })
    }

    /// Returns the user's own prices, falling back to the suite's prices of scripted models.
    pub(super) fn merged_prices(&self, own: Option<&str>) -> Option<String> {
        let own = own.map(|text| text.parse::<toml::Table>().expect("settings keep what they read as TOML"));
        let all: toml::Table = self.prices.clone().into_iter().chain(own.unwrap_or_default()).collect();
        (!all.is_empty()).then(|| all.to_string())
    }
}

/// Returns the task files of a suite by name.
fn task_files(folder: &Path) -> CliResult<BTreeMap<String, PathBuf>> {
    let folder = folder.join("tasks");
    let failed = || format!("cannot read {}: a suite has one file per task there", folder.display());
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(&folder).fail_with(ExitKind::Usage, failed)? {
        let path = entry.fail_with(ExitKind::Usage, failed)?.path();
        let (Some(name), true) = (path.file_stem(), path.extension().is_some_and(|end| end == "toml")) else {
            continue;
        };
        let name = name.to_str().filter(|name| is_valid_name(name)).map(str::to_owned).ok_or_else(|| {
            let message = format!(
                "{}: a task is named after its file: 1 to {NAME_CHARS_MAX} letters, digits, dots, dashes or \
                 underscores",
                path.display()
            );
            CliError::new(ExitKind::Usage, message)
        })?;
        found.insert(name, path);
    }
    match found.len() {
        0 => Err(CliError::new(
            ExitKind::Usage,
            format!("{} contains no NAME.toml file of a task", folder.display()),
        )),
        1..=TASKS_MAX => Ok(found),
        many => {
            let message = format!("{} contains {many} tasks; the limit is {TASKS_MAX}", folder.display());
            Err(CliError::new(ExitKind::Usage, message))
        }
    }
}

fn into_texts(lines: Vec<NonEmptyText>) -> Vec<String> {
    lines.into_iter().map(|line| line.0).collect()
}

fn is_valid_name(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(legal)
}

/// Reads and validates one task file.
struct TaskReader<'a> {
    folder: &'a Path,
    suite: &'a TomlSource,
    defaults: &'a SuiteDefaults,
}

impl TaskReader<'_> {
    fn build_task(&self, name: String, file: TomlSource, form: TaskFile) -> CliResult<EvalTask> {
        let text = form.text.trim().to_owned();
        if text.is_empty() || text.len() > TEXT_BYTES_MAX {
            return Err(file.error_at("text", format!("it must have 1 to {TEXT_BYTES_MAX} bytes")));
        }
        let title = title_from_text(form.title.as_deref().unwrap_or(&text));
        let title = title.map_err(|failure| file.error_at("title", failure.error))?;
        let (repo, commit) = self.resolve_base(&file, &form)?;
        let model = self.resolve_model(&file, &form)?;
        let scripts = form.scripts.iter().map(|(engine, path)| {
            let key = format!("scripts.{engine}");
            Ok((engine.clone(), self.read_script(&file, &key, path)?))
        });
        let scripts: BTreeMap<_, _> = scripts.collect::<CliResult<_>>()?;
        let script =
            form.script.as_deref().map(|path| self.read_script(&file, "script", path)).transpose()?;
        let of_scripts = || {
            let all = EngineName::all().into_iter().filter(|engine| scripts.contains_key(engine));
            Some(all.collect::<Vec<_>>()).filter(|all| !all.is_empty())
        };
        let named = form.engines.clone().or_else(of_scripts).or_else(|| self.defaults.engines.clone());
        let engines = named.unwrap_or_else(|| "react".parse().into_iter().collect());
        if engines.is_empty() {
            return Err(file.error_at("engines", "it is empty; give an engine, or leave it out"));
        }
        if let Some(engine) = first_duplicate(&engines) {
            return Err(file.error_at("engines", format!("it lists `{engine}` twice")));
        }
        let (limits, wide) = (self.resolve_limits(&form), form.tools.or(self.defaults.tools));
        let both = |own: &[PathGlob], all: &[PathGlob]| own.iter().chain(all).cloned().collect();
        let (forbidden, beside) = (&form.forbidden, &self.defaults.forbidden);
        let timeout = form.accept.timeout.or(self.defaults.accept.timeout);
        let accept_files = self.read_accept_files(&file, &form)?;
        Ok(EvalTask {
            name,
            kind: form.kind,
            title,
            text,
            repo,
            commit,
            engines,
            model,
            scripts,
            script,
            policy: self.read_policy(&file, &form)?,
            settings: SettingsPatch { tool_set: wide, ..limits },
            must_not_change: both(&forbidden.unchanged, &beside.unchanged),
            must_not_be_read: both(&forbidden.unread, &beside.unread),
            setup: form.setup.or_else(|| self.defaults.setup.clone()).unwrap_or_default(),
            tests: form.tests,
            requires: form.requires,
            accept_files,
            accept: into_texts(form.accept.commands),
            accept_timeout_ms: timeout.unwrap_or(ACCEPT_TIMEOUT_MS),
            expected: form.expect.outcome,
            allowed_changes: form.expect.changes,
            required_files: form.expect.files,
            traces: ExpectedTraces {
                artifacts: into_texts(form.expect.artifacts),
                denied: into_texts(form.expect.denied),
            },
            engine_traces: form.expect.engines.into_iter().map(|(name, form)| (name, form.into())).collect(),
            file,
        })
    }

    /// Resolves the base folder and commit.
    fn resolve_base(
        &self,
        file: &TomlSource,
        form: &TaskFile,
    ) -> CliResult<(Option<PathBuf>, Option<String>)> {
        if form.empty {
            let beside = form.repo.is_some() || form.commit.is_some();
            let both = || file.error_at("empty", "a task with `empty = true` cannot have `repo` or `commit`");
            return if beside { Err(both()) } else { Ok((None, None)) };
        }
        let (path, from, key) = match (&form.repo, &self.defaults.repo) {
            (Some(path), _) => (path, file, "repo"),
            (None, Some(path)) => (path, self.suite, "defaults.repo"),
            (None, None) => {
                return Err(file.error_at("repo", "it is missing; give a folder, or set `empty = true`"));
            }
        };
        let repo = self.folder.join(path);
        if !repo.is_dir() {
            return Err(from.error_at(key, format!("no folder {}", repo.display())));
        }
        let commit =
            form.commit.clone().or_else(|| self.defaults.commit.clone().filter(|_| form.repo.is_none()));
        if commit.is_some() && !repo.join(".git").exists() {
            let key = if form.commit.is_some() { "commit" } else { "defaults.commit" };
            let from = if form.commit.is_some() { file } else { self.suite };
            let why =
                format!("{} is not a git repository, so it has no commits; leave it out", repo.display());
            return Err(from.error_at(key, why));
        }
        Ok((Some(repo), commit))
    }

    fn resolve_model(&self, file: &TomlSource, form: &TaskFile) -> CliResult<Option<ModelRef>> {
        let base_url = form.base_url.clone().or_else(|| self.defaults.base_url.clone());
        let Some(model) = form.model.clone().or_else(|| self.defaults.model.clone()) else { return Ok(None) };
        let base_url = base_url.filter(|_| !is_scripted(&model));
        let model = ModelRef { base_url, ..model };
        match check_model(&model) {
            Ok(()) => Ok(Some(model)),
            Err(error) if form.base_url.is_some() => {
                Err(file.error_at("base_url", format!("it must be {}", error.must)))
            }
            Err(error) => Err(self.suite.error_at("defaults.base_url", format!("it must be {}", error.must))),
        }
    }

    fn read_script(&self, file: &TomlSource, key: &str, path: &Path) -> CliResult<Vec<u8>> {
        let path = self.folder.join(path);
        let bytes = std::fs::read(&path)
            .map_err(|error| file.error_at(key, format!("cannot read {}: {error}", path.display())))?;
        match ScriptedModel::parse(&bytes) {
            Ok(_) => Ok(bytes),
            Err(error) => Err(file.error_at(key, format!("{}: {error}", path.display()))),
        }
    }

    fn read_accept_files(&self, file: &TomlSource, form: &TaskFile) -> CliResult<Option<OverlayFiles>> {
        let Some(path) = &form.accept.files else { return Ok(None) };
        if form.accept.commands.is_empty() {
            let why = "no command would use them; add one to `accept.commands`, or leave it out";
            return Err(file.error_at("accept.files", why));
        }
        OverlayFiles::from_folder(&self.folder.join(path))
            .map(Some)
            .map_err(|why| file.error_at("accept.files", why))
    }

    fn read_policy(&self, file: &TomlSource, form: &TaskFile) -> CliResult<Option<Policy>> {
        let (path, from, key) = match (&form.policy, &self.defaults.policy) {
            (Some(path), _) => (path, file, "policy"),
            (None, Some(path)) => (path, self.suite, "defaults.policy"),
            (None, None) => return Ok(None),
        };
        let read = policy_file::read_policy_file(&self.folder.join(path));
        read.map(Some).map_err(|failure| from.error_at(key, failure.error))
    }

    fn resolve_limits(&self, form: &TaskFile) -> SettingsPatch {
        let (own, all) = (form.limits, self.defaults.limits);
        SettingsPatch {
            turns_max: own.turns.or(all.turns),
            time_max_ms: own.time.or(all.time),
            cost_max_nusd: own.cost.or(all.cost),
            tokens_max: own.tokens.or(all.tokens),
            ..SettingsPatch::default()
        }
    }
}

#[cfg(test)]
mod tests;

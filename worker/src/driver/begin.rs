//! What a run that begins pins: prompts, settings, prices, checks, linters. Everything its decisions will
//! depend on is looked up here, once, and stands in its `RunStarted` from then on.

use std::io::Read as _;

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    message::ModelRef,
    run::{
        EngineRef, GateSpec, LinterSpec, Models, OtherModel, Prompts, RunSettings, RunStarted, SandboxLayers,
    },
    task::TaskSpec,
};

use super::{material::Material, start::StartError};
use crate::{
    bootstrap::Bootstrap,
    engine::{self, prompt},
    lint,
    model::PriceTable,
    project::{self, ProjectSettings},
    tools,
    workspace::Workspace,
};

/// Longest file that is looked at for what a project is configured with, in bytes.
const CONFIG_BYTES_MAX: u64 = 256 * 1024;

/// Files whose text becomes part of the prompt, in order of preference.
const INSTRUCTION_FILES: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

/// What a run that begins pins, with the blobs that this names.
pub(super) struct Begun {
    pub(super) started: RunStarted,
    pub(super) blobs: Vec<(BlobRef, Vec<u8>)>,
}

/// Looks at the workspace as it begins, and says what is pinned.
///
/// # Errors
/// [`StartError`]: there is no such engine, or settings or prices do not read.
pub(super) fn begin(
    bootstrap: &Bootstrap,
    material: &Material,
    workspace: &Workspace,
    root: &cap_std::fs::Dir,
    sandbox: SandboxLayers,
) -> Result<Begun, StartError> {
    let lease = &bootstrap.lease;
    let spec = &lease.spec;
    let engine = engine::newest(&spec.engine)
        .ok_or_else(|| StartError::Environment(format!("there is no engine `{}`", spec.engine)))?
        .id();
    let own = own_settings(root)?;
    let configured = spec.tests.clone().or_else(|| own.tests.clone());
    let tests = configured.clone().or_else(|| tools::detect_tests(root));
    let project = prompt::Project {
        instructions: instructions(root),
        files: workspace.base_manifest().entries.keys().map(ToString::to_string).collect(),
        tests: tests.clone(),
    };
    let linters = linters(root, &project.files, &own);
    let specs = tools::specs();
    let requires: Vec<String> = spec.requires.iter().map(ToString::to_string).collect();
    let mut blobs = Vec::new();
    let mut pin = |bytes: Vec<u8>| {
        let blob = BlobRef::of(&bytes);
        material.keep(blob, Bytes::from(bytes.clone()));
        blobs.push((blob, bytes));
        blob
    };
    let prompts = Prompts {
        system: pin(prompt::system(&specs, &project).into_bytes()),
        tools: pin(serde_json::to_vec(&specs).expect("tool specifications have string keys only")),
        task: pin(prompt::task(&spec.title, &spec.text, &requires).into_bytes()),
    };
    let started = RunStarted {
        task: lease.task,
        run: lease.run,
        attempt: lease.attempt,
        engine: EngineRef { name: engine.name, version: engine.version },
        models: models(bootstrap, spec)?,
        settings: settings(bootstrap, spec),
        prompts,
        base: spec.base.clone(),
        gates: gates(tests, &requires),
        tests: configured,
        linters,
        requires: spec.requires.clone(),
        policy: None,
        sandbox,
        worker: bootstrap.incarnation,
    };
    Ok(Begun { started, blobs })
}

/// The project's own `docket.toml`, if it has one.
fn own_settings(root: &cap_std::fs::Dir) -> Result<ProjectSettings, StartError> {
    let text = text_of(root, project::FILE).unwrap_or_default();
    ProjectSettings::parse(&text).map_err(|error| StartError::environment(&error))
}

fn text_of(root: &cap_std::fs::Dir, name: &str) -> Option<String> {
    let file = root.open(name).ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()))?;
    let mut text = Vec::new();
    file.take(CONFIG_BYTES_MAX).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

fn linters(root: &cap_std::fs::Dir, files: &[String], own: &ProjectSettings) -> Vec<LinterSpec> {
    let text = |name: &str| text_of(root, name);
    lint::linters(&lint::Project { files, text: &text }, &own.linters)
}

fn instructions(root: &cap_std::fs::Dir) -> Option<(String, String)> {
    INSTRUCTION_FILES.iter().find_map(|name| {
        let file = root.open(name).ok().filter(|file| file.metadata().is_ok_and(|found| found.is_file()))?;
        let mut text = Vec::new();
        file.take(prompt::INSTRUCTIONS_BYTES_MAX as u64).read_to_end(&mut text).ok()?;
        Some(((*name).to_owned(), String::from_utf8_lossy(&text).into_owned()))
    })
}

fn models(bootstrap: &Bootstrap, spec: &TaskSpec) -> Result<Models, StartError> {
    let table = PriceTable::load(bootstrap.settings.prices_toml.as_deref())
        .map_err(|error| StartError::environment(&error))?;
    let other = |model: &ModelRef| Box::new(OtherModel { model: model.clone(), terms: table.terms(model) });
    let models = Models {
        explore: spec.explore_model.as_ref().map(other),
        fallback: spec.fallback_model.as_ref().map(other),
        ..table.models(&spec.model)
    };
    let costs = spec.settings.cost_max_nusd.unwrap_or(bootstrap.settings.run.cost_max_nusd);
    if let Some((model, _)) = models.all().find(|(_, terms)| costs > 0 && !terms.priced) {
        return Err(StartError::Environment(format!(
            "a budget of money cannot be kept: no price is known for {model}; add [prices.\"{model}\"] to docket.toml"
        )));
    }
    Ok(models)
}

fn settings(bootstrap: &Bootstrap, spec: &TaskSpec) -> RunSettings {
    let mut settings = bootstrap.settings.run.clone();
    let patch = &spec.settings;
    settings.turns_max = patch.turns_max.unwrap_or(settings.turns_max);
    settings.corrections_max = patch.corrections_max.unwrap_or(settings.corrections_max);
    settings.command_timeout_ms = patch.command_timeout_ms.unwrap_or(settings.command_timeout_ms);
    settings.auto_lint = patch.auto_lint.unwrap_or(settings.auto_lint);
    settings.tokens_max = patch.tokens_max.unwrap_or(settings.tokens_max);
    settings.cost_max_nusd = patch.cost_max_nusd.unwrap_or(settings.cost_max_nusd);
    settings.time_max_ms = patch.time_max_ms.unwrap_or(settings.time_max_ms);
    settings.refuse_syntax_errors = patch.refuse_syntax_errors.unwrap_or(settings.refuse_syntax_errors);
    settings
}

fn gates(tests: Option<String>, requires: &[String]) -> Vec<GateSpec> {
    let mut gates = Vec::new();
    if !requires.is_empty() {
        let there: Vec<String> = requires.iter().map(|path| format!("test -e {}", quoted(path))).collect();
        gates.push(GateSpec { name: "requires".to_owned(), command: there.join(" && "), mend: None });
    }
    gates.extend(tests.map(|command| GateSpec { name: "tests".to_owned(), command, mend: None }));
    gates
}

fn quoted(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''"))
}

//! Pins the configuration of a new run: prompts, settings, prices, checks, linters. Everything its decisions depend
//! on is looked up here, once, and then read from its `RunStarted`.

use bytes::Bytes;
use docket_schema::{
    api::Lease,
    content::BlobRef,
    message::{ModelRef, ToolSpec},
    policy::Policy,
    redact::Redactor,
    run::{
        EngineRef, GateSpec, OtherModel, RoleSpec, RolesPinned, RunModels, RunPrompts, RunSettings,
        RunStarted, RunState, SandboxLayers,
    },
    task::{RoleOverride, TaskSpec},
    tool::ToolSet,
};

use super::project_context::ProjectContext;
use crate::run::{errors::start_error::StartError, log::blob_cache::BlobCache};
use crate::{
    bootstrap::RunBootstrap,
    engine::{self, Engine, RoleDefinition, prompt},
    mcp::{ListedMcpTool, OfferedMcpTools},
    model::{PriceTable, unknown_price_message},
    policy, tools,
    workspace::Workspace,
};

/// The configuration pinned for a new run, with the blobs it names.
pub(in crate::run) struct PinnedRun {
    pub(in crate::run) started: RunStarted,
    pub(in crate::run) blobs: Vec<(BlobRef, Vec<u8>)>,
}

/// Inspects the initial workspace and returns the run's pinned configuration.
///
/// # Errors
/// [`StartError`]: the engine does not exist, or settings or prices cannot be read.
pub(in crate::run) fn build_run_started(
    bootstrap: &RunBootstrap,
    material: &BlobCache,
    workspace: &Workspace,
    root: &cap_std::fs::Dir,
    (sandbox, redactor): (SandboxLayers, &Redactor),
    OfferedMcpTools { tools: external, unavailable_servers: left_out }: OfferedMcpTools,
) -> Result<PinnedRun, StartError> {
    let lease = &bootstrap.lease;
    let spec = &lease.spec;
    let (engine, defined) = resolve_engine(lease)?;
    let own_set = engine.tool_set();
    let engine = engine.engine_ref();
    // A child starts from its parent's tree, which the workspace already holds.
    let child = lease.delegated_by.as_ref();
    let files = || match child {
        None => workspace.base_manifest().entries.keys().map(ToString::to_string).collect(),
        Some(_) => workspace.manifest().entries.keys().map(ToString::to_string).collect(),
    };
    let tree = child.map_or(spec.base.tree, |by| by.tree);
    let context = ProjectContext::load_or_inspect(&bootstrap.cache, tree, root, files)?;
    let configured = spec.tests.clone().or(context.tests_configured);
    let tests = configured.clone().or(context.tests_found);
    let project = prompt::ProjectLayer { tests: tests.clone(), ..context.project };
    let mut settings = effective_settings(bootstrap, spec);
    settings.tool_set = own_set.unwrap_or(settings.tool_set);
    let complexity = settings.complexity.unwrap_or_default();
    let mut specs = tools::tool_specs(settings.tool_set);
    specs.extend(tools::delegate_tool_spec(&settings));
    specs.extend(external.iter().map(|listed| listed.spec.clone()));
    let requires: Vec<String> = spec.requires.iter().map(ToString::to_string).collect();
    let mut blobs = Vec::new();
    let mut pin = |bytes: Vec<u8>| {
        let blob = BlobRef::for_bytes(&bytes);
        material.insert(blob, Bytes::from(bytes.clone()));
        blobs.push((blob, bytes));
        blob
    };
    let policies = effective_policies(bootstrap)?;
    let mut task = prompt::task_prompt(&spec.title, &spec.text, &requires, complexity);
    // Part of the task section, because the bytes before it are shared by all tasks on the tree.
    if let Some(told) = policy::describe_network(&policies) {
        task.push_str(&format!("\n\n{told}"));
    }
    let prompts = RunPrompts {
        system: pin(redactor.redact_bytes(prompt::system_prompt(&specs, &project).into_bytes())),
        tools: pin(serde_json::to_vec(&specs).expect("tool specifications have string keys only")),
        task: pin(redactor.redact_bytes(task.into_bytes())),
    };
    let models = pin_models(bootstrap, spec)?;
    let tools = role_tool_specs(&settings, &external);
    let asked = (&spec.roles[..], &models.main);
    let roles =
        defined.iter().map(|def| pin_role(def, asked, &tools, (&project, redactor), &mut pin)).collect();
    let started = RunStarted {
        task: lease.task,
        run: lease.run,
        attempt: lease.attempt,
        engine: EngineRef { name: engine.name, version: engine.version },
        models,
        settings,
        prompts,
        base: spec.base.clone(),
        // A child must satisfy only its own checks: the whole is its parent's responsibility.
        gates: final_gates(if child.is_some() { spec.tests.clone() } else { tests }, &requires),
        tests: configured,
        roles,
        external: external.into_iter().map(|listed| listed.tool).collect(),
        servers_left_out: left_out,
        linters: context.linters,
        requires: spec.requires.clone(),
        policy: None,
        policies,
        sandbox,
        worker: bootstrap.incarnation,
    };
    Ok(PinnedRun { started, blobs })
}

/// Returns the requested engine with its roles.
fn resolve_engine(lease: &Lease) -> Result<(Box<dyn Engine>, Vec<RoleDefinition>), StartError> {
    let spec = &lease.spec;
    let engine = engine::newest_engine(&spec.engine)
        .ok_or_else(|| StartError::missing_engine(lease.task, &spec.engine))?;
    let defined = engine::resolve_roles(&*engine, &spec.roles)
        .map_err(|error| StartError::Configuration(error.to_string()))?;
    // How far a child may delegate further is its parent's decision, whichever engine it is for.
    let is_asked = spec.settings.delegation_depth_max.is_some_and(|depth| depth > 0);
    match engine::cannot_delegate_reason(&spec.engine, &defined) {
        Some(why) if is_asked && lease.delegated_by.is_none() => Err(StartError::Configuration(why)),
        Some(_) | None => Ok((engine, defined)),
    }
}

/// Blobs named by an event, with their bytes.
type NamedBlobs = Vec<(BlobRef, Vec<u8>)>;

/// Returns the tools that roles may have: those of any tool set (an engine names its own), `delegate` if the run may
/// use it, and those of servers, which are marked.
fn role_tool_specs(settings: &RunSettings, external: &[ListedMcpTool]) -> Vec<(ToolSpec, bool)> {
    let own =
        [ToolSet::Core, ToolSet::Wide].into_iter().flat_map(tools::tool_specs).chain(tools::card_specs());
    let own = own.chain(tools::delegate_tool_spec(settings));
    let external = external.iter().map(|listed| (listed.spec.clone(), true));
    own.map(|spec| (spec, false)).chain(external).collect()
}

/// Pins a role as its engine defines it and the task overrides it.
fn pin_role(
    def: &RoleDefinition,
    (asked, main): (&[RoleOverride], &ModelRef),
    all: &[(ToolSpec, bool)],
    (project, redactor): (&prompt::ProjectLayer, &Redactor),
    pin: &mut impl FnMut(Vec<u8>) -> BlobRef,
) -> RoleSpec {
    // A server is a third-party command, so any role that may run commands may use it.
    let runs = def.tools.iter().any(|tool| tool == tools::RUN_COMMAND);
    let mut specs: Vec<ToolSpec> = Vec::new();
    for (spec, is_external) in all {
        let has = if *is_external { runs } else { def.tools.contains(&spec.name) };
        if has && specs.iter().all(|known| known.name != spec.name) {
            specs.push(spec.clone());
        }
    }
    let asked = asked.iter().find(|asked| asked.name == def.name);
    RoleSpec {
        name: def.name.clone(),
        model: asked.and_then(|asked| asked.model.as_ref()).unwrap_or(main).clone(),
        system: pin(redactor.redact_bytes(
            prompt::role_system_prompt((&def.name, &def.prompt), &specs, def.sees_project.then_some(project))
                .into_bytes(),
        )),
        tools: pin(serde_json::to_vec(&specs).expect("tool specifications have string keys only")),
        may: specs.into_iter().map(|spec| spec.name).collect(),
        answer: def.reply_schema.clone(),
        temperature_milli: asked.and_then(|asked| asked.temperature_milli),
        effort: asked.and_then(|asked| asked.effort),
        context_tokens_max: asked.and_then(|asked| asked.context_tokens_max).unwrap_or(0),
        writes: def.write_scope,
    }
}

/// What to pin about roles when a worker takes up a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RolesToPin {
    /// Nothing: the same engine continues, or it has no roles. Pins stay valid until the run ends, whatever roles the
    /// engine has in this build.
    Nothing,
    /// The roles as already pinned, with the tools of their engine.
    AsPinned,
    /// The roles as the engine defines them.
    FromEngine,
}

fn roles_to_pin(run: &RunState, defined: &[RoleDefinition]) -> RolesToPin {
    let Some(pins) = run.pins.as_deref().filter(|_| run.roles_due && !defined.is_empty()) else {
        return RolesToPin::Nothing;
    };
    // Two engines may have a role of the same name with different tools. A role that may not delegate has no tool for
    // it.
    let gives = pins.settings.delegation_depth_max > 0;
    let is_as = |role: &RoleSpec, def: &RoleDefinition| {
        let own = role.may.iter().filter(|name| pins.external_tool(name).is_none());
        role.name == def.name
            && role.answer == def.reply_schema
            && own.clone().all(|name| def.tools.contains(name))
            && def
                .tools
                .iter()
                .filter(|name| gives || *name != tools::DELEGATE)
                .all(|name| own.clone().any(|own| own == name))
    };
    let has = |def: &RoleDefinition| pins.roles.iter().any(|role| is_as(role, def));
    if defined.iter().all(has) { RolesToPin::AsPinned } else { RolesToPin::FromEngine }
}

/// Pins the roles of the engine that continues a run after a fork, with the blobs that no earlier event names; `None`
/// if none are needed.
///
/// # Errors
/// The errors of [`build_run_started`].
pub(in crate::run) fn pin_roles_after_fork(
    bootstrap: &RunBootstrap,
    material: &BlobCache,
    (workspace, root): (&Workspace, &cap_std::fs::Dir),
    redactor: &Redactor,
    run: &RunState,
) -> Result<Option<(RolesPinned, NamedBlobs)>, StartError> {
    let Some(pins) = run.pins.as_deref() else { return Ok(None) };
    let Some(engine) = engine::find_engine(&pins.engine) else { return Ok(None) };
    // Role overrides for another engine do not apply to this one.
    let roles = &bootstrap.lease.spec.roles;
    let (asked, defined) = engine::resolve_roles(&*engine, roles)
        .map_or_else(|_| (&[][..], engine.default_roles()), |defined| (&roles[..], defined));
    let tool_set = engine.tool_set();
    match roles_to_pin(run, &defined) {
        RolesToPin::Nothing => return Ok(None),
        RolesToPin::AsPinned => {
            let (roles, models) = (pins.roles.clone(), pins.models.roles.clone());
            return Ok(Some((RolesPinned { roles, models, tool_set }, NamedBlobs::new())));
        }
        RolesToPin::FromEngine => {}
    }
    let files = || workspace.base_manifest().entries.keys().map(ToString::to_string).collect();
    let context = ProjectContext::load_or_inspect(&bootstrap.cache, pins.base.tree, root, files)?;
    let tests = pins.tests.clone().or(context.tests_found);
    let project = prompt::ProjectLayer { tests, ..context.project };
    let mut blobs = Vec::new();
    let mut pin = |bytes: Vec<u8>| {
        let blob = BlobRef::for_bytes(&bytes);
        material.insert(blob, Bytes::from(bytes.clone()));
        blobs.push((blob, bytes));
        blob
    };
    // Servers are queried once, when a run begins: roles pinned later have none of their tools.
    let (tools, who) = (role_tool_specs(&pins.settings, &[]), (asked, &pins.models.main));
    let roles =
        defined.iter().map(|def| pin_role(def, who, &tools, (&project, redactor), &mut pin)).collect();
    let models = add_role_models(pins.models.clone(), asked, &load_prices(bootstrap)?);
    if let Some((model, _)) = models.all().find(|(_, terms)| pins.settings.cost_max_nusd > 0 && !terms.priced)
    {
        return Err(StartError::Configuration(unknown_price_message(model)));
    }
    Ok(Some((RolesPinned { roles, models: models.roles, tool_set }, blobs)))
}

/// Returns the worker's policy, then the task's. A task never widens the policy: if it has one and the worker does
/// not, an empty one takes the worker's place.
fn effective_policies(bootstrap: &RunBootstrap) -> Result<Vec<Policy>, StartError> {
    let (worker, task) = (bootstrap.settings.policy.clone(), bootstrap.lease.spec.policy.clone());
    let Some(task) = task else { return Ok(worker.into_iter().collect()) };
    // The coordinator checked its size; only a worker knows what its rules and their examples match.
    policy::check_policy(&task)
        .map_err(|error| StartError::Configuration(format!("the task's policy: {error}")))?;
    Ok(vec![worker.unwrap_or_default(), task])
}

fn pin_models(bootstrap: &RunBootstrap, spec: &TaskSpec) -> Result<RunModels, StartError> {
    let table = load_prices(bootstrap)?;
    let other =
        |model: &ModelRef| Box::new(OtherModel { model: model.clone(), terms: table.model_terms(model) });
    let models = RunModels {
        explore: spec.explore_model.as_ref().map(other),
        fallback: spec.fallback_model.as_ref().map(other),
        ..table.single_model(&spec.model)
    };
    let models = add_role_models(models, &spec.roles, &table);
    let costs = spec.settings.cost_max_nusd.unwrap_or(bootstrap.settings.run.cost_max_nusd);
    if let Some((model, _)) = models.all().find(|(_, terms)| costs > 0 && !terms.priced) {
        return Err(StartError::Configuration(unknown_price_message(model)));
    }
    Ok(models)
}

fn load_prices(bootstrap: &RunBootstrap) -> Result<PriceTable, StartError> {
    PriceTable::load(bootstrap.settings.prices_toml.as_deref())
        .map_err(|error| StartError::from_environment_error(&error))
}

/// Adds the models that only roles use.
fn add_role_models(mut models: RunModels, asked: &[RoleOverride], table: &PriceTable) -> RunModels {
    for model in asked.iter().filter_map(|role| role.model.as_ref()) {
        if models.all().all(|(known, _)| known != model) {
            models.roles.push(OtherModel { model: model.clone(), terms: table.model_terms(model) });
        }
    }
    models
}

fn effective_settings(bootstrap: &RunBootstrap, spec: &TaskSpec) -> RunSettings {
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
    settings.effort = patch.effort.or(settings.effort);
    settings.temperature_milli = patch.temperature_milli.or(settings.temperature_milli);
    settings.tool_set = patch.tool_set.unwrap_or(settings.tool_set);
    let said = patch.complexity.or(settings.complexity);
    let requires = spec.requires.len();
    settings.delegation_depth_max = patch.delegation_depth_max.unwrap_or(settings.delegation_depth_max);
    settings.children_max = patch.children_max.unwrap_or(settings.children_max);
    settings.complexity =
        Some(said.unwrap_or_else(|| prompt::estimate_complexity(&spec.title, &spec.text, requires)));
    settings
}

fn final_gates(tests: Option<String>, requires: &[String]) -> Vec<GateSpec> {
    let mut gates = Vec::new();
    if !requires.is_empty() {
        let there: Vec<String> =
            requires.iter().map(|path| format!("test -e {}", quote_shell(path))).collect();
        gates.push(GateSpec { name: "requires".to_owned(), command: there.join(" && "), mend: None });
    }
    gates.extend(tests.map(|command| GateSpec { name: "tests".to_owned(), command, mend: None }));
    gates
}

fn quote_shell(path: &str) -> String {
    format!("'{}'", path.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use docket_schema::{
        ids::{IncarnationId, RunId, TaskId, TreeHash},
        run::ModelTerms,
        snapshot::WorkspaceBase,
    };

    use super::*;

    /// A run whose pinned roles have these tools.
    fn run_with_role_tools(may: &[&str]) -> RunState {
        let blob = BlobRef::for_bytes(b"prompt");
        let model = ModelRef { provider: "scripted".into(), name: "x".into(), base_url: None };
        let id = uuid::Uuid::from_u128(1);
        let role = RoleSpec {
            name: "coder".into(),
            model: model.clone(),
            system: blob,
            tools: blob,
            may: may.iter().map(|name| (*name).to_owned()).collect(),
            answer: None,
            temperature_milli: None,
            effort: None,
            context_tokens_max: 0,
            writes: docket_schema::run::WriteScope::Any,
        };
        let pins = RunStarted {
            task: TaskId(id),
            run: RunId(id),
            attempt: 1,
            engine: EngineRef { name: "team".into(), version: 1 },
            models: RunModels::single_model(model, ModelTerms::default()),
            settings: RunSettings::default(),
            prompts: RunPrompts { system: blob, tools: blob, task: blob },
            base: WorkspaceBase { manifest: blob, tree: TreeHash::ZERO, git: None },
            gates: vec![],
            tests: None,
            external: vec![],
            servers_left_out: vec![],
            linters: vec![],
            roles: vec![role],
            requires: vec![],
            policy: None,
            policies: vec![],
            sandbox: SandboxLayers::default(),
            worker: IncarnationId(id),
        };
        let mut run = RunState::default();
        run.pins = Some(Arc::new(pins));
        run
    }

    #[test]
    fn roles_are_pinned_only_after_a_fork_to_another_engine() {
        let defined = [RoleDefinition {
            tools: vec!["read_file".into()],
            ..RoleDefinition::new("coder", "You write.")
        }];
        let (same, other) = (&["read_file"][..], &["read_file", "write_file"][..]);
        for (may, is_due, defined, wanted) in [
            // The run was taken up by another build, or by the same one.
            (other, false, &defined[..], RolesToPin::Nothing),
            (same, false, &defined[..], RolesToPin::Nothing),
            (other, true, &defined[..], RolesToPin::FromEngine),
            // The same engine again: its tool set has to be restored.
            (same, true, &defined[..], RolesToPin::AsPinned),
            (same, true, &[], RolesToPin::Nothing),
        ] {
            let mut run = run_with_role_tools(may);
            run.roles_due = is_due;
            assert_eq!(roles_to_pin(&run, defined), wanted, "{may:?} {is_due}");
        }
    }
}

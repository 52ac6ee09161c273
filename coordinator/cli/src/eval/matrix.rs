//! The matrix of an evaluation: which tasks run with which engines and models, according to the suite,
//! docket.toml and the command line.

use docket_schema::{
    eval::SkippedEval,
    ids::TaskId,
    message::ModelRef,
    task::{RoleOverride, check_model},
};
use docket_worker::{
    model::{PriceTable, unknown_price_message},
    policy::PathGlob,
};

use super::{
    suite::{EvalSuite, EvalTask, is_scripted},
    suite_file::EngineName,
};
use crate::{
    context::CliContext,
    output::error::{CliError, CliResult, ExitKind, FailWith as _},
    tasks::role_overrides::{self, RoleFlags, RoleModel},
};

/// Maximum number of trials: they are one batch, submitted at once.
const TRIALS_MAX: usize = 2000;

/// The selection on the command line.
#[derive(Debug)]
pub(super) struct EvalSelection<'a> {
    /// Engines to use for every task.
    pub(super) engines: &'a [EngineName],
    /// Model to use for every task and role.
    pub(super) model: Option<ModelRef>,
    /// Models to use for these roles.
    pub(super) roles: &'a [RoleModel],
    /// Tasks to run.
    pub(super) task_globs: &'a [PathGlob],
}

/// A task with an engine.
#[derive(Debug)]
pub(super) struct EvalTrial<'a> {
    /// Its task id in the queue.
    pub(super) id: TaskId,
    pub(super) task: &'a EvalTask,
    pub(super) engine: EngineName,
    pub(super) model: ModelRef,
    /// Role overrides, as `docket submit` would set them.
    pub(super) roles: Vec<RoleOverride>,
    /// The exploration model.
    pub(super) explore_model: Option<ModelRef>,
    /// The fallback model.
    pub(super) fallback_model: Option<ModelRef>,
    /// The script of scripted models.
    pub(super) script: Option<&'a [u8]>,
}

impl EvalTrial<'_> {
    /// Returns all models it may call, the main one first.
    pub(super) fn models(&self) -> impl Iterator<Item = &ModelRef> {
        let beside = [self.explore_model.as_ref(), self.fallback_model.as_ref()].into_iter().flatten();
        let of_roles = self.roles.iter().filter_map(|role| role.model.as_ref());
        std::iter::once(&self.model).chain(beside).chain(of_roles)
    }
}

/// All trials in the order of the suite, and the skipped ones.
#[derive(Debug)]
pub(super) struct EvalMatrix<'a> {
    pub(super) trials: Vec<EvalTrial<'a>>,
    pub(super) skipped: Vec<SkippedEval>,
}

fn usage_error(message: impl Into<String>) -> CliError {
    CliError::new(ExitKind::Usage, message.into())
}

/// Returns an engine that is given more than once: a trial is identified by its task and engine.
pub(super) fn first_duplicate(engines: &[EngineName]) -> Option<&EngineName> {
    engines.iter().enumerate().find(|(at, engine)| engines[..*at].contains(engine)).map(|(_, engine)| engine)
}

impl<'a> EvalMatrix<'a> {
    /// Builds the matrix.
    ///
    /// # Errors
    /// Fails with a usage error when a task cannot be run as its file says, or when no trial is left.
    pub(super) fn build(
        cx: &CliContext,
        suite: &'a EvalSuite,
        choice: &EvalSelection<'_>,
    ) -> CliResult<Self> {
        if let Some(model) = &choice.model {
            check_model(model).map_err(|error| usage_error(format!("--base-url must be {}", error.must)))?;
        }
        if let Some(engine) = first_duplicate(choice.engines) {
            return Err(usage_error(format!("--engine {engine} is given twice")));
        }
        let prices = PriceTable::load(cx.config.prices_toml.as_deref()).fail_as(ExitKind::Usage)?;
        let mut matrix = Self { trials: Vec::new(), skipped: Vec::new() };
        let is_meant = |task: &EvalTask| {
            let path = task.filter_path();
            choice.task_globs.is_empty() || choice.task_globs.iter().any(|glob| glob.matches(&path))
        };
        for task in suite.tasks.iter().filter(|task| is_meant(task)) {
            let model =
                choice.model.clone().or_else(|| task.model.clone()).or_else(|| cx.config.model.clone());
            let model = model.ok_or_else(|| {
                task.file.error_at("model", "it is missing in the task, the suite's defaults and --model")
            })?;
            matrix.add_task(cx, task, &model, choice)?;
        }
        for one in &matrix.trials {
            let mut models = one.models().filter(|_| one.task.settings.cost_max_nusd.is_some());
            if let Some(model) = models.find(|model| !prices.entry_for(model).is_known) {
                return Err(one.task.file.error_at("limits.cost", unknown_price_message(model)));
            }
        }
        if matrix.trials.is_empty() {
            let why = matrix.skipped.first().map_or_else(
                || "--only matches none of its tasks".to_owned(),
                |left| format!("{}: {}", left.task, left.why),
            );
            return Err(usage_error(format!("the suite `{}` has nothing to run: {why}", suite.name)));
        }
        if matrix.trials.len() > TRIALS_MAX {
            let tries = matrix.trials.len();
            return Err(usage_error(format!(
                "{tries} trials exceed the limit of {TRIALS_MAX} per evaluation"
            )));
        }
        Ok(matrix)
    }

    fn add_task(
        &mut self,
        cx: &CliContext,
        task: &'a EvalTask,
        model: &ModelRef,
        choice: &EvalSelection<'_>,
    ) -> CliResult<()> {
        let asked = choice.engines;
        let engines = if asked.is_empty() { &task.engines } else { asked };
        for engine in engines {
            let script = task.script_for(engine).filter(|_| is_scripted(model));
            if is_scripted(model) && script.is_none() {
                if asked.is_empty() {
                    let why = format!("the model {model} needs a script for the engine `{engine}`");
                    return Err(task.file.error_at("scripts", why));
                }
                self.skipped.push(SkippedEval {
                    task: task.name.clone(),
                    engine: Some(engine.to_string()),
                    why: format!("it has no script for the engine `{engine}`"),
                });
                continue;
            }
            let id = TaskId(docket_coordinator::clock::new_id());
            let beside = |configured: &Option<ModelRef>| {
                let configured = configured
                    .clone()
                    .filter(|other| choice.model.is_none() && is_same_model_kind(model, other));
                role_overrides::secondary_model(model, configured)
            };
            let (explore, fallback) = (beside(&cx.config.explore_model)?, beside(&cx.config.fallback_model)?);
            let roles = trial_roles(cx, engine, model, choice)?;
            let (engine, model) = (engine.clone(), model.clone());
            self.trials.push(EvalTrial {
                id,
                task,
                engine,
                model,
                roles,
                explore_model: explore,
                fallback_model: fallback,
                script,
            });
        }
        Ok(())
    }
}

/// Whether both models are scripted or both are not: a task with a script needs no key, whatever docket.toml
/// configures.
fn is_same_model_kind(main: &ModelRef, other: &ModelRef) -> bool {
    is_scripted(main) == is_scripted(other)
}

/// Resolves the role overrides of a trial.
fn trial_roles(
    cx: &CliContext,
    engine: &EngineName,
    main: &ModelRef,
    choice: &EvalSelection<'_>,
) -> CliResult<Vec<RoleOverride>> {
    if let Some(role) = choice.roles.iter().find(|role| !is_same_model_kind(main, role.model())) {
        let (name, model) = (role.name(), role.model());
        return Err(usage_error(format!(
            "--role {name}={model}: the models of a task must all be scripted or all real, and its main model is \
             {main}; give a model of the same kind, or exclude such tasks with --only"
        )));
    }
    let flags = RoleFlags { model: choice.model.as_ref(), roles: choice.roles };
    let mut asked = role_overrides::resolve_role_overrides(cx, &engine.to_string(), main, flags)?;
    for role in &mut asked {
        role.model = role.model.take().filter(|model| is_same_model_kind(main, model));
    }
    Ok(asked)
}

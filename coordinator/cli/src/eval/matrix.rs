//! Which task is tried with which engine and models: the suite, docket.toml, and what the command line says of them.

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

/// Tries of one evaluation at most: they are one batch, submitted at once.
const TRIALS_MAX: usize = 2000;

/// What the command line says.
#[derive(Debug)]
pub(super) struct EvalSelection<'a> {
    /// These engines, for each task.
    pub(super) engines: &'a [EngineName],
    /// This model, for each task and in each role.
    pub(super) model: Option<ModelRef>,
    /// These models, in these roles.
    pub(super) roles: &'a [RoleModel],
    /// These tasks.
    pub(super) task_globs: &'a [PathGlob],
}

/// A task with an engine.
#[derive(Debug)]
pub(super) struct EvalTrial<'a> {
    /// Its id in the queue.
    pub(super) id: TaskId,
    pub(super) task: &'a EvalTask,
    pub(super) engine: EngineName,
    pub(super) model: ModelRef,
    /// What is asked of the engine's roles, as `docket submit` would ask.
    pub(super) roles: Vec<RoleOverride>,
    /// Looks around until something is to be changed.
    pub(super) explore_model: Option<ModelRef>,
    /// Stands in where one stays overloaded.
    pub(super) fallback_model: Option<ModelRef>,
    /// The script that the models follow.
    pub(super) script: Option<&'a [u8]>,
}

impl EvalTrial<'_> {
    /// All models that it may ask, the main one first.
    pub(super) fn models(&self) -> impl Iterator<Item = &ModelRef> {
        let beside = [self.explore_model.as_ref(), self.fallback_model.as_ref()].into_iter().flatten();
        let of_roles = self.roles.iter().filter_map(|role| role.model.as_ref());
        std::iter::once(&self.model).chain(beside).chain(of_roles)
    }
}

/// All tries, in the order of the suite, and what is left out.
#[derive(Debug)]
pub(super) struct EvalMatrix<'a> {
    pub(super) trials: Vec<EvalTrial<'a>>,
    pub(super) skipped: Vec<SkippedEval>,
}

fn usage_error(message: impl Into<String>) -> CliError {
    CliError::new(ExitKind::Usage, message.into())
}

/// An engine that is named more than once: a try is known by its task and its engine.
pub(super) fn first_duplicate(engines: &[EngineName]) -> Option<&EngineName> {
    engines.iter().enumerate().find(|(at, engine)| engines[..*at].contains(engine)).map(|(_, engine)| engine)
}

impl<'a> EvalMatrix<'a> {
    /// Lays them out.
    ///
    /// # Errors
    /// Usage: a task cannot be tried as its file says, or nothing is left to try.
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
                task.file.error_at("model", "it is missing, here, in the suite's defaults and in --model")
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
                || "--only means none of its tasks".to_owned(),
                |left| format!("{}: {}", left.task, left.why),
            );
            return Err(usage_error(format!("nothing of the suite `{}` can be tried: {why}", suite.name)));
        }
        if matrix.trials.len() > TRIALS_MAX {
            let tries = matrix.trials.len();
            return Err(usage_error(format!(
                "that is {tries} tries, more than the {TRIALS_MAX} of one evaluation"
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
                    let why = format!("the model {model} needs one for the engine `{engine}`");
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

/// Whether both follow scripts, or neither does: a task with a script needs no key, whatever docket.toml names.
fn is_same_model_kind(main: &ModelRef, other: &ModelRef) -> bool {
    is_scripted(main) == is_scripted(other)
}

/// Who plays the roles of a try.
fn trial_roles(
    cx: &CliContext,
    engine: &EngineName,
    main: &ModelRef,
    choice: &EvalSelection<'_>,
) -> CliResult<Vec<RoleOverride>> {
    if let Some(role) = choice.roles.iter().find(|role| !is_same_model_kind(main, role.model())) {
        let (name, model) = (role.name(), role.model());
        return Err(usage_error(format!(
            "--role {name}={model}: the models of a task follow its script or none of them does, and its main model is \
             {main}; name one of the same kind, or leave the tasks with the other kind out by --only"
        )));
    }
    let flags = RoleFlags { model: choice.model.as_ref(), roles: choice.roles };
    let mut asked = role_overrides::resolve_role_overrides(cx, &engine.to_string(), main, flags)?;
    for role in &mut asked {
        role.model = role.model.take().filter(|model| is_same_model_kind(main, model));
    }
    Ok(asked)
}

//! Which task is tried with which engine and models: the suite, docket.toml, and what the command line says of them.

use docket_schema::{
    eval::EvalLeftOut,
    ids::TaskId,
    message::ModelRef,
    task::{RoleAsked, check_model},
};
use docket_worker::{
    model::{PriceTable, unpriced},
    policy::PathGlob,
};

use super::{
    form::EngineName,
    suite::{Suite, Task, is_scripted},
};
use crate::{
    context::Context,
    output::fail::{Exit, FailWith as _, Failure, Outcome},
    tasks::roles::{self, Flags, RoleModel},
};

/// Tries of one evaluation at most: they are one batch, submitted at once.
const TRIES_MAX: usize = 2000;

/// What the command line says.
#[derive(Debug)]
pub(super) struct Choice<'a> {
    /// These engines, for each task.
    pub(super) engines: &'a [EngineName],
    /// This model, for each task and in each role.
    pub(super) model: Option<ModelRef>,
    /// These models, in these roles.
    pub(super) roles: &'a [RoleModel],
    /// These tasks.
    pub(super) only: &'a [PathGlob],
}

/// A task with an engine.
#[derive(Debug)]
pub(super) struct Try<'a> {
    /// Its id in the queue.
    pub(super) id: TaskId,
    pub(super) task: &'a Task,
    pub(super) engine: EngineName,
    pub(super) model: ModelRef,
    /// What is asked of the engine's roles, as `docket submit` would ask.
    pub(super) roles: Vec<RoleAsked>,
    /// Looks around until something is to be changed.
    pub(super) explore: Option<ModelRef>,
    /// Stands in where one stays overloaded.
    pub(super) fallback: Option<ModelRef>,
    /// The script that the models follow.
    pub(super) script: Option<&'a [u8]>,
}

impl Try<'_> {
    /// All models that it may ask, the main one first.
    pub(super) fn models(&self) -> impl Iterator<Item = &ModelRef> {
        let beside = [self.explore.as_ref(), self.fallback.as_ref()].into_iter().flatten();
        let of_roles = self.roles.iter().filter_map(|role| role.model.as_ref());
        std::iter::once(&self.model).chain(beside).chain(of_roles)
    }
}

/// All tries, in the order of the suite, and what is left out.
#[derive(Debug)]
pub(super) struct Matrix<'a> {
    pub(super) tries: Vec<Try<'a>>,
    pub(super) left_out: Vec<EvalLeftOut>,
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Exit::Usage, message.into())
}

/// An engine that is named more than once: a try is known by its task and its engine.
pub(super) fn twice(engines: &[EngineName]) -> Option<&EngineName> {
    engines.iter().enumerate().find(|(at, engine)| engines[..*at].contains(engine)).map(|(_, engine)| engine)
}

impl<'a> Matrix<'a> {
    /// Lays them out.
    ///
    /// # Errors
    /// Usage: a task cannot be tried as its file says, or nothing is left to try.
    pub(super) fn of(cx: &Context, suite: &'a Suite, choice: &Choice<'_>) -> Outcome<Self> {
        if let Some(model) = &choice.model {
            check_model(model).map_err(|error| usage(format!("--base-url must be {}", error.must)))?;
        }
        if let Some(engine) = twice(choice.engines) {
            return Err(usage(format!("--engine {engine} is given twice")));
        }
        let prices = PriceTable::load(cx.config.prices_toml.as_deref()).fail_as(Exit::Usage)?;
        let mut matrix = Self { tries: Vec::new(), left_out: Vec::new() };
        let is_meant = |task: &Task| {
            let path = task.path();
            choice.only.is_empty() || choice.only.iter().any(|glob| glob.means(&path))
        };
        for task in suite.tasks.iter().filter(|task| is_meant(task)) {
            let model =
                choice.model.clone().or_else(|| task.model.clone()).or_else(|| cx.config.model.clone());
            let model = model.ok_or_else(|| {
                task.file.wrong("model", "it is missing, here, in the suite's defaults and in --model")
            })?;
            matrix.add(cx, task, &model, choice)?;
        }
        for one in &matrix.tries {
            let mut models = one.models().filter(|_| one.task.settings.cost_max_nusd.is_some());
            if let Some(model) = models.find(|model| !prices.of(model).known) {
                return Err(one.task.file.wrong("limits.cost", unpriced(model)));
            }
        }
        if matrix.tries.is_empty() {
            let why = matrix.left_out.first().map_or_else(
                || "--only means none of its tasks".to_owned(),
                |left| format!("{}: {}", left.task, left.why),
            );
            return Err(usage(format!("nothing of the suite `{}` can be tried: {why}", suite.name)));
        }
        if matrix.tries.len() > TRIES_MAX {
            let tries = matrix.tries.len();
            return Err(usage(format!("that is {tries} tries, more than the {TRIES_MAX} of one evaluation")));
        }
        Ok(matrix)
    }

    fn add(&mut self, cx: &Context, task: &'a Task, model: &ModelRef, choice: &Choice<'_>) -> Outcome<()> {
        let asked = choice.engines;
        let engines = if asked.is_empty() { &task.engines } else { asked };
        for engine in engines {
            let script = task.script(engine).filter(|_| is_scripted(model));
            if is_scripted(model) && script.is_none() {
                if asked.is_empty() {
                    let why = format!("the model {model} needs one for the engine `{engine}`");
                    return Err(task.file.wrong("scripts", why));
                }
                self.left_out.push(EvalLeftOut {
                    task: task.name.clone(),
                    engine: Some(engine.to_string()),
                    why: format!("it has no script for the engine `{engine}`"),
                });
                continue;
            }
            let id = TaskId(docket_coordinator::clock::new_id());
            let beside = |configured: &Option<ModelRef>| {
                let configured =
                    configured.clone().filter(|other| choice.model.is_none() && is_with(model, other));
                roles::beside(model, configured)
            };
            let (explore, fallback) = (beside(&cx.config.explore_model)?, beside(&cx.config.fallback_model)?);
            let roles = played(cx, engine, model, choice)?;
            let (engine, model) = (engine.clone(), model.clone());
            self.tries.push(Try { id, task, engine, model, roles, explore, fallback, script });
        }
        Ok(())
    }
}

/// Whether both follow scripts, or neither does: a task with a script needs no key, whatever docket.toml names.
fn is_with(main: &ModelRef, other: &ModelRef) -> bool {
    is_scripted(main) == is_scripted(other)
}

/// Who plays the roles of a try.
fn played(
    cx: &Context,
    engine: &EngineName,
    main: &ModelRef,
    choice: &Choice<'_>,
) -> Outcome<Vec<RoleAsked>> {
    if let Some(role) = choice.roles.iter().find(|role| !is_with(main, role.model())) {
        let (name, model) = (role.name(), role.model());
        return Err(usage(format!(
            "--role {name}={model}: the models of a task follow its script or none of them does, and its main model is \
             {main}; name one of the same kind, or leave the tasks with the other kind out by --only"
        )));
    }
    let flags = Flags { model: choice.model.as_ref(), roles: choice.roles };
    let mut asked = roles::asked(cx, &engine.to_string(), main, flags)?;
    for role in &mut asked {
        role.model = role.model.take().filter(|model| is_with(main, model));
    }
    Ok(asked)
}

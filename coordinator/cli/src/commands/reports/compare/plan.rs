//! Plans a comparison: the variants given by flags, and each task for each variant.

use std::{collections::BTreeSet, path::Path};

use docket_schema::{ids::BatchId, message::ModelRef, task::TaskSpec};
use docket_worker::client::CoordinatorClient;

use super::{COMPARED_MAX, CompareArgs, figures::ComparedVariant};
use crate::{
    config::values::check_base_url,
    context::CliContext,
    output::error::{CliError, CliResult, ExitKind, FailWith as _},
    tasks::{
        backlog::{self, BacklogLine},
        role_overrides::{self, RoleModel},
        task_args::{PreparedTask, TaskArgs},
        task_checks::{SourceChecks, SourceFields},
    },
};

/// An optional explore or fallback model.
#[derive(Debug, Clone)]
pub(super) struct OptionalModel(Option<ModelRef>);

/// Parses an optional model; empty means none.
pub(super) fn parse_optional_model(text: &str) -> Result<OptionalModel, String> {
    if text.is_empty() {
        Ok(OptionalModel(None))
    } else {
        crate::config::values::parse_model(text).map(|model| OptionalModel(Some(model)))
    }
}

/// A task of the comparison, as specified.
struct PlannedTask {
    prepared: PreparedTask,
    line: Option<BacklogLine>,
}

/// Contents of an input file.
enum CompareInput {
    BacklogLines(Vec<BacklogLine>),
    /// One task, with its text if it came from standard input.
    SingleTask(Option<String>),
}

impl CompareInput {
    fn read(file: &Path) -> CliResult<Self> {
        if file.as_os_str() != "-" {
            return if backlog::is_backlog(file) {
                backlog::read_backlog(file).map(Self::BacklogLines)
            } else {
                Ok(Self::SingleTask(None))
            };
        }
        let text = std::io::read_to_string(std::io::stdin().lock()).fail_with(ExitKind::Usage, || {
            "cannot read the task from standard input; it must be UTF-8".to_owned()
        })?;
        // Every line of a backlog starts with a brace; a task in prose does not.
        if text.trim_start_matches('\u{feff}').trim_start().starts_with('{') {
            return backlog::parse_tasks(&text, "standard input").map(Self::BacklogLines);
        }
        Ok(Self::SingleTask(Some(text)))
    }
}

/// Returns the flag's value for the `nth` model; a flag is given once for all models or once for
/// each.
fn nth_value<T>(given: &[T], nth: usize) -> Option<&T> {
    if let [only] = given { Some(only) } else { given.get(nth) }
}

fn usage_error<T>(message: impl Into<String>) -> CliResult<T> {
    Err(CliError::new(ExitKind::Usage, message.into()))
}

impl CompareArgs {
    fn check_counts(&self) -> CliResult<()> {
        for (flag, given) in [
            ("--base-url", self.base_url.len()),
            ("--explore-model", self.explore_model.len()),
            ("--fallback-model", self.fallback_model.len()),
        ] {
            if given > 1 && given != self.model.len() {
                return usage_error(format!(
                    "{flag} is given {given} times for {} models: give it once for all, or once for each",
                    self.model.len()
                ));
            }
        }
        Ok(())
    }

    /// Returns each model combined with each engine.
    pub(super) fn variants(&self, cx: &CliContext) -> CliResult<Vec<ComparedVariant>> {
        self.check_counts()?;
        let engines =
            if self.engine.is_empty() { vec![cx.config.engine.clone()] } else { self.engine.clone() };
        let mut variants: Vec<ComparedVariant> = Vec::new();
        for (nth, model) in self.model.iter().enumerate() {
            let base_url = nth_value(&self.base_url, nth).filter(|url| !url.is_empty()).cloned();
            let model = ModelRef { base_url, ..model.clone() };
            check_base_url(&model)?;
            let beside = |given: &[OptionalModel]| -> CliResult<Option<ModelRef>> {
                let Some(OptionalModel(Some(other))) = nth_value(given, nth) else { return Ok(None) };
                let base_url = model.base_url.clone().filter(|_| other.provider == model.provider);
                let other = ModelRef { base_url, ..other.clone() };
                Ok((other != model).then_some(other))
            };
            let (explore, fallback) = (beside(&self.explore_model)?, beside(&self.fallback_model)?);
            let all = [Some(&model), explore.as_ref(), fallback.as_ref()].into_iter().flatten();
            if let Some(scripted) =
                all.chain(self.role.iter().map(RoleModel::model)).find(|one| one.provider == "scripted")
            {
                return usage_error(format!(
                    "{scripted} has a script for a single task; compare real models"
                ));
            }
            for engine in &engines {
                let variant = ComparedVariant {
                    model: model.clone(),
                    explore: explore.clone(),
                    fallback: fallback.clone(),
                    engine: engine.clone(),
                };
                if variants.contains(&variant) {
                    return usage_error(format!(
                        "{model} with {engine} is given twice; use --repeat to run it more often"
                    ));
                }
                variants.push(variant);
            }
        }
        if variants.len() < 2 {
            return usage_error("nothing to compare: give --model or --engine at least twice");
        }
        Ok(variants)
    }

    fn task_args(
        &self,
        file: Option<&Path>,
        line: Option<&BacklogLine>,
        variant: &ComparedVariant,
    ) -> TaskArgs {
        TaskArgs {
            text: line.map(|line| line.text.clone()),
            file: file.map(Path::to_owned),
            repo: self.repo.clone(),
            empty: self.empty,
            commit: self.commit.clone(),
            include_dirty: false,
            push: false,
            model: Some(variant.model.clone()),
            base_url: None,
            script: None,
            engine: Some(variant.engine.clone()),
            queue: self.queue.clone(),
            priority: 0,
            at: None,
            dedup: None,
            tests: self.tests.clone(),
            branch: None,
            require: self.require.clone(),
            setup: self.setup.clone(),
            policy: None,
            tools: None,
            turns: self.turns,
            explore_model: None,
            fallback_model: None,
            role: Vec::new(),
            complexity: self.complexity,
            delegate: None,
            effort: self.effort,
            temperature: self.temperature,
            max_tokens: self.max_tokens,
            max_cost: self.max_cost,
            max_time: self.max_time,
            // A retry would hide the first failure.
            attempts: 1,
            conditions: crate::tasks::conditions::ConditionArgs::default(),
        }
    }

    /// Returns all tasks in the order of the files.
    fn plan_tasks(&self, cx: &CliContext, variant: &ComparedVariant) -> CliResult<Vec<PlannedTask>> {
        let mut all = Vec::new();
        for file in &self.files {
            let lines = match CompareInput::read(file)? {
                CompareInput::BacklogLines(lines) => lines,
                CompareInput::SingleTask(text) => {
                    let file = text.is_none().then_some(file.as_path());
                    let args = TaskArgs { text, ..self.task_args(file, None, variant) };
                    all.push(PlannedTask { prepared: args.check_flags(cx)?, line: None });
                    continue;
                }
            };
            for line in lines {
                let mut asked = self.task_args(None, Some(&line), variant).check_flags(cx)?;
                asked.title = line.title.clone().unwrap_or(asked.title);
                all.push(PlannedTask { prepared: asked, line: Some(line) });
            }
        }
        let texts: BTreeSet<_> = all.iter().map(|one| (&one.prepared.title, &one.prepared.text)).collect();
        if texts.len() < all.len() {
            return usage_error("two files contain the same task; use --repeat to run it more often");
        }
        Ok(all)
    }

    /// Builds every task for every variant and repetition. Reports all errors before anything is
    /// submitted.
    pub(super) async fn build_specs(
        &self,
        cx: &CliContext,
        client: &CoordinatorClient,
        variants: &[ComparedVariant],
    ) -> CliResult<Vec<TaskSpec>> {
        if self.repo.is_none() && !self.empty {
            return usage_error("specify --repo DIR, or --empty for no repository");
        }
        // Checks every variant for an unknown engine, and for an unknown price if there is a budget.
        for variant in variants {
            let task = self.task_args(None, None, variant);
            task.check_engine(cx)?;
            let beside = [&variant.explore, &variant.fallback].into_iter().flatten();
            let of_roles = self.role.iter().map(RoleModel::model);
            task.check_prices(cx, std::iter::once(&variant.model).chain(beside).chain(of_roles))?;
        }
        let roles = variants
            .iter()
            .map(|variant| role_overrides::overrides_from_flags(&variant.engine, &self.role, &variant.model));
        let roles = roles.collect::<CliResult<Vec<_>>>()?;
        let wanted = self.plan_tasks(cx, &variants[0])?;
        let mut sources = SourceChecks::new(cx);
        let of_lines = wanted.iter().filter_map(|one| one.line.as_ref());
        let lines = of_lines.map(|line| (line.tests.as_deref(), &line.setup[..]));
        for (tests, setup) in lines.chain([(self.tests.as_deref(), &self.setup[..])]) {
            let fields =
                SourceFields { tests, setup, repository: self.repo.as_deref(), branch: None, push: false };
            sources.check(fields).await??;
        }
        let count = wanted.len() * variants.len() * self.repeat as usize;
        if count > COMPARED_MAX {
            return usage_error(format!("this makes {count} tasks, more than the limit of {COMPARED_MAX}"));
        }
        let mut texts = Vec::with_capacity(wanted.len());
        let mut one = None;
        for PlannedTask { prepared: asked, line } in wanted {
            texts.push((asked.title.clone(), asked.text.clone(), line));
            if one.is_none() {
                // Pinned once, so that all tasks start from the same commit.
                one =
                    Some(self.task_args(None, None, &variants[0]).build_spec(cx, client, asked, None).await?);
            }
        }
        let Some(one) = one else { return usage_error("there are no tasks to compare") };
        let batch = Some(BatchId(docket_coordinator::clock::new_id()));
        let mut specs = Vec::with_capacity(count);
        // Variants alternate, so that changes on the machine or at a provider affect all of them.
        for _ in 0..self.repeat {
            for (title, text, line) in &texts {
                specs.extend(variants.iter().zip(&roles).map(|(variant, roles)| {
                    let spec = TaskSpec {
                        title: title.clone(),
                        text: text.clone(),
                        model: variant.model.clone(),
                        // Only the models given here are compared, not additional ones from the configuration.
                        explore_model: variant.explore.clone(),
                        fallback_model: variant.fallback.clone(),
                        roles: roles.clone(),
                        engine: variant.engine.clone(),
                        batch,
                        ..one.clone()
                    };
                    line.as_ref().map_or(spec.clone(), |line| apply_line(spec, line))
                }));
            }
        }
        for spec in &specs {
            spec.check().fail_as(ExitKind::Usage)?;
        }
        Ok(specs)
    }
}

/// Applies the values of a backlog line over those of the flags.
fn apply_line(mut spec: TaskSpec, line: &BacklogLine) -> TaskSpec {
    if line.tests.is_some() {
        spec.tests.clone_from(&line.tests);
    }
    spec.requires.extend(line.requires.iter().cloned());
    spec.setup.extend(line.setup.iter().cloned());
    if line.rules.is_some() {
        spec.policy.clone_from(&line.rules);
    }
    spec
}

//! What is compared: the variants that the flags name, and each task for each of them.

use std::{collections::BTreeSet, path::Path};

use docket_schema::{ids::BatchId, message::ModelRef, task::TaskSpec};
use docket_worker::client::Client;

use super::{Args, COMPARED_MAX, figures::Variant};
use crate::{
    config::values::check_address,
    context::Context,
    output::fail::{Exit, FailWith as _, Failure, Outcome},
    tasks::{
        backlog::{self, Line},
        roles::{self, RoleModel},
        task_args::{Asked, TaskArgs},
        task_checks::{SourceChecks, SourceFields},
    },
};

/// A model beside the main one, or none.
#[derive(Debug, Clone)]
pub(super) struct Other(Option<ModelRef>);

/// Reads one.
pub(super) fn other(text: &str) -> Result<Other, String> {
    if text.is_empty() {
        Ok(Other(None))
    } else {
        crate::config::values::model(text).map(|model| Other(Some(model)))
    }
}

/// A task of the comparison, as it is asked.
struct Wanted {
    asked: Asked,
    line: Option<Line>,
}

/// What a file holds.
enum Lines {
    Backlog(Vec<Line>),
    /// One task; its text, where it came from standard input.
    Task(Option<String>),
}

impl Lines {
    fn of(file: &Path) -> Outcome<Self> {
        if file.as_os_str() != "-" {
            return if backlog::is_backlog(file) {
                backlog::read(file).map(Self::Backlog)
            } else {
                Ok(Self::Task(None))
            };
        }
        let text = std::io::read_to_string(std::io::stdin().lock())
            .fail_with(Exit::Usage, || "cannot read the task from standard input; is it UTF-8?".to_owned())?;
        // No task in words begins so, and each line of a backlog does.
        if text.trim_start_matches('\u{feff}').trim_start().starts_with('{') {
            return backlog::tasks(&text, "standard input").map(Self::Backlog);
        }
        Ok(Self::Task(Some(text)))
    }
}

/// What a flag says of the `nth` model: it is given once for all of them, or once for each.
fn nth_of<T>(given: &[T], nth: usize) -> Option<&T> {
    if let [only] = given { Some(only) } else { given.get(nth) }
}

fn usage<T>(message: impl Into<String>) -> Outcome<T> {
    Err(Failure::new(Exit::Usage, message.into()))
}

impl Args {
    fn check_counts(&self) -> Outcome<()> {
        for (flag, given) in [
            ("--base-url", self.base_url.len()),
            ("--explore-model", self.explore_model.len()),
            ("--fallback-model", self.fallback_model.len()),
        ] {
            if given > 1 && given != self.model.len() {
                return usage(format!(
                    "{flag} is given {given} times for {} models: give it once for all, or once for each",
                    self.model.len()
                ));
            }
        }
        Ok(())
    }

    /// Each model with each engine.
    pub(super) fn variants(&self, cx: &Context) -> Outcome<Vec<Variant>> {
        self.check_counts()?;
        let engines =
            if self.engine.is_empty() { vec![cx.config.engine.clone()] } else { self.engine.clone() };
        let mut variants: Vec<Variant> = Vec::new();
        for (nth, model) in self.model.iter().enumerate() {
            let base_url = nth_of(&self.base_url, nth).filter(|url| !url.is_empty()).cloned();
            let model = ModelRef { base_url, ..model.clone() };
            check_address(&model)?;
            let beside = |given: &[Other]| -> Outcome<Option<ModelRef>> {
                let Some(Other(Some(other))) = nth_of(given, nth) else { return Ok(None) };
                let base_url = model.base_url.clone().filter(|_| other.provider == model.provider);
                let other = ModelRef { base_url, ..other.clone() };
                Ok((other != model).then_some(other))
            };
            let (explore, fallback) = (beside(&self.explore_model)?, beside(&self.fallback_model)?);
            let all = [Some(&model), explore.as_ref(), fallback.as_ref()].into_iter().flatten();
            if let Some(scripted) =
                all.chain(self.role.iter().map(RoleModel::model)).find(|one| one.provider == "scripted")
            {
                return usage(format!(
                    "{scripted} has one script for one task; compare models that are asked"
                ));
            }
            for engine in &engines {
                let variant = Variant {
                    model: model.clone(),
                    explore: explore.clone(),
                    fallback: fallback.clone(),
                    engine: engine.clone(),
                };
                if variants.contains(&variant) {
                    return usage(format!(
                        "{model} with {engine} is given twice; --repeat tries it more often"
                    ));
                }
                variants.push(variant);
            }
        }
        if variants.len() < 2 {
            return usage("there is nothing to compare: give --model, or --engine, twice or more");
        }
        Ok(variants)
    }

    fn task(&self, file: Option<&Path>, line: Option<&Line>, variant: &Variant) -> TaskArgs {
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
            // A second try would hide that the first failed.
            attempts: 1,
            conditions: crate::tasks::conditions::ConditionArgs::default(),
        }
    }

    /// All tasks, in the order of the files.
    fn wanted(&self, cx: &Context, variant: &Variant) -> Outcome<Vec<Wanted>> {
        let mut all = Vec::new();
        for file in &self.files {
            let lines = match Lines::of(file)? {
                Lines::Backlog(lines) => lines,
                Lines::Task(text) => {
                    let file = text.is_none().then_some(file.as_path());
                    let args = TaskArgs { text, ..self.task(file, None, variant) };
                    all.push(Wanted { asked: args.check(cx)?, line: None });
                    continue;
                }
            };
            for line in lines {
                let mut asked = self.task(None, Some(&line), variant).check(cx)?;
                asked.title = line.title.clone().unwrap_or(asked.title);
                all.push(Wanted { asked, line: Some(line) });
            }
        }
        let texts: BTreeSet<_> = all.iter().map(|one| (&one.asked.title, &one.asked.text)).collect();
        if texts.len() < all.len() {
            return usage("two files hold the same task; --repeat tries it more often");
        }
        Ok(all)
    }

    /// Every task for every variant, as often as wanted; what can be wrong is told before anything is sent.
    pub(super) async fn specs(
        &self,
        cx: &Context,
        client: &Client,
        variants: &[Variant],
    ) -> Outcome<Vec<TaskSpec>> {
        if self.repo.is_none() && !self.empty {
            return usage("give --repo DIR, or --empty for none");
        }
        // An engine that this build lacks is told here, of every variant, and a price that a budget lacks.
        for variant in variants {
            let task = self.task(None, None, variant);
            task.check_engine(cx)?;
            let beside = [&variant.explore, &variant.fallback].into_iter().flatten();
            let of_roles = self.role.iter().map(RoleModel::model);
            task.check_prices(cx, std::iter::once(&variant.model).chain(beside).chain(of_roles))?;
        }
        let roles = variants.iter().map(|variant| roles::named(&variant.engine, &self.role, &variant.model));
        let roles = roles.collect::<Outcome<Vec<_>>>()?;
        let wanted = self.wanted(cx, &variants[0])?;
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
            return usage(format!(
                "that is {count} tasks, more than the {COMPARED_MAX} that are compared at once"
            ));
        }
        let mut texts = Vec::with_capacity(wanted.len());
        let mut one = None;
        for Wanted { asked, line } in wanted {
            texts.push((asked.title.clone(), asked.text.clone(), line));
            if one.is_none() {
                // One pin for all of them: they start from the same commit.
                one = Some(self.task(None, None, &variants[0]).spec(cx, client, asked, None).await?);
            }
        }
        let Some(one) = one else { return usage("there is no task to compare with") };
        let batch = Some(BatchId(docket_coordinator::clock::new_id()));
        let mut specs = Vec::with_capacity(count);
        // Variants take turns: what changes on the machine or at a provider meets all of them.
        for _ in 0..self.repeat {
            for (title, text, line) in &texts {
                specs.extend(variants.iter().zip(&roles).map(|(variant, roles)| {
                    let spec = TaskSpec {
                        title: title.clone(),
                        text: text.clone(),
                        model: variant.model.clone(),
                        // What is compared is what was named here, and not what is configured beside it.
                        explore_model: variant.explore.clone(),
                        fallback_model: variant.fallback.clone(),
                        roles: roles.clone(),
                        engine: variant.engine.clone(),
                        batch,
                        ..one.clone()
                    };
                    line.as_ref().map_or(spec.clone(), |line| with(spec, line))
                }));
            }
        }
        for spec in &specs {
            spec.check().fail_as(Exit::Usage)?;
        }
        Ok(specs)
    }
}

/// What a line of a backlog says goes over the flags, or beside them.
fn with(mut spec: TaskSpec, line: &Line) -> TaskSpec {
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

//! Who plays the roles of a task's engine: flags over settings, and one model over all of them.

use docket_schema::{message::ModelRef, task::RoleAsked};
use docket_worker::engine::{self, Engine as _, Team};

use crate::{
    config::values,
    context::Context,
    output::fail::{Exit, Failure, Outcome},
};

/// `--role NAME=MODEL`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoleModel {
    name: String,
    model: ModelRef,
}

impl RoleModel {
    /// The role.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The model.
    pub(crate) const fn model(&self) -> &ModelRef {
        &self.model
    }
}

/// What is asked of an engine's roles by flags alone, beside a main model.
pub(crate) fn named(engine: &str, roles: &[RoleModel], main: &ModelRef) -> Outcome<Vec<RoleAsked>> {
    let mut asked = merged((&[], &[]), engine, Flags { model: None, roles })
        .map_err(|message| Failure::new(Exit::Usage, message))?;
    for role in &mut asked {
        role.model = beside(main, role.model.take())?;
    }
    Ok(asked)
}

/// Reads one.
pub(crate) fn role(text: &str) -> Result<RoleModel, String> {
    let (name, model) = text.split_once('=').ok_or("it must be NAME=MODEL, as coder=openai:gpt-4.1-mini")?;
    Ok(RoleModel { name: name.trim().to_owned(), model: values::model(model.trim())? })
}

/// What flags say of models.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flags<'a> {
    /// `--model`: of every role.
    pub(crate) model: Option<&'a ModelRef>,
    /// `--role`.
    pub(crate) roles: &'a [RoleModel],
}

/// What a task asks of the roles of its engine, in their order: flags over settings; none names the main model again.
pub(crate) fn asked(
    cx: &Context,
    engine: &str,
    main: &ModelRef,
    flags: Flags<'_>,
) -> Outcome<Vec<RoleAsked>> {
    let settings = (&cx.config.roles[..], &cx.config.team.roles[..]);
    let mut asked = merged(settings, engine, flags).map_err(|message| Failure::new(Exit::Usage, message))?;
    for role in &mut asked {
        role.model = beside(main, role.model.take())?;
    }
    Ok(asked)
}

/// A model beside the main one, asked at the same server where it says none; none where it is the main one again.
pub(crate) fn beside(main: &ModelRef, model: Option<ModelRef>) -> Outcome<Option<ModelRef>> {
    let Some(model) = model else { return Ok(None) };
    let same = model.provider == main.provider;
    let base_url = model.base_url.or_else(|| main.base_url.clone().filter(|_| same));
    let model = ModelRef { base_url, ..model };
    values::check_address(&model)?;
    Ok((model != *main).then_some(model))
}

/// Why runs of an engine with these roles give nothing away.
pub(crate) fn gives_nothing_away(engine: &str, asked: &[RoleAsked]) -> Option<String> {
    let defined = engine::roles_of(&*engine::newest(engine)?, asked).ok()?;
    engine::gives_nothing_away(engine, &defined)
}

fn merged(
    (configured, team): (&[RoleAsked], &[RoleAsked]),
    engine: &str,
    flags: Flags<'_>,
) -> Result<Vec<RoleAsked>, String> {
    // An engine that there is not is told elsewhere.
    let Some(engine) = engine::newest(engine) else { return Ok(Vec::new()) };
    // Settings are for all engines: what they say of another one's roles is not this one's.
    let mut asked: Vec<RoleAsked> = if engine.id() == Team.id() { team.to_vec() } else { Vec::new() };
    let known = engine::roles_of(&*engine, &asked).map_err(|error| error.to_string())?;
    for role in configured.iter().filter(|role| known.iter().any(|known| known.name == role.name)) {
        match asked.iter_mut().find(|asked| asked.name == role.name) {
            Some(asked) => {
                asked.model = role.model.clone().or(asked.model.take());
                asked.effort = role.effort.or(asked.effort);
                asked.temperature_milli = role.temperature_milli.or(asked.temperature_milli);
                asked.context_tokens_max = role.context_tokens_max.or(asked.context_tokens_max);
            }
            None => asked.push(role.clone()),
        }
    }
    for RoleModel { name, model } in flags.roles {
        match asked.iter_mut().find(|role| role.name == *name) {
            Some(role) => role.model = Some(model.clone()),
            None => asked.push(RoleAsked { model: Some(model.clone()), ..RoleAsked::of(name) }),
        }
    }
    if flags.model.is_some() {
        asked.iter_mut().for_each(|role| role.model = None);
    }
    let defined = engine::roles_of(&*engine, &asked).map_err(|error| format!("--role: {error}"))?;
    if flags.model.is_some() && !flags.roles.is_empty() {
        return Err("--model is the model of every role, and --role names another: leave one of them out; the model of \
                    roles that --role does not name comes from `task.model` of docket.toml, or DOCKET_MODEL"
            .to_owned());
    }
    asked.sort_by_key(|role| defined.iter().position(|known| known.name == role.name));
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(asked: &[RoleAsked]) -> Vec<(&str, Option<String>)> {
        asked.iter().map(|role| (role.name.as_str(), role.model.as_ref().map(ToString::to_string))).collect()
    }

    #[test]
    fn a_flag_goes_over_the_file_and_one_model_over_all_roles() {
        let main: ModelRef = "openai:main".parse().expect("a model");
        let of = |name: &str, model: &str| RoleAsked {
            model: Some(model.parse().expect("a model")),
            temperature_milli: Some(200),
            ..RoleAsked::of(name)
        };
        let file =
            [of("reviewer", "openai:r"), of("planner", "openai:p"), of("of-another-engine", "openai:a")];
        let flags =
            [role("planner=anthropic:big").expect("reads"), role("executor=openai:e").expect("reads")];
        let some = |name: &str| Some(name.to_owned());
        let only_file = merged((&file, &[]), "review", Flags { model: None, roles: &[] }).expect("legal");
        assert_eq!(named(&only_file), [("planner", some("openai:p")), ("reviewer", some("openai:r"))]);
        let with_flags = merged((&file, &[]), "review", Flags { model: None, roles: &flags }).expect("legal");
        assert_eq!(
            named(&with_flags),
            [
                ("planner", some("anthropic:big")),
                ("executor", some("openai:e")),
                ("reviewer", some("openai:r"))
            ]
        );
        let with_model =
            merged((&file, &[]), "review", Flags { model: Some(&main), roles: &[] }).expect("legal");
        assert_eq!(named(&with_model), [("planner", None), ("reviewer", None)]);
        assert!(with_model.iter().all(|role| role.temperature_milli == Some(200)), "it is the model alone");
        let both = merged((&file, &[]), "review", Flags { model: Some(&main), roles: &flags });
        assert!(both.is_err_and(|error| error.starts_with("--model is the model of every role")));
    }

    #[test]
    fn settings_of_the_team_are_its_own_and_who_plays_a_role_goes_over_them() {
        let writer = RoleAsked {
            prompt: Some("You write.".to_owned()),
            after: Some("coder".to_owned()),
            model: Some("openai:w".parse().expect("a model")),
            ..RoleAsked::of("writer")
        };
        let plays =
            RoleAsked { model: Some("openai:v".parse().expect("a model")), ..RoleAsked::of("writer") };
        let none = Flags { model: None, roles: &[] };
        let settings = (&[plays][..], &[writer][..]);
        let asked = merged(settings, "team", none).expect("legal");
        assert_eq!(named(&asked), [("writer", Some("openai:v".to_owned()))]);
        assert!(asked[0].prompt.is_some());
        assert_eq!(merged(settings, "review", none), Ok(Vec::new()));
    }

    #[test]
    fn an_engine_whose_runs_give_nothing_away_says_why() {
        for engine in ["react", "review", "architect", "team", "sop"] {
            assert_eq!(gives_nothing_away(engine, &[]), None, "{engine}");
        }
        let told = gives_nothing_away("plan", &[]).expect("it has no role with tools");
        assert_eq!(told, "a run of the engine `plan` gives nothing away: none of its roles calls tools");
        let without =
            |role: &str| RoleAsked { tools: Some(vec!["read_file".to_owned()]), ..RoleAsked::of(role) };
        assert_eq!(gives_nothing_away("team", &[without("coder")]), None, "the architect may");
        let told = gives_nothing_away("team", &[without("coder"), without("architect")]).expect("nobody may");
        assert!(told.contains("name it in the `tools` of one"), "{told}");
    }

    #[test]
    fn a_role_that_the_engine_lacks_is_told_with_those_that_it_has() {
        let flags = [role("tester=openai:x").expect("reads")];
        let main: ModelRef = "openai:main".parse().expect("a model");
        for model in [None, Some(&main)] {
            let told = merged((&[], &[]), "review", Flags { model, roles: &flags }).expect_err("has none");
            assert_eq!(
                told,
                "--role: there is no role `tester`; the engine `review` has planner, executor, reviewer"
            );
        }
        assert!(role("planner").is_err() && role("planner=gpt").is_err());
    }
}

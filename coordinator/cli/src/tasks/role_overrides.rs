//! Resolves role overrides of a task: flags take precedence over settings, and --model applies to every role.

use docket_schema::{message::ModelRef, task::RoleOverride};
use docket_worker::engine::{self, Engine as _, TeamEngine};

use crate::{
    config::values,
    context::CliContext,
    output::error::{CliError, CliResult, ExitKind},
};

/// `--role NAME=MODEL`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RoleModel {
    name: String,
    model: ModelRef,
}

impl RoleModel {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) const fn model(&self) -> &ModelRef {
        &self.model
    }
}

/// Returns the role overrides from flags alone, in addition to a main model.
pub(crate) fn overrides_from_flags(
    engine: &str,
    roles: &[RoleModel],
    main: &ModelRef,
) -> CliResult<Vec<RoleOverride>> {
    let mut asked = merge_role_overrides((&[], &[]), engine, RoleFlags { model: None, roles })
        .map_err(|message| CliError::new(ExitKind::Usage, message))?;
    for role in &mut asked {
        role.model = secondary_model(main, role.model.take())?;
    }
    Ok(asked)
}

/// Parses `NAME=MODEL`.
pub(crate) fn parse_role_model(text: &str) -> Result<RoleModel, String> {
    let (name, model) =
        text.split_once('=').ok_or("it must be NAME=MODEL, such as coder=openai:gpt-4.1-mini")?;
    Ok(RoleModel { name: name.trim().to_owned(), model: values::parse_model(model.trim())? })
}

/// The model flags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RoleFlags<'a> {
    /// `--model`: applies to every role.
    pub(crate) model: Option<&'a ModelRef>,
    /// `--role`.
    pub(crate) roles: &'a [RoleModel],
}

/// Returns a task's overrides for the roles of its engine, in their order: flags take precedence over settings,
/// and overrides equal to the main model are dropped.
pub(crate) fn resolve_role_overrides(
    cx: &CliContext,
    engine: &str,
    main: &ModelRef,
    flags: RoleFlags<'_>,
) -> CliResult<Vec<RoleOverride>> {
    let settings = (&cx.config.roles[..], &cx.config.team.roles[..]);
    let mut asked = merge_role_overrides(settings, engine, flags)
        .map_err(|message| CliError::new(ExitKind::Usage, message))?;
    for role in &mut asked {
        role.model = secondary_model(main, role.model.take())?;
    }
    Ok(asked)
}

/// A secondary model, with the main model's server unless it names one; `None` if it equals the main model.
pub(crate) fn secondary_model(main: &ModelRef, model: Option<ModelRef>) -> CliResult<Option<ModelRef>> {
    let Some(model) = model else { return Ok(None) };
    let same = model.provider == main.provider;
    let base_url = model.base_url.or_else(|| main.base_url.clone().filter(|_| same));
    let model = ModelRef { base_url, ..model };
    values::check_base_url(&model)?;
    Ok((model != *main).then_some(model))
}

/// Returns why runs of an engine with these roles cannot delegate.
pub(crate) fn delegation_unavailable_reason(engine: &str, asked: &[RoleOverride]) -> Option<String> {
    let defined = engine::resolve_roles(&*engine::newest_engine(engine)?, asked).ok()?;
    engine::cannot_delegate_reason(engine, &defined)
}

fn merge_role_overrides(
    (configured, team): (&[RoleOverride], &[RoleOverride]),
    engine: &str,
    flags: RoleFlags<'_>,
) -> Result<Vec<RoleOverride>, String> {
    // An unknown engine is reported elsewhere.
    let Some(engine) = engine::newest_engine(engine) else { return Ok(Vec::new()) };
    // Settings cover all engines; overrides of roles that this engine does not have are ignored.
    let mut asked: Vec<RoleOverride> =
        if engine.engine_ref() == TeamEngine.engine_ref() { team.to_vec() } else { Vec::new() };
    let known = engine::resolve_roles(&*engine, &asked).map_err(|error| error.to_string())?;
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
            None => asked.push(RoleOverride { model: Some(model.clone()), ..RoleOverride::for_role(name) }),
        }
    }
    if flags.model.is_some() {
        asked.iter_mut().for_each(|role| role.model = None);
    }
    let defined = engine::resolve_roles(&*engine, &asked).map_err(|error| format!("--role: {error}"))?;
    if flags.model.is_some() && !flags.roles.is_empty() {
        return Err("--model applies to every role, but --role names a different one: leave one of them out; the model of \
                    roles that --role does not name comes from `task.model` of docket.toml, or DOCKET_MODEL"
            .to_owned());
    }
    asked.sort_by_key(|role| defined.iter().position(|known| known.name == role.name));
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role_models(asked: &[RoleOverride]) -> Vec<(&str, Option<String>)> {
        asked.iter().map(|role| (role.name.as_str(), role.model.as_ref().map(ToString::to_string))).collect()
    }

    #[test]
    fn role_flags_override_settings_and_model_flag_covers_all_roles() {
        let main: ModelRef = "openai:main".parse().expect("a model");
        let of = |name: &str, model: &str| RoleOverride {
            model: Some(model.parse().expect("a model")),
            temperature_milli: Some(200),
            ..RoleOverride::for_role(name)
        };
        let file =
            [of("reviewer", "openai:r"), of("planner", "openai:p"), of("of-another-engine", "openai:a")];
        let flags = [
            parse_role_model("planner=anthropic:big").expect("reads"),
            parse_role_model("executor=openai:e").expect("reads"),
        ];
        let some = |name: &str| Some(name.to_owned());
        let only_file = merge_role_overrides((&file, &[]), "review", RoleFlags { model: None, roles: &[] })
            .expect("legal");
        assert_eq!(role_models(&only_file), [("planner", some("openai:p")), ("reviewer", some("openai:r"))]);
        let with_flags =
            merge_role_overrides((&file, &[]), "review", RoleFlags { model: None, roles: &flags })
                .expect("legal");
        assert_eq!(
            role_models(&with_flags),
            [
                ("planner", some("anthropic:big")),
                ("executor", some("openai:e")),
                ("reviewer", some("openai:r"))
            ]
        );
        let with_model =
            merge_role_overrides((&file, &[]), "review", RoleFlags { model: Some(&main), roles: &[] })
                .expect("legal");
        assert_eq!(role_models(&with_model), [("planner", None), ("reviewer", None)]);
        assert!(with_model.iter().all(|role| role.temperature_milli == Some(200)), "it is the model alone");
        let both =
            merge_role_overrides((&file, &[]), "review", RoleFlags { model: Some(&main), roles: &flags });
        assert!(both.is_err_and(|error| error.starts_with("--model applies to every role")));
    }

    #[test]
    fn role_settings_override_team_definitions() {
        let writer = RoleOverride {
            prompt: Some("You write.".to_owned()),
            after: Some("coder".to_owned()),
            model: Some("openai:w".parse().expect("a model")),
            ..RoleOverride::for_role("writer")
        };
        let plays = RoleOverride {
            model: Some("openai:v".parse().expect("a model")),
            ..RoleOverride::for_role("writer")
        };
        let none = RoleFlags { model: None, roles: &[] };
        let settings = (&[plays][..], &[writer][..]);
        let asked = merge_role_overrides(settings, "team", none).expect("legal");
        assert_eq!(role_models(&asked), [("writer", Some("openai:v".to_owned()))]);
        assert!(asked[0].prompt.is_some());
        assert_eq!(merge_role_overrides(settings, "review", none), Ok(Vec::new()));
    }

    #[test]
    fn engine_that_cannot_delegate_says_why() {
        for engine in ["react", "review", "architect", "team", "sop"] {
            assert_eq!(delegation_unavailable_reason(engine, &[]), None, "{engine}");
        }
        let told = delegation_unavailable_reason("plan", &[]).expect("it has no role with tools");
        assert_eq!(told, "a run of the engine `plan` gives nothing away: none of its roles calls tools");
        let without = |role: &str| RoleOverride {
            tools: Some(vec!["read_file".to_owned()]),
            ..RoleOverride::for_role(role)
        };
        assert_eq!(delegation_unavailable_reason("team", &[without("coder")]), None, "the architect may");
        let told = delegation_unavailable_reason("team", &[without("coder"), without("architect")])
            .expect("nobody may");
        assert!(told.contains("name it in the `tools` of one"), "{told}");
    }

    #[test]
    fn unknown_role_error_lists_roles_of_the_engine() {
        let flags = [parse_role_model("tester=openai:x").expect("reads")];
        let main: ModelRef = "openai:main".parse().expect("a model");
        for model in [None, Some(&main)] {
            let told = merge_role_overrides((&[], &[]), "review", RoleFlags { model, roles: &flags })
                .expect_err("has none");
            assert_eq!(
                told,
                "--role: there is no role `tester`; the engine `review` has planner, executor, reviewer"
            );
        }
        assert!(parse_role_model("planner").is_err() && parse_role_model("planner=gpt").is_err());
    }
}

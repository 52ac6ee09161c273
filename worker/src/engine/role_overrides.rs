//! Applies a task's role overrides to the roles of an engine. Pure.
//!
//! Called when a run begins, which pins the result, and when a task is submitted, so that invalid overrides are
//! rejected before anything is stored. An engine with configurable roles validates overrides itself.

use docket_schema::task::RoleOverride;

use super::core::definition::{Engine, RoleDefinition, RoleError};

/// Returns the roles of an engine with these overrides.
///
/// # Errors
/// The first invalid override.
pub fn resolve_roles(engine: &dyn Engine, asked: &[RoleOverride]) -> Result<Vec<RoleDefinition>, RoleError> {
    let defined = engine.roles_with_overrides(asked)?;
    let unknown = asked.iter().find(|role| defined.iter().all(|def| def.name != role.name));
    match unknown {
        None => Ok(defined),
        Some(role) => Err(RoleError::Unknown {
            role: role.name.clone(),
            engine: engine.engine_ref().name,
            known: defined.into_iter().map(|def| def.name).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{PlanEngine, ReactEngine};

    #[test]
    fn unknown_role_error_lists_known_roles() {
        let names = |asked: &[RoleOverride]| {
            resolve_roles(&PlanEngine, asked)
                .map(|roles| roles.into_iter().map(|role| role.name).collect::<Vec<_>>())
        };
        assert_eq!(
            names(&[RoleOverride::for_role("executor")]),
            Ok(vec!["planner".into(), "executor".into()])
        );
        let unknown = names(&[RoleOverride::for_role("reviewer")]).map_err(|error| error.to_string());
        assert_eq!(
            unknown,
            Err("there is no role `reviewer`; the engine `plan` has planner, executor".to_owned())
        );
        let none = resolve_roles(&ReactEngine, &[RoleOverride::for_role("coder")])
            .map_err(|error| error.to_string());
        assert!(none.is_err_and(|error| error.ends_with("the engine `react` has no roles")));
        let told =
            RoleOverride { prompt: Some("You are another.".to_owned()), ..RoleOverride::for_role("planner") };
        assert!(names(&[told]).is_err_and(|error| error.to_string().contains("are fixed")));
    }
}

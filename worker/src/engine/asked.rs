//! The roles of an engine as a task asks for them. Pure.
//!
//! Called where a run begins, which pins what comes of it, and where a task is submitted, so that what cannot be is told
//! before anything is stored. An engine whose roles are open says itself what may be said of them.

use docket_schema::task::RoleAsked;

use super::core::definition::{Engine, RoleDef, RoleError};

/// The roles of an engine, with what is asked of them.
///
/// # Errors
/// The first thing that cannot be.
pub fn roles_of(engine: &dyn Engine, asked: &[RoleAsked]) -> Result<Vec<RoleDef>, RoleError> {
    let defined = engine.roles_asked(asked)?;
    let unknown = asked.iter().find(|role| defined.iter().all(|def| def.name != role.name));
    match unknown {
        None => Ok(defined),
        Some(role) => Err(RoleError::Unknown {
            role: role.name.clone(),
            engine: engine.id().name,
            known: defined.into_iter().map(|def| def.name).collect(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Plan, React};

    #[test]
    fn a_role_that_there_is_not_is_told_with_those_that_there_are() {
        let names = |asked: &[RoleAsked]| {
            roles_of(&Plan, asked).map(|roles| roles.into_iter().map(|role| role.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[RoleAsked::of("executor")]), Ok(vec!["planner".into(), "executor".into()]));
        let unknown = names(&[RoleAsked::of("reviewer")]).map_err(|error| error.to_string());
        assert_eq!(
            unknown,
            Err("there is no role `reviewer`; the engine `plan` has planner, executor".to_owned())
        );
        let none = roles_of(&React, &[RoleAsked::of("coder")]).map_err(|error| error.to_string());
        assert!(none.is_err_and(|error| error.ends_with("the engine `react` has no roles")));
        let told = RoleAsked { prompt: Some("You are another.".to_owned()), ..RoleAsked::of("planner") };
        assert!(names(&[told]).is_err_and(|error| error.to_string().contains("are fixed")));
    }
}

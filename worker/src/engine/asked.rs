//! The roles of an engine as a task asks for them. Pure.
//!
//! Called where a run begins, which pins what comes of it, and where a task is submitted, so that what cannot be is told
//! before anything is stored. An engine whose roles are open says itself what may be said of them.

use docket_schema::task::RoleAsked;

use super::{Engine, RoleDef};

/// What is asked of a role and cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RoleError {
    /// The engine has no role of this name.
    #[error("there is no role `{role}`; {}", has(.engine, .known))]
    Unknown {
        /// The name.
        role: String,
        /// The engine.
        engine: String,
        /// The roles that it has.
        known: Vec<String>,
    },
    /// The engine's roles are what they are.
    #[error(
        "the roles of the engine `{engine}` are fixed: of `{role}` only model, effort, temperature and context_tokens_max can be said"
    )]
    Fixed {
        /// The role.
        role: String,
        /// The engine.
        engine: String,
    },
    /// A role has no such key.
    #[error("there is no `{key}` of the role `{role}`")]
    Key {
        /// The role.
        role: String,
        /// The key.
        key: String,
    },
    /// What is said of what a role is cannot be.
    #[error("`{key}` of the role `{role}` must be {must}")]
    Value {
        /// The role.
        role: String,
        /// `prompt`, `tools`, `answer`, `after` …
        key: &'static str,
        /// What it must be.
        must: String,
    },
}

fn has(engine: &str, known: &[String]) -> String {
    match known {
        [] => format!("the engine `{engine}` has no roles"),
        known => format!("the engine `{engine}` has {}", known.join(", ")),
    }
}

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

/// The roles of an engine that says what they are.
pub(super) fn fixed(engine: &(impl Engine + ?Sized), asked: &[RoleAsked]) -> Result<Vec<RoleDef>, RoleError> {
    match asked.iter().find(|role| role.defines()) {
        None => Ok(engine.roles()),
        Some(role) => Err(RoleError::Fixed { role: role.name.clone(), engine: engine.id().name }),
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

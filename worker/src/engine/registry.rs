//! The engines of this build, by name and version.

use docket_schema::run::EngineRef;

use super::{
    architect::Architect, core::definition::Engine, plan::Plan, react::React, review::Review, sop::Sop,
    team::Team,
};

/// The engines of this build, every version that is still supported.
pub fn engines() -> Vec<Box<dyn Engine>> {
    vec![
        Box::new(React),
        Box::new(Plan),
        Box::new(Review::FIRST),
        Box::new(Review::SECOND),
        Box::new(Architect),
        Box::new(Team),
        Box::new(Sop),
    ]
}

/// Their names, each once, in the order in which engines are listed everywhere.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for EngineRef { name, .. } in engines().iter().map(|engine| engine.id()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The engine of this name and version.
pub fn engine(id: &EngineRef) -> Option<Box<dyn Engine>> {
    engines().into_iter().find(|engine| engine.id() == *id)
}

/// The newest version of the engine of this name.
pub fn newest(name: &str) -> Option<Box<dyn Engine>> {
    engines().into_iter().filter(|engine| engine.id().name == name).max_by_key(|engine| engine.id().version)
}

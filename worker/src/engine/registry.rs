//! The engines of this build, by name and version.

use docket_schema::run::EngineRef;

use super::{
    architect::ArchitectEngine, core::definition::Engine, plan::PlanEngine, react::ReactEngine,
    review::ReviewEngine, sop::SopEngine, team::TeamEngine,
};

/// Returns the engines of this build, in every version that is still supported.
pub fn all_engines() -> Vec<Box<dyn Engine>> {
    vec![
        Box::new(ReactEngine),
        Box::new(PlanEngine),
        Box::new(ReviewEngine::V1),
        Box::new(ReviewEngine::V2),
        Box::new(ArchitectEngine),
        Box::new(TeamEngine),
        Box::new(SopEngine),
    ]
}

/// Returns their names without duplicates, in the order used by every list of engines.
pub fn engine_names() -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for EngineRef { name, .. } in all_engines().iter().map(|engine| engine.engine_ref()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the engine of this name and version.
pub fn find_engine(id: &EngineRef) -> Option<Box<dyn Engine>> {
    all_engines().into_iter().find(|engine| engine.engine_ref() == *id)
}

/// Returns the newest version of the engine of this name.
pub fn newest_engine(name: &str) -> Option<Box<dyn Engine>> {
    all_engines()
        .into_iter()
        .filter(|engine| engine.engine_ref().name == name)
        .max_by_key(|engine| engine.engine_ref().version)
}

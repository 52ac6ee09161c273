//! What a run came to, without what differs from one time to the next: a run that is played again must come to what its
//! golden log says.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    event::TypedEvent as _,
    export::InMemoryExport,
    run::{RunEvent, RunState},
};
use serde_json::{Value, json};

/// See the module.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RunGist {
    /// Who spoke, what was concluded, what tools and checks came to, how it ended.
    steps: Vec<String>,
    /// Files that differ from the base, and what they hold.
    files: BTreeMap<String, String>,
}

/// Folders that programs leave behind, with times in their files.
const LEFT_BEHIND: [&str; 2] = ["__pycache__", ".pytest_cache"];

impl RunGist {
    pub(super) fn from_export(run: &InMemoryExport) -> Result<Self> {
        let mut state = RunState::default();
        let mut steps = Vec::new();
        for event in run.run_events() {
            let payload: Value = serde_json::from_str(event.payload.as_str())?;
            let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())?;
            if let RunEvent::RunEnded(ended) = typed {
                steps.push(json!(ended.result)["outcome"].to_string());
            } else if let RunEvent::ToolRequested(asked) = typed {
                steps.push(format!("{} {}", asked.call, asked.tool));
            }
            steps.extend(crate::engines::event_gists(&json!({ "kind": event.kind, "payload": payload })));
            state.apply_envelope(&event)?;
        }
        let of_run =
            |path: &String| !LEFT_BEHIND.iter().any(|left| path.split('/').any(|part| part == *left));
        let files = state.overlay.iter().map(|(path, entry)| (path.to_string(), format!("{entry:?}")));
        let files = files.filter(|(path, _)| of_run(path)).collect();
        ensure!(!steps.is_empty(), "the run says nothing");
        Ok(Self { steps, files })
    }

    /// Fails where this is not what the newest of these golden logs says, with the first difference. What older ones say
    /// was decided by rules that no run goes by any more.
    pub(super) fn assert_same_as_latest(&self, golden: &[(String, Self)]) -> Result<()> {
        let (name, kept) = golden.last().context("there is no golden log of that name")?;
        let at = self.steps.iter().zip(&kept.steps).take_while(|(mine, theirs)| mine == theirs).count();
        let (mine, theirs) = (self.steps.get(at), kept.steps.get(at));
        ensure!(mine == theirs, "step {at}: played {mine:?}, and {name} has {theirs:?}");
        ensure!(self == kept, "files: played {:#?}, and {name} has {:#?}", self.files, kept.files);
        Ok(())
    }
}

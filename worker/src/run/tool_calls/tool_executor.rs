//! The tool executor: a workspace with its sandbox and tools, where calls and checks of a run are executed.
//!
//! The run loop uses it, and so does a replay that reruns recorded calls: recorded and compared results are produced
//! in the same way.

use std::{collections::BTreeMap, path::Path};

use cap_std::fs::Dir;
use docket_schema::{
    content::WorkspacePath,
    ids::BlobHash,
    message::ToolUse,
    redact::Redactor,
    run::{ExternalTool, RunSettings, RunStarted},
};

use super::{malformed::malformed_call_message, memory_client::RunMemoryClient};
use crate::run::{
    environment::{
        network_grants::NetworkGrants,
        run_workspace::{open_root, workspace_options},
        sandbox_runner::{SandboxRunner, prepare_sandbox},
        setup::run_setup,
    },
    errors::start_error::StartError,
};
use crate::{
    bootstrap::SandboxChoice,
    mcp::McpServers,
    tools::{
        self, BaseView, FullOutputs, MemoryBackend, NoMemory, TestRunnerConfig, ToolContext, ToolOutcome,
        ToolSettings,
    },
    workspace::{BlobReader, Workspace, materialize},
};

/// A workspace with its sandbox and tools.
pub(crate) struct ToolExecutor {
    pub(crate) workspace: Workspace,
    pub(in crate::run) root: Dir,
    pub(in crate::run) runner: SandboxRunner,
    pub(in crate::run) settings: ToolSettings,
    pub(in crate::run) test_runner: Option<TestRunnerConfig>,
    /// Tool output becomes part of the log, without secrets.
    pub(in crate::run) redactor: Redactor,
    /// Full outputs that the open calls ask for.
    pub(in crate::run) full_outputs: FullOutputs,
    /// The base content that the open calls ask for.
    pub(in crate::run) base_view: BaseView,
    /// Network grants of the open calls.
    pub(in crate::run) network_grants: NetworkGrants,
    /// Memory that outlives the run; `None` in a replay.
    pub(in crate::run) memory: Option<RunMemoryClient>,
    /// The tools that the run pins, once loaded.
    pub(in crate::run) available_tools: Option<Result<Vec<String>, String>>,
    /// This worker's servers; none in a replay.
    pub(in crate::run) mcp_servers: McpServers,
    /// Tools of servers that the run pins.
    pub(in crate::run) external_tools: Vec<ExternalTool>,
}

/// Folders for an executor other than a run's own.
pub(crate) struct ExecutorConfig<'a> {
    /// A folder that is empty or does not exist.
    pub(crate) folder: &'a Path,
    /// Folder for packs of bases.
    pub(crate) cache: &'a Path,
    pub(crate) sandbox: SandboxChoice,
}

impl ToolExecutor {
    /// Creates an executor for the run that `pins` began, with the sandbox that a run gets here. `tests` is the
    /// task's own test command.
    ///
    /// # Errors
    /// [`StartError`]: the workspace cannot be created, or the sandbox does not start.
    pub(crate) async fn materialize<S: BlobReader>(
        site: &ExecutorConfig<'_>,
        pins: &RunStarted,
        tests: Option<String>,
        blobs: &S,
    ) -> Result<Self, StartError> {
        let options = workspace_options(site.cache);
        let workspace = materialize(site.folder, &pins.base, blobs, &options)
            .await
            .map_err(|error| StartError::from_environment_error(&error))?;
        let runner = SandboxRunner(prepare_sandbox((site.sandbox, None), None, &workspace).await?);
        let root = open_root(&workspace)?;
        // The secrets configured on the original worker are not known here.
        Ok(Self::new(workspace, root, runner, Redactor::default(), pins, tests))
    }

    /// Creates an executor that reaches nothing but the workspace. `tests` is the task's own test command, used for
    /// logs that pin none.
    pub(in crate::run) fn new(
        workspace: Workspace,
        root: Dir,
        runner: SandboxRunner,
        redactor: Redactor,
        pins: &RunStarted,
        tests: Option<String>,
    ) -> Self {
        let settings = ToolSettings { redactor: redactor.clone(), ..tool_settings(&pins.settings) };
        Self {
            workspace,
            root,
            runner,
            settings,
            test_runner: pins.tests.clone().or(tests).map(|command| TestRunnerConfig { command }),
            redactor,
            full_outputs: FullOutputs::new(),
            base_view: BaseView::default(),
            network_grants: NetworkGrants::default(),
            memory: None,
            available_tools: None,
            mcp_servers: McpServers::default(),
            external_tools: Vec::new(),
        }
    }

    /// Runs one setup line.
    ///
    /// # Errors
    /// [`StartError::Environment`] or [`StartError::CommandMissing`]: it failed.
    pub(crate) async fn run_setup_line(&self, line: &str, settings: &RunSettings) -> Result<(), StartError> {
        run_setup(&[line.to_owned()], settings, &self.runner, &self.redactor).await.map(drop)
    }

    pub(in crate::run) async fn execute_tool(
        &self,
        tool: &ToolUse,
        read_set: &BTreeMap<WorkspacePath, BlobHash>,
        tests: Option<&TestRunnerConfig>,
    ) -> ToolOutcome {
        let malformed = tool.malformed.as_ref().map(|text| malformed_call_message(&tool.name, text));
        if let Some(text) = malformed.or_else(|| self.refuse_submodule(tool)) {
            return ToolOutcome::error(&tool.name, text);
        }
        let context = ToolContext { call: Some(&tool.call), ..self.tool_context(read_set, tests) };
        tools::execute_tool(context, &tool.name, &tool.args).await
    }

    pub(in crate::run) fn tool_context<'a>(
        &'a self,
        read_set: &'a BTreeMap<WorkspacePath, BlobHash>,
        tests: Option<&'a TestRunnerConfig>,
    ) -> ToolContext<'a> {
        ToolContext {
            root: &self.root,
            runner: &self.runner,
            read_set,
            settings: &self.settings,
            test_runner: tests,
            outputs: &self.full_outputs,
            base: &self.base_view,
            memory: self.memory.as_ref().map_or(&NoMemory as &dyn MemoryBackend, |memory| memory),
            call: None,
        }
    }

    /// Refuses a call that would write a file of a submodule.
    fn refuse_submodule(&self, tool: &ToolUse) -> Option<String> {
        let base = self.workspace.base_objects();
        let named = tools::written_files(&tool.name, &tool.args);
        let (path, module) = named.iter().find_map(|name| {
            let path = tools::work_path_of(name)?;
            let module = base.containing_submodule(&path)?;
            Some((path, module))
        })?;
        let there = if base.is_filled_submodule(&module) {
            "it is there to be read, at the commit that the project records"
        } else {
            "its files are not on this machine"
        };
        Some(format!(
            "`{path}` belongs to the submodule `{module}`, another repository: {there}. The result of this task holds only \
             which commit of it is used, so nothing in it can be written; work outside of it, and say in your answer what \
             should change there"
        ))
    }
}

fn tool_settings(settings: &RunSettings) -> ToolSettings {
    ToolSettings {
        output_chars_max: settings.output_chars_max as usize,
        command_timeout_ms: settings.command_timeout_ms,
        command_timeout_ms_max: settings.command_timeout_ms_max,
        refuse_syntax_errors: settings.refuse_syntax_errors,
        ..ToolSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_settings_reach_its_tools() {
        let run = RunSettings { refuse_syntax_errors: true, ..RunSettings::default() };
        assert!(tool_settings(&run).refuse_syntax_errors);
    }
}

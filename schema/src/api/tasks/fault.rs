//! Faults of workers: what keeps a worker from carrying out tasks although nothing is wrong with the tasks.
//!
//! A run process that meets such a fault ends without recording an end of the run. Its supervisor gives the lease
//! back (no failure and no crash is counted), keeps tasks that the fault concerns away for a while, and names the fault with every
//! request for work. The coordinator leases such tasks to other workers, and `docket why` names the fault where there
//! is no other worker. A task that meets such faults [`crate::task::WORKER_FAULTS_MAX`] times in a row asks a person.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{ids::TaskId, message::ModelRef, task::Flow};

/// Maximum number of faults in one request; they are stored in the worker's record. A worker with more
/// reports the most recent ones.
pub const FAULTS_MAX: usize = 32;

/// Maximum length of [`WorkerFault::message`], in bytes. It is printed on one line and stored with every
/// request for work.
pub const FAULT_MESSAGE_BYTES_MAX: usize = 600;

/// Maximum length of a name in a [`FaultScope`], in bytes.
pub const FAULT_NAME_BYTES_MAX: usize = 2000;

/// A fault of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkerFault {
    /// What failed.
    pub kind: FaultKind,
    /// Which tasks the fault concerns.
    pub scope: FaultScope,
    /// What happened and what to do about it, in one line of at most [`FAULT_MESSAGE_BYTES_MAX`] bytes, without secrets.
    pub message: String,
    /// The worker asks for one task that the fault concerns, to see whether the fault is still there. Otherwise no
    /// such task is leased to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_probed: bool,
}

/// What failed on a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// An MCP server of its settings does not start or does not answer.
    McpServer,
    /// The sandbox cannot be created: a layer, a cgroup or a quota is missing.
    Sandbox,
    /// A program that the task needs is not installed.
    Toolchain,
    /// A provider's key is missing, wrong, or revoked.
    Key,
    /// A model server that only this worker can reach does not know the model, or the worker may not use the server.
    Model,
    /// The worker's build lacks the engine, or the version of it that began the run.
    Engine,
    /// A disk is full, or not writable.
    Disk,
    /// Something else on its machine: a process cannot be started, certificates are missing.
    Host,
}

impl FaultKind {
    /// All kinds, for metrics that list each one whether or not it occurs.
    pub const ALL: [Self; 8] = [
        Self::McpServer,
        Self::Sandbox,
        Self::Toolchain,
        Self::Key,
        Self::Model,
        Self::Engine,
        Self::Disk,
        Self::Host,
    ];

    /// Returns the kind's name for people and metrics, as in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::McpServer => "mcp_server",
            Self::Sandbox => "sandbox",
            Self::Toolchain => "toolchain",
            Self::Key => "key",
            Self::Model => "model",
            Self::Engine => "engine",
            Self::Disk => "disk",
            Self::Host => "host",
        }
    }
}

/// Which tasks a fault concerns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultScope {
    /// Every task.
    AnyTask,
    /// Tasks that use this provider at this address; no address means the provider's default.
    Provider {
        /// The provider.
        provider: String,
        /// The address.
        base_url: Option<String>,
    },
    /// Tasks that use this model.
    Model(ModelRef),
    /// Tasks with the same setup commands: [`Flow::setup`].
    Setup(String),
    /// One task.
    Task(TaskId),
}

impl FaultScope {
    /// Returns the scope for a model's provider at the model's address.
    pub fn for_provider(model: &ModelRef) -> Self {
        Self::Provider { provider: model.provider.clone(), base_url: model.base_url.clone() }
    }

    /// Whether the fault concerns all tasks of the flow.
    pub fn covers_flow(&self, flow: &Flow) -> bool {
        match self {
            Self::AnyTask => true,
            Self::Provider { provider, base_url } => {
                flow.models.iter().any(|model| model.provider == *provider && model.base_url == *base_url)
            }
            Self::Model(model) => flow.models.contains(model),
            Self::Setup(setup) => !setup.is_empty() && flow.setup == *setup,
            Self::Task(_) => false,
        }
    }

    /// Whether the fault concerns this task of the flow.
    pub fn covers_task(&self, flow: &Flow, task: TaskId) -> bool {
        *self == Self::Task(task) || self.covers_flow(flow)
    }

    /// Returns the length of its longest name, in bytes.
    pub fn longest_name_bytes(&self) -> usize {
        let of_model =
            |name: &str, base_url: Option<&String>| name.len().max(base_url.map_or(0, String::len));
        match self {
            Self::AnyTask | Self::Task(_) => 0,
            Self::Provider { provider, base_url } => of_model(provider, base_url.as_ref()),
            Self::Model(model) => of_model(&model.name, model.base_url.as_ref()).max(model.provider.len()),
            Self::Setup(setup) => setup.len(),
        }
    }
}

impl fmt::Display for WorkerFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl WorkerFault {
    /// Creates a fault; the message is reduced to one line of at most [`FAULT_MESSAGE_BYTES_MAX`] bytes.
    pub fn new(kind: FaultKind, scope: FaultScope, message: &str) -> Self {
        let mut message = message.replace('\0', " ").split_whitespace().collect::<Vec<_>>().join(" ");
        if message.len() > FAULT_MESSAGE_BYTES_MAX {
            let mut end = FAULT_MESSAGE_BYTES_MAX - "…".len();
            while !message.is_char_boundary(end) {
                end -= 1;
            }
            message.truncate(end);
            message.push('…');
        }
        Self { kind, scope, message, is_probed: false }
    }

    /// Whether all tasks of the flow are currently kept from the worker.
    pub fn excludes_flow(&self, flow: &Flow) -> bool {
        !self.is_probed && self.scope.covers_flow(flow)
    }

    /// Returns the one task that is currently kept from the worker, if the fault concerns a single task.
    pub const fn excluded_task(&self) -> Option<TaskId> {
        match self.scope {
            FaultScope::Task(task) if !self.is_probed => Some(task),
            FaultScope::Task(_)
            | FaultScope::AnyTask
            | FaultScope::Provider { .. }
            | FaultScope::Model(_)
            | FaultScope::Setup(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn model(name: &str, base_url: Option<&str>) -> ModelRef {
        ModelRef { provider: "openai".into(), name: name.into(), base_url: base_url.map(Into::into) }
    }

    #[test]
    fn scope_covers_only_flows_that_need_what_failed() {
        let local = Some("http://127.0.0.1:1");
        let mut flow: Flow = "default\t\t\t\t\treact".parse().expect("a flow");
        flow.models = vec![model("a", None), model("b", local)];
        flow.setup = "abc".into();
        let task = TaskId(Uuid::from_u128(7));
        for (scope, covers) in [
            (FaultScope::AnyTask, true),
            (FaultScope::for_provider(&model("z", None)), true),
            (FaultScope::for_provider(&model("z", local)), true),
            (FaultScope::for_provider(&model("a", Some("http://127.0.0.1:2"))), false),
            (FaultScope::Model(model("b", local)), true),
            (FaultScope::Model(model("b", None)), false),
            (FaultScope::Setup("abc".into()), true),
            (FaultScope::Setup("abd".into()), false),
            (FaultScope::Task(task), false),
        ] {
            assert_eq!(scope.covers_flow(&flow), covers, "{scope:?}");
            assert_eq!(
                scope.covers_task(&flow, task),
                covers || scope == FaultScope::Task(task),
                "{scope:?}"
            );
        }
        flow.setup.clear();
        assert!(!FaultScope::Setup(String::new()).covers_flow(&flow), "no setup commands cannot fail");
    }

    #[test]
    fn probed_fault_excludes_nothing() {
        let flow: Flow = "default\t\t\t\t\treact".parse().expect("a flow");
        let task = TaskId(Uuid::from_u128(7));
        let mut fault = WorkerFault::new(FaultKind::Disk, FaultScope::AnyTask, "full");
        assert!(fault.excludes_flow(&flow));
        fault.is_probed = true;
        assert!(!fault.excludes_flow(&flow));
        let mut fault = WorkerFault::new(FaultKind::Engine, FaultScope::Task(task), "old");
        assert_eq!(fault.excluded_task(), Some(task));
        fault.is_probed = true;
        assert_eq!(fault.excluded_task(), None);
    }

    #[test]
    fn messages_are_one_line_of_bounded_length() {
        let fault =
            WorkerFault::new(FaultKind::Host, FaultScope::AnyTask, &format!("a\n b\0 {}", "ä".repeat(900)));
        assert!(fault.message.starts_with("a b ää") && fault.message.ends_with("ä…"), "{}", fault.message);
        assert!(fault.message.len() <= FAULT_MESSAGE_BYTES_MAX);
    }
}

//! What the groups are measured with: places, processes, a made-up model, made-up runs, clients that cost little.

pub(crate) mod backlog;
pub(crate) mod coordinator_process;
pub(crate) mod docket_binary;
pub(crate) mod http_client;
pub(crate) mod model_server;
pub(crate) mod places;
pub(crate) mod proc;
pub(crate) mod raw_commits;
pub(crate) mod stream;
pub(crate) mod synthetic_run;
pub(crate) mod worker_process;

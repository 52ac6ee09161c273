//! The benchmarks' tools: folders, processes, a synthetic model, synthetic runs, cheap clients.

pub(crate) mod backlog;
pub(crate) mod bench_folder;
pub(crate) mod coordinator_process;
pub(crate) mod docket_binary;
pub(crate) mod http_client;
pub(crate) mod model_server;
pub(crate) mod process_stats;
pub(crate) mod raw_commits;
pub(crate) mod synthetic_events;
pub(crate) mod synthetic_run;
pub(crate) mod worker_process;

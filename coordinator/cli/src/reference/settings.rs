//! Descriptions of the settings for the reference, in addition to what the code declares. A test checks that
//! none is missing or obsolete and that the defaults match the code.

/// The default of a setting.
pub(super) enum SettingDefault {
    /// This value, which a test compares with the code.
    Value(&'static str),
    /// Not a single value; described in words.
    Description(&'static str),
}

use SettingDefault::{Description, Value};

/// Text before the settings.
pub(super) const HEAD: &str = "# Settings

Settings come from `docket.toml` in docket's home (`~/.local/share/docket`, or `DOCKET_HOME`), then the environment, then flags; later
sources take precedence. An invalid value is rejected with the setting's name and the allowed values. A run pins its settings in its log
when it starts, so a change applies to runs that start later.

Other environment variables: `DOCKET_HOME`; `DOCKET_URL` and `DOCKET_TOKEN`, for a remote coordinator; `ANTHROPIC_API_KEY` and
`OPENAI_API_KEY`, for workers; `DOCKET_LOG_FORMAT=json`, for servers; `AWS_…` for buckets; `OTEL_RESOURCE_ATTRIBUTES` and
`OTEL_EXPORTER_OTLP_HEADERS`.
";

/// The sections in the order of the reference, with their descriptions.
pub(super) const SECTIONS: &[(&str, &str)] = &[
    ("task", "Defaults for tasks."),
    (
        "run",
        "How runs work. The worker pins these settings when a run starts; the task's own flags take precedence.",
    ),
    (
        "worker",
        "A worker, and the limits shared by the commands of one run. Memory and processes are limited by control groups (version \
         1 or 2), which requires that the worker runs as root or that its systemd unit sets `Delegate=yes`; `docket doctor` \
         shows whether it works. A command that exceeds a limit is killed and told so; a run that keeps exceeding limits \
         fails (`run.exceeded_max`).",
    ),
    ("server", "A coordinator."),
    ("client", "Clients of a remote coordinator."),
    (
        "delivery",
        "How results are delivered on the machine that has the repository: [delivery](../topics/delivery.md).",
    ),
    ("archive", "Where old tasks are archived: [storage](../topics/storage.md)."),
    ("blobs", "Where large blobs are stored: [storage](../topics/storage.md)."),
    ("telemetry", "Export of run traces: [for other programs](../topics/programs.md)."),
];

/// Each setting: its name, description and default.
pub(super) const ABOUT: &[(&str, &str, SettingDefault)] = &[
    ("task.model", "the model", Description("none")),
    (
        "task.explore_model",
        "a cheap model that explores until something is to be changed",
        Description("none"),
    ),
    ("task.fallback_model", "a model used while another stays overloaded", Description("none")),
    ("task.engine", "the strategy of a run: [engines](../topics/engines.md)", Value("react")),
    (
        "run.turns_max",
        "model decisions before the run fails; counted per run, also when it continues another run",
        Value("30"),
    ),
    ("run.corrections_max", "correction rounds after failed final checks", Value("3")),
    ("run.correction_turns", "extra turns beyond `turns_max` for each of these rounds", Value("5")),
    (
        "run.self_corrections_max",
        "consecutive edits that leave new lint findings before findings are only summarized",
        Value("5"),
    ),
    ("run.auto_lint", "run linters after each batch of edits", Value("true")),
    (
        "run.refuse_syntax_errors",
        "reject an edit that adds syntax errors, instead of reporting them",
        Value("false"),
    ),
    ("run.syntax_check", "at the end, changed files that no longer parse fail a check", Value("true")),
    ("run.read_cache", "do not show unchanged file content to the model again", Value("true")),
    ("run.lint_timeout_ms", "time limit of a linter after edits", Value("10000")),
    ("run.compaction_percent", "share of the context window at which history is compacted", Value("85")),
    ("run.output_chars_max", "characters of a command's output shown to the model", Value("4000")),
    ("run.command_timeout_ms", "default time limit of a command", Value("60000")),
    ("run.command_timeout_ms_max", "longest time limit that a command may request", Value("300000")),
    ("run.output_tokens_max", "maximum tokens of a model's reply", Value("8192")),
    ("run.model_attempts_max", "attempts per model call", Value("6")),
    ("run.empty_answers_max", "consecutive empty replies before the run fails", Value("3")),
    ("run.exceeded_max", "turns in which commands exceed resource limits before the run fails", Value("3")),
    ("run.same_error_max", "turns with the same error before a person is asked", Value("3")),
    ("run.failed_edits_max", "failed attempts to change a file before a person is asked", Value("3")),
    ("run.failures_max", "unresolved failures before a person is asked", Value("5")),
    (
        "run.fallback_after",
        "overloads or other outages in a turn before the fallback model is used",
        Value("3"),
    ),
    (
        "run.fallback_turns",
        "turns that use the fallback model before the original is tried again",
        Value("5"),
    ),
    ("run.effort", "reasoning effort of the main model", Description("the provider's")),
    (
        "run.tool_set",
        "the model's tools: core (seven) or wide (26), plus `read_output`: [tools](../topics/tools.md)",
        Value("core"),
    ),
    ("run.temperature", "sampling temperature of the main model", Description("the provider's")),
    ("run.tokens_max", "token budget of a run", Value("0")),
    ("run.cost_max", "cost budget of a run, in dollars", Description("no budget")),
    ("run.time_max_ms", "time budget of a run: its calls, tools, checks and child tasks", Value("0")),
    (
        "run.ask_at_blockers",
        "ask a person when access is missing or a service fails to respond twice",
        Value("true"),
    ),
    ("run.plan_asks_max", "reminders, from the second request on, for a model that gave no plan", Value("3")),
    ("run.early_end", "stop as soon as everything in `--require` exists and the tests pass", Value("true")),
    (
        "run.rest_at_outage",
        "wait while a provider is unavailable and retry on a schedule, instead of failing",
        Value("true"),
    ),
    (
        "run.base_checks",
        "run the final checks once before a run changes anything, so that regressions and rework are detected; runs on the same tree share the result for a day",
        Value("true"),
    ),
    (
        "run.unverified",
        "what happens to a finished run whose final checks could not run: ask a person, complete it as \
         unverified, or fail it; a project without checks completes unverified",
        Value("ask"),
    ),
    (
        "run.complexity",
        "whether no, a brief or a detailed intent preview precedes the first change",
        Description("judged from the task's text"),
    ),
    (
        "run.delegation_depth_max",
        "how many levels of child tasks a run may delegate to; every engine except `plan`, whose roles call no tools",
        Value("0"),
    ),
    ("run.children_max", "total child tasks of a run, if it may delegate", Value("0")),
    ("worker.slots", "concurrent runs", Value("2")),
    (
        "worker.hang_ms",
        "a run process that makes no progress for this long is considered hung",
        Description("the longest time allowed for its current operation"),
    ),
    ("worker.queues", "the queues that it serves", Description("all")),
    ("worker.labels", "labels of the worker, which tasks can require", Description("none")),
    ("worker.sandbox", "the sandbox used for commands", Value("auto")),
    (
        "worker.memory",
        "memory of all processes, including files in `/tmp`",
        Description("half the machine's memory, at most 8GiB"),
    ),
    ("worker.processes", "processes and threads", Value("1024")),
    ("worker.disk", "total size of the workspace", Value("16GiB")),
    ("worker.files", "files and folders in the workspace", Value("2000000")),
    ("worker.output", "output of one command, most of which is discarded", Value("256MiB")),
    (
        "worker.redact",
        "variables whose values are redacted from prompts, results, events and texts that people write; files keep them",
        Description("none"),
    ),
    (
        "worker.base_urls",
        "model servers that receive this worker's API keys, in addition to the providers' own: [models](../topics/models.md)",
        Description("none"),
    ),
    ("delivery.remote", "the remote that results are pushed to", Value("origin")),
    ("delivery.hook", "a shell command that runs after a branch is created or pushed", Description("none")),
    ("delivery.hook_timeout_ms", "time limit of the hook", Value("120000")),
    ("server.listen", "the address to listen on", Value("127.0.0.1:7117")),
    ("server.store", "the store", Description("the home's own SQLite file")),
    ("server.lease_ms", "how long a lease lasts without a heartbeat", Value("30000")),
    ("server.hosts", "accepted host names, in addition to its addresses", Description("none")),
    (
        "server.public_url",
        "the public URL of the dashboard, for links in notifications: [notifications](../topics/programs.md#notifications)",
        Description("none"),
    ),
    ("server.tls_cert", "the TLS certificate", Description("none")),
    ("server.tls_key", "the private key of the certificate", Description("none")),
    (
        "server.requests_per_second",
        "requests per second of one token; one address may make four times as many",
        Value("10000"),
    ),
    ("server.auth_failures_per_minute", "failed authentications per minute from one address", Value("60")),
    (
        "server.connections_per_peer",
        "connections from one remote address, out of 4096 in total",
        Value("1024"),
    ),
    ("client.ca", "the only CA to trust for an https coordinator", Description("the system's")),
    ("blobs.to", "where they are stored", Description("the database")),
    ("blobs.over", "minimum size of a blob that is stored there", Value("256KiB")),
    ("archive.to", "where tasks are archived", Description("none")),
    ("archive.after", "how long after a task's end it is archived automatically", Value("never")),
    ("archive.queues", "the same, for individual queues", Description("none")),
    ("telemetry.otlp_endpoint", "an OTLP/HTTP collector, without `/v1/traces`", Description("none")),
    ("telemetry.service_name", "`service.name` of exported traces", Value("docket")),
];

/// Text after the settings: sections that are not single values.
pub(super) const TAIL: &str = "
## Other sections

| section | meaning | documented in |
|---|---|---|
| `[policy]`, `[[policy.rules]]`, `[policy.network]` | what models may do | [sandbox and policy](../howto/sandbox-policy.md) |
| `[roles.NAME]`, `[team.roles.NAME]`, `team.registry` | models and options of an engine's roles, and the roles of a team | [engines](../topics/engines.md) |
| `[prices.\"PROVIDER:MODEL\"]` | prices of models that docket's built-in table does not contain | [models](../topics/models.md) |
| `[mcp.NAME]` | MCP servers that provide additional tools | [tools](../topics/tools.md) |
| `[[notify]]` | notifications about tasks that need a person, failed or finished | [notifications](../topics/programs.md#notifications) |

A repository may have its own `docket.toml`, which defines how it is tested and linted: [checks](../topics/checks.md).
";

//! What each setting is for, in words: what the reference tells beside what the code knows itself. A test sees that none is
//! missing, none is left over, and that the defaults are those of the code.

/// What a setting is where nobody says anything.
pub(super) enum SettingDefault {
    /// This value: held against the code.
    Value(&'static str),
    /// What is no one value, in words.
    Description(&'static str),
}

use SettingDefault::{Description, Value};

/// Before the settings.
pub(super) const HEAD: &str = "# Settings

`docket.toml` in docket's home (`~/.local/share/docket`, or `DOCKET_HOME`), the environment over it, flags over both. A wrong value is
refused with its name and what is allowed. What a run begins with is pinned in its log: a change is for runs that begin later.

Beside these the environment has `DOCKET_HOME`; `DOCKET_URL` and `DOCKET_TOKEN`, for a coordinator elsewhere; `ANTHROPIC_API_KEY` and
`OPENAI_API_KEY`, a worker's; `DOCKET_LOG_FORMAT=json`, for servers; `AWS_…` for buckets; `OTEL_RESOURCE_ATTRIBUTES` and
`OTEL_EXPORTER_OTLP_HEADERS`.
";

/// The sections, in the order in which they are told, with what they are about.
pub(super) const SECTIONS: &[(&str, &str)] = &[
    ("task", "What a task has that names none of its own."),
    (
        "run",
        "How runs go: pinned when a run begins, by the worker that begins it; a task's own flags go over it.",
    ),
    (
        "worker",
        "A worker, and what the commands of one run may use together. Memory and processes are bounded by control groups (either \
         version): the worker is root, or its systemd unit says `Delegate=yes`; `docket doctor` tells. A command that uses more is \
         ended and told so, and so is the run, in the end (`run.exceeded_max`).",
    ),
    ("server", "A coordinator."),
    ("client", "Whoever calls a coordinator elsewhere."),
    (
        "delivery",
        "How results are handed over, where their repository is: [delivery](../topics/delivery.md).",
    ),
    ("archive", "Where tasks go that ended long ago: [storage](../topics/storage.md)."),
    ("blobs", "Where large contents are kept: [storage](../topics/storage.md)."),
    ("telemetry", "Traces of runs: [for other programs](../topics/programs.md)."),
];

/// Each setting by its name: what it says, and what it is by default.
pub(super) const ABOUT: &[(&str, &str, SettingDefault)] = &[
    ("task.model", "the model", Description("none")),
    (
        "task.explore_model",
        "a cheap model that looks around until something is to be changed",
        Description("none"),
    ),
    ("task.fallback_model", "a model that stands in where one stays overloaded", Description("none")),
    ("task.engine", "how a run gets to its end: [engines](../topics/engines.md)", Value("react")),
    (
        "run.turns_max",
        "model decisions before the run fails; each run's own, also where it goes on from another",
        Value("30"),
    ),
    ("run.corrections_max", "rounds after failed final checks", Value("3")),
    ("run.correction_turns", "turns beyond `turns_max` for each of these", Value("5")),
    (
        "run.self_corrections_max",
        "edits in a row that leave new lint findings, before these are only named in short",
        Value("5"),
    ),
    ("run.auto_lint", "linters run after each batch of edits", Value("true")),
    (
        "run.refuse_syntax_errors",
        "refuse an edit that adds syntax errors, in place of telling",
        Value("false"),
    ),
    ("run.syntax_check", "at the end, changed files that no longer parse fail a check", Value("true")),
    ("run.read_cache", "what was shown of a file and has not changed is not shown again", Value("true")),
    ("run.lint_timeout_ms", "time limit of a linter after edits", Value("10000")),
    ("run.compaction_percent", "share of the context window at which history is made shorter", Value("85")),
    ("run.output_chars_max", "characters of a command's output that the model sees", Value("4000")),
    ("run.command_timeout_ms", "time limit of a command that names none", Value("60000")),
    ("run.command_timeout_ms_max", "longest that a command may name", Value("300000")),
    ("run.output_tokens_max", "largest answer asked of the model", Value("8192")),
    ("run.model_attempts_max", "attempts at one model call", Value("6")),
    ("run.empty_answers_max", "empty answers in a row", Value("3")),
    ("run.exceeded_max", "turns in which commands used more than they may, then the run fails", Value("3")),
    ("run.same_error_max", "turns with the same error, then a person is asked", Value("3")),
    ("run.failed_edits_max", "failed attempts to change a file, then a person is asked", Value("3")),
    ("run.failures_max", "failures that were not made good; beyond, a person is asked", Value("5")),
    (
        "run.fallback_after",
        "overloads, or other outages, in a turn, then the fallback model is asked",
        Value("3"),
    ),
    (
        "run.fallback_turns",
        "turns that the fallback model then keeps before the other is tried again",
        Value("5"),
    ),
    ("run.effort", "how hard the main model thinks", Description("the provider's")),
    (
        "run.tool_set",
        "which tools the model has, the seven or 26 and `read_output`: [tools](../topics/tools.md)",
        Value("core"),
    ),
    ("run.temperature", "the main model's sampling temperature", Description("the provider's")),
    ("run.tokens_max", "tokens that a run may use", Value("0")),
    ("run.cost_max", "dollars that a run may cost", Description("no budget")),
    ("run.time_max_ms", "time that a run's calls, tools, checks and children may take", Value("0")),
    (
        "run.ask_at_blockers",
        "ask a person at missing access, and where a service does not answer twice",
        Value("true"),
    ),
    ("run.plan_asks_max", "requests, from the second on, that remind a model which gave no plan", Value("3")),
    ("run.early_end", "stop once all that `--require` names is there and the tests pass", Value("true")),
    (
        "run.rest_at_outage",
        "rest where a provider stays away, and ask again by the clock, in place of failing",
        Value("true"),
    ),
    (
        "run.base_checks",
        "run the final checks once before a run changes anything, so that regressions and rework are known; runs on one tree share the result for a day",
        Value("true"),
    ),
    (
        "run.unverified",
        "what becomes of a run whose work is done and whose final checks did not run: ask a person, complete it as \
         unverified, or fail it; a project without any check completes unverified",
        Value("ask"),
    ),
    (
        "run.complexity",
        "whether none, a brief or a detailed preview comes before the first change",
        Description("judged by the task's words"),
    ),
    (
        "run.delegation_depth_max",
        "how deep runs may give work away to child tasks; every engine but `plan`, whose roles call no tools",
        Value("0"),
    ),
    ("run.children_max", "child tasks of a run in all, where it may have any", Value("0")),
    ("worker.slots", "runs at once", Value("2")),
    (
        "worker.hang_ms",
        "a run process without progress for so long counts as hanging",
        Description("the longest that what it is at may take"),
    ),
    ("worker.queues", "the queues that it serves", Description("all")),
    (
        "worker.labels",
        "what it says of itself; a task may want a worker that has a label",
        Description("none"),
    ),
    ("worker.sandbox", "the walls around commands", Value("auto")),
    (
        "worker.memory",
        "memory of all processes, and of what lies in `/tmp`",
        Description("half the machine's, at most 8GiB"),
    ),
    ("worker.processes", "processes and threads", Value("1024")),
    ("worker.disk", "what the workspace may hold", Value("16GiB")),
    ("worker.files", "files and folders in it", Value("2000000")),
    ("worker.output", "what one command may print, most of which is not kept", Value("256MiB")),
    (
        "worker.redact",
        "variables whose values are struck out of prompts, results, events and what people write; files keep them",
        Description("none"),
    ),
    (
        "worker.base_urls",
        "model servers that get this worker's keys, beside the providers' own: [models](../topics/models.md)",
        Description("none"),
    ),
    ("delivery.remote", "where results are pushed to", Value("origin")),
    ("delivery.hook", "a shell line after a branch or a push", Description("none")),
    ("delivery.hook_timeout_ms", "how long that may take", Value("120000")),
    ("server.listen", "where it listens", Value("127.0.0.1:7117")),
    ("server.store", "the store", Description("the home's own SQLite file")),
    ("server.lease_ms", "how long a lease lasts without a heartbeat", Value("30000")),
    ("server.hosts", "names by which it may be called, beside its addresses", Description("none")),
    (
        "server.public_url",
        "where people find the dashboard, for links in notifications: [notifications](../topics/programs.md#notifications)",
        Description("none"),
    ),
    ("server.tls_cert", "its certificate for TLS", Description("none")),
    ("server.tls_key", "the certificate's key", Description("none")),
    (
        "server.requests_per_second",
        "requests of one token; an address may make four times as many",
        Value("10000"),
    ),
    ("server.auth_failures_per_minute", "wrong tokens from one address", Value("60")),
    ("server.connections_per_peer", "connections from one other address, of 4096", Value("1024")),
    ("client.ca", "the one CA to trust where the coordinator is https", Description("the system's")),
    ("blobs.to", "where they are kept", Description("the database")),
    ("blobs.over", "from which size on", Value("256KiB")),
    ("archive.to", "where tasks are moved to", Description("none")),
    ("archive.after", "how long after its end a coordinator archives a task by itself", Value("never")),
    ("archive.queues", "the same for some queues", Description("none")),
    ("telemetry.otlp_endpoint", "a collector for OTLP over HTTP, without `/v1/traces`", Description("none")),
    ("telemetry.service_name", "`service.name` of what is sent", Value("docket")),
];

/// Behind the settings: sections that are no single values.
pub(super) const TAIL: &str = "
## Sections of their own

| section | says | told in |
|---|---|---|
| `[policy]`, `[[policy.rules]]`, `[policy.network]` | what models may do | [sandbox and policy](../howto/sandbox-policy.md) |
| `[roles.NAME]`, `[team.roles.NAME]`, `team.registry` | who plays an engine's roles, and what a team is made of | [engines](../topics/engines.md) |
| `[prices.\"PROVIDER:MODEL\"]` | models that docket's own table of prices does not name | [models](../topics/models.md) |
| `[mcp.NAME]` | MCP servers that give runs more tools | [tools](../topics/tools.md) |
| `[[notify]]` | who is told of what needs a person, failed and finished | [notifications](../topics/programs.md#notifications) |

A repository may have a `docket.toml` of its own, which says how it is tested and linted: [checks](../topics/checks.md).
";

-- What the runs of a batch may use together, as `system/budgets` says it, and what they have used, by what their own
-- streams say: the sum of `run_usage`. `spent` says why the budget does not pay for the next call.
CREATE TABLE batch_budgets (
  batch         BYTEA PRIMARY KEY CHECK (octet_length(batch) = 16),
  tokens_max    BIGINT CHECK (tokens_max > 0),
  cost_max_nusd BIGINT CHECK (cost_max_nusd > 0),
  spent         TEXT,
  tokens        BIGINT NOT NULL DEFAULT 0 CHECK (tokens >= 0),
  cost_nusd     BIGINT NOT NULL DEFAULT 0 CHECK (cost_nusd >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.02);
-- Which batches no task is leased of: asked by each lease.
CREATE INDEX batch_budgets_spent ON batch_budgets (batch) WHERE spent IS NOT NULL;

-- Of each run of a batch that was looked at: what its events up to `counted_seq` used. Nothing writes here when a run
-- appends. And what its call under way may use at most, under which epoch: no projection, worth nothing once that has ended.
CREATE TABLE run_usage (
  run             BYTEA PRIMARY KEY CHECK (octet_length(run) = 16),
  batch           BYTEA NOT NULL CHECK (octet_length(batch) = 16),
  counted_seq     BIGINT NOT NULL,
  tokens          BIGINT NOT NULL CHECK (tokens >= 0),
  cost_nusd       BIGINT NOT NULL CHECK (cost_nusd >= 0),
  epoch           BIGINT NOT NULL,
  reserved_tokens BIGINT NOT NULL,
  reserved_nusd   BIGINT NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0.02);
-- The runs of a batch with a call under way: asked by each call that a budget is to pay for.
CREATE INDEX run_usage_under_way ON run_usage (batch) WHERE reserved_tokens > 0;

-- Tasks that rest until their batch may use more: asked by the scheduler.
CREATE INDEX tasks_over_budget ON tasks (batch) WHERE blocked_why = 'budget';

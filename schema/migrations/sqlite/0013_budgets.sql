-- What the runs of a batch may use together, as `system/budgets` says it, and what they have used, by what their own
-- streams say: the sum of `run_usage`. `spent` says why the budget does not pay for the next call.
CREATE TABLE batch_budgets (
  batch         BLOB PRIMARY KEY CHECK (length(batch) = 16),
  tokens_max    INTEGER CHECK (tokens_max > 0),
  cost_max_nusd INTEGER CHECK (cost_max_nusd > 0),
  spent         TEXT,
  tokens        INTEGER NOT NULL DEFAULT 0 CHECK (tokens >= 0),
  cost_nusd     INTEGER NOT NULL DEFAULT 0 CHECK (cost_nusd >= 0)
) STRICT;
-- Which batches no task is leased of: asked by each lease.
CREATE INDEX batch_budgets_spent ON batch_budgets (batch) WHERE spent IS NOT NULL;

-- Of each run of a batch that was looked at: what its events up to `counted_seq` used. Nothing writes here when a run
-- appends. And what its call under way may use at most, under which epoch: no projection, worth nothing once that has ended.
CREATE TABLE run_usage (
  run             BLOB PRIMARY KEY CHECK (length(run) = 16),
  batch           BLOB NOT NULL CHECK (length(batch) = 16),
  counted_seq     INTEGER NOT NULL,
  tokens          INTEGER NOT NULL CHECK (tokens >= 0),
  cost_nusd       INTEGER NOT NULL CHECK (cost_nusd >= 0),
  epoch           INTEGER NOT NULL,
  reserved_tokens INTEGER NOT NULL,
  reserved_nusd   INTEGER NOT NULL
) STRICT;
-- The runs of a batch with a call under way: asked by each call that a budget is to pay for.
CREATE INDEX run_usage_under_way ON run_usage (batch) WHERE reserved_tokens > 0;

-- Tasks that rest until their batch may use more: asked by the scheduler.
CREATE INDEX tasks_over_budget ON tasks (batch) WHERE blocked_why = 'budget';

-- Flow control. A flow is all tasks that a worker can or cannot take alike, and a rank is a task's place in it: a
-- worker finds the first tasks of each flow that is for it by one index, and steps over no others. Queues have
-- settings; tasks wait for tasks; workers say what they are.

ALTER TABLE tasks
  ADD COLUMN flow TEXT COLLATE "C",
  ADD COLUMN rank BIGINT,
  ADD COLUMN concurrency_key TEXT,
  ADD COLUMN concurrency_max BIGINT CHECK (concurrency_max > 0),
  ADD COLUMN waits_for BYTEA CHECK (length(waits_for) > 0 AND length(waits_for) % 16 = 0),
  ADD COLUMN leased_at BIGINT;
UPDATE tasks SET
  flow = queue || E'\t' || coalesce(encode(batch, 'hex'), '') || E'\t\t\t\t' || engine,
  rank = available_at - priority * 60000000,
  leased_at = CASE state WHEN 'running' THEN
    (SELECT max(e.recorded_at) FROM events e WHERE e.stream_id = tasks.stream_id AND e.kind = 'TaskLeased') END;
ALTER TABLE tasks
  ALTER COLUMN flow SET NOT NULL,
  ALTER COLUMN rank SET NOT NULL,
  ADD CONSTRAINT tasks_leased_check CHECK ((state = 'running') = (leased_at IS NOT NULL)),
  ADD CONSTRAINT tasks_pending_check CHECK (state <> 'pending' OR waits_for IS NOT NULL),
  ADD CONSTRAINT tasks_concurrency_check CHECK ((concurrency_key IS NULL) = (concurrency_max IS NULL));

ALTER TABLE tasks DROP CONSTRAINT tasks_blocked_why_check;
ALTER TABLE tasks ADD CONSTRAINT tasks_blocked_why_check
  CHECK (blocked_why IN ('person', 'child', 'paused', 'provider', 'outage', 'budget', 'worker_fault'));

DROP INDEX tasks_leasable;
CREATE INDEX tasks_leasable ON tasks (flow, rank, id) WHERE state = 'available';
CREATE INDEX tasks_running ON tasks (flow) WHERE state = 'running';

-- A row's stream is written with it in one transaction, and `db rebuild` compares them: a reference and an index that
-- nothing is looked up by would be paid for by each submit and each lease.
ALTER TABLE tasks DROP CONSTRAINT tasks_stream_id_fkey, DROP CONSTRAINT tasks_stream_id_key;
ALTER TABLE runs DROP CONSTRAINT runs_stream_id_fkey, DROP CONSTRAINT runs_stream_id_key;

-- Who waits for whom, to be found from the task that ends; the same stands in `tasks.waits_for`.
CREATE TABLE task_dependencies (
  dependency BYTEA NOT NULL CHECK (length(dependency) = 16),
  task       BYTEA NOT NULL CHECK (length(task) = 16),
  PRIMARY KEY (dependency, task)
);

-- The last event of each queue's stream.
CREATE TABLE queues (
  name        TEXT   PRIMARY KEY,
  paused      BIGINT NOT NULL CHECK (paused IN (0, 1)),
  running_max BIGINT
);

-- No event: what workers said last.
ALTER TABLE workers
  ADD COLUMN about TEXT,
  ADD COLUMN slots BIGINT,
  ADD COLUMN full_why TEXT,
  ADD COLUMN draining BIGINT NOT NULL DEFAULT 0 CHECK (draining IN (0, 1));

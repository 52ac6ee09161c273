-- Flow control. A flow is all tasks that a worker can or cannot take alike, and a rank is a task's place in it: a
-- worker finds the first tasks of each flow that is for it by one index, and steps over no others. Queues have
-- settings; tasks wait for tasks; workers say what they are. SQLite changes no CHECK in place: the table is made anew.

CREATE TABLE tasks_next (
  id           BLOB    PRIMARY KEY CHECK (length(id) = 16),
  stream_id    INTEGER NOT NULL,
  seq          INTEGER NOT NULL,
  hash         BLOB    NOT NULL,
  state        TEXT    NOT NULL CHECK (state IN ('pending', 'scheduled', 'available', 'running', 'retryable',
                                                 'blocked', 'completed', 'cancelled', 'discarded')),
  queue        TEXT    NOT NULL,
  engine       TEXT    NOT NULL,
  priority     INTEGER NOT NULL,
  dedup_key    TEXT,
  batch        BLOB,
  epoch        INTEGER NOT NULL CHECK (epoch >= 0),
  failures     INTEGER NOT NULL CHECK (failures >= 0),
  crashes      INTEGER NOT NULL CHECK (crashes >= 0),
  runs         INTEGER NOT NULL CHECK (runs >= 0),
  run          BLOB,
  last_run     BLOB,
  worker       BLOB,
  available_at INTEGER NOT NULL,
  blocked_why  TEXT    CHECK (blocked_why IN ('person', 'child', 'paused', 'provider', 'outage', 'budget')),
  message      TEXT,
  submitted_at INTEGER NOT NULL,
  ended_at     INTEGER,
  deadline_at  INTEGER,
  flow         TEXT    NOT NULL,
  rank         INTEGER NOT NULL,
  concurrency_key TEXT,
  concurrency_max INTEGER CHECK (concurrency_max > 0),
  waits_for    BLOB    CHECK (length(waits_for) > 0 AND length(waits_for) % 16 = 0),
  leased_at    INTEGER,
  CHECK ((state = 'running') = (worker IS NOT NULL)),
  CHECK ((state = 'running') = (deadline_at IS NOT NULL)),
  CHECK ((state = 'blocked') = (blocked_why IS NOT NULL)),
  CHECK ((state IN ('completed', 'cancelled', 'discarded')) = (ended_at IS NOT NULL)),
  CHECK (state <> 'running' OR (run IS NOT NULL AND epoch > 0)),
  CHECK (ended_at IS NULL OR run IS NULL),
  CHECK ((state = 'running') = (leased_at IS NOT NULL)),
  CHECK (state <> 'pending' OR waits_for IS NOT NULL),
  CHECK ((concurrency_key IS NULL) = (concurrency_max IS NULL))
) STRICT;

INSERT INTO tasks_next (id, stream_id, seq, hash, state, queue, engine, priority, dedup_key, batch, epoch, failures, crashes, runs, run,
  last_run, worker, available_at, blocked_why, message, submitted_at, ended_at, deadline_at,
  flow, rank, leased_at)
SELECT id, stream_id, seq, hash, state, queue, engine, priority, dedup_key, batch, epoch, failures, crashes, runs, run,
  last_run, worker, available_at, blocked_why, message, submitted_at, ended_at, deadline_at,
  queue || char(9) || coalesce(lower(hex(batch)), '') || char(9) || char(9) || char(9) || char(9) || engine,
  available_at - priority * 60000000,
  CASE state WHEN 'running' THEN
    (SELECT max(e.recorded_at) FROM events e WHERE e.stream_id = tasks.stream_id AND e.kind = 'TaskLeased') END
FROM tasks;

DROP TABLE tasks;
ALTER TABLE tasks_next RENAME TO tasks;

CREATE INDEX tasks_leasable ON tasks (flow, rank, id) WHERE state = 'available';
CREATE INDEX tasks_running ON tasks (flow) WHERE state = 'running';
CREATE INDEX tasks_due ON tasks (available_at) WHERE state IN ('scheduled', 'retryable') OR blocked_why = 'outage';
CREATE INDEX tasks_deadline ON tasks (deadline_at) WHERE state = 'running';
CREATE UNIQUE INDEX tasks_dedup ON tasks (dedup_key)
  WHERE dedup_key IS NOT NULL AND state NOT IN ('completed', 'cancelled', 'discarded');
CREATE INDEX tasks_batch ON tasks (batch, id) WHERE batch IS NOT NULL;
CREATE INDEX tasks_state ON tasks (state, id);

-- A row's stream is written with it by the one writer, and `db rebuild` compares them: a reference and an index that
-- nothing is looked up by would be paid for by each submit and each lease.
CREATE TABLE runs_next (
  id         BLOB    PRIMARY KEY CHECK (length(id) = 16),
  stream_id  INTEGER NOT NULL,
  task       BLOB    NOT NULL CHECK (length(task) = 16),
  attempt    INTEGER NOT NULL CHECK (attempt > 0),
  stage      TEXT    NOT NULL CHECK (stage IN ('living', 'blocked', 'paused',
                                               'succeeded', 'failed', 'cancelled', 'superseded')),
  parent     BLOB,
  parent_seq INTEGER,
  ended_at   INTEGER,
  CHECK ((parent IS NULL) = (parent_seq IS NULL)),
  CHECK ((stage IN ('living', 'blocked', 'paused')) = (ended_at IS NULL))
) STRICT;
INSERT INTO runs_next SELECT id, stream_id, task, attempt, stage, parent, parent_seq, ended_at FROM runs;
DROP TABLE runs;
ALTER TABLE runs_next RENAME TO runs;
CREATE INDEX runs_task ON runs (task, attempt);
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;

-- Who waits for whom, to be found from the task that ends; the same stands in `tasks.waits_for`.
CREATE TABLE task_dependencies (
  dependency BLOB NOT NULL CHECK (length(dependency) = 16),
  task       BLOB NOT NULL CHECK (length(task) = 16),
  PRIMARY KEY (dependency, task)
) STRICT, WITHOUT ROWID;

-- The last event of each queue's stream.
CREATE TABLE queues (
  name        TEXT    PRIMARY KEY,
  paused      INTEGER NOT NULL CHECK (paused IN (0, 1)),
  running_max INTEGER
) STRICT;

-- No event: what workers said last.
ALTER TABLE workers ADD COLUMN about TEXT;
ALTER TABLE workers ADD COLUMN slots INTEGER;
ALTER TABLE workers ADD COLUMN full_why TEXT;
ALTER TABLE workers ADD COLUMN draining INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1));

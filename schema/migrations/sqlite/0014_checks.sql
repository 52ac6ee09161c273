-- What each row must hold costs no more than it must. SQLite makes a table in memory for each list of three words or more
-- that a CHECK compares with, each time a statement runs, and the writer runs one a row: half of what a row of a task
-- cost went there. So each state says in one place what goes with it. SQLite changes no CHECK in place: the tables are
-- made anew.

DROP TRIGGER events_refuse_delete;
DROP TRIGGER streams_refuse_archived;

CREATE TABLE streams_next (
  id        INTEGER PRIMARY KEY,
  name      TEXT    NOT NULL UNIQUE,
  head_seq  INTEGER NOT NULL CHECK (head_seq >= 0),
  head_hash BLOB    NOT NULL CHECK (length(head_hash) = 32),
  head_at   INTEGER NOT NULL,
  epoch     INTEGER NOT NULL CHECK (epoch >= 0),
  fence     TEXT    NOT NULL CHECK (fence = 'none' OR fence = 'open' OR fence = 'shut' OR fence = 'closed')
) STRICT;
INSERT INTO streams_next (id, name, head_seq, head_hash, head_at, epoch, fence)
SELECT id, name, head_seq, head_hash, head_at, epoch, fence FROM streams;
DROP TABLE streams;
ALTER TABLE streams_next RENAME TO streams;

-- As they were: see 0008.
CREATE TRIGGER events_refuse_delete BEFORE DELETE ON events
WHEN NOT EXISTS (
  SELECT 1 FROM archiving a JOIN streams s ON s.id = a.stream_id JOIN archived_streams t ON t.name = s.name
  WHERE a.stream_id = OLD.stream_id AND t.head_seq = s.head_seq AND t.head_hash = s.head_hash)
BEGIN
  SELECT RAISE(ABORT, 'events are immutable');
END;
CREATE TRIGGER streams_refuse_archived BEFORE INSERT ON streams
WHEN EXISTS (SELECT 1 FROM archived_streams t WHERE t.name = NEW.name)
BEGIN
  SELECT RAISE(ABORT, 'the stream is archived');
END;

CREATE TABLE runs_next (
  id         BLOB    PRIMARY KEY CHECK (length(id) = 16),
  stream_id  INTEGER NOT NULL,
  task       BLOB    NOT NULL CHECK (length(task) = 16),
  attempt    INTEGER NOT NULL CHECK (attempt > 0),
  stage      TEXT    NOT NULL,
  parent     BLOB,
  parent_seq INTEGER,
  ended_at   INTEGER,
  CHECK ((parent IS NULL) = (parent_seq IS NULL)),
  CHECK (CASE stage
    WHEN 'living' THEN ended_at IS NULL
    WHEN 'succeeded' THEN ended_at IS NOT NULL
    WHEN 'failed' THEN ended_at IS NOT NULL
    WHEN 'blocked' THEN ended_at IS NULL
    WHEN 'paused' THEN ended_at IS NULL
    WHEN 'cancelled' THEN ended_at IS NOT NULL
    WHEN 'superseded' THEN ended_at IS NOT NULL
    ELSE 0 END)
) STRICT;
INSERT INTO runs_next (id, stream_id, task, attempt, stage, parent, parent_seq, ended_at)
SELECT id, stream_id, task, attempt, stage, parent, parent_seq, ended_at FROM runs;
DROP TABLE runs;
ALTER TABLE runs_next RENAME TO runs;
CREATE INDEX runs_task ON runs (task, attempt);
CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;

CREATE TABLE tasks_next (
  id           BLOB    PRIMARY KEY CHECK (length(id) = 16),
  stream_id    INTEGER NOT NULL,
  seq          INTEGER NOT NULL,
  hash         BLOB    NOT NULL,
  state        TEXT    NOT NULL,
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
  blocked_why  TEXT,
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
  -- Why a completed task, or one that asks a person, is unverified.
  unverified   TEXT,
  -- Leases in a row that ended with a fault of the worker.
  worker_faults INTEGER NOT NULL CHECK (worker_faults >= 0),
  CHECK ((worker IS NULL) = (deadline_at IS NULL) AND (worker IS NULL) = (leased_at IS NULL)),
  CHECK ((concurrency_key IS NULL) = (concurrency_max IS NULL)),
  CHECK (CASE state
    WHEN 'available' THEN worker IS NULL AND ended_at IS NULL AND blocked_why IS NULL
    WHEN 'running' THEN worker IS NOT NULL AND run IS NOT NULL AND epoch > 0 AND ended_at IS NULL AND blocked_why IS NULL
    WHEN 'completed' THEN worker IS NULL AND run IS NULL AND ended_at IS NOT NULL AND blocked_why IS NULL
    WHEN 'scheduled' THEN worker IS NULL AND ended_at IS NULL AND blocked_why IS NULL
    WHEN 'retryable' THEN worker IS NULL AND ended_at IS NULL AND blocked_why IS NULL
    WHEN 'pending' THEN waits_for IS NOT NULL AND worker IS NULL AND ended_at IS NULL AND blocked_why IS NULL
    WHEN 'blocked' THEN blocked_why IS NOT NULL
      AND blocked_why IN ('person', 'child', 'paused', 'provider', 'outage', 'budget', 'worker_fault')
      AND worker IS NULL AND ended_at IS NULL
    WHEN 'cancelled' THEN worker IS NULL AND run IS NULL AND ended_at IS NOT NULL AND blocked_why IS NULL
    WHEN 'discarded' THEN worker IS NULL AND run IS NULL AND ended_at IS NOT NULL AND blocked_why IS NULL
    ELSE 0 END)
) STRICT;
INSERT INTO tasks_next (id, stream_id, seq, hash, state, queue, engine, priority, dedup_key, batch, epoch, failures,
  crashes, runs, run, last_run, worker, available_at, blocked_why, message, submitted_at, ended_at, deadline_at, flow,
  rank, concurrency_key, concurrency_max, waits_for, leased_at, worker_faults)
SELECT id, stream_id, seq, hash, state, queue, engine, priority, dedup_key, batch, epoch, failures,
  crashes, runs, run, last_run, worker, available_at, blocked_why, message, submitted_at, ended_at, deadline_at, flow,
  rank, concurrency_key, concurrency_max, waits_for, leased_at, 0 FROM tasks;
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
CREATE INDEX tasks_ended ON tasks (ended_at, id) WHERE ended_at IS NOT NULL;
CREATE INDEX tasks_over_budget ON tasks (batch) WHERE blocked_why = 'budget';

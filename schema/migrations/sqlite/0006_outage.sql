-- A task may rest until its provider is back: it is due then, by the clock. SQLite changes no CHECK in place: the
-- table is made anew, with its rows and its indexes.

CREATE TABLE tasks_next (
  id           BLOB    PRIMARY KEY CHECK (length(id) = 16),
  stream_id    INTEGER NOT NULL UNIQUE REFERENCES streams (id),
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
  blocked_why  TEXT    CHECK (blocked_why IN ('person', 'child', 'paused', 'provider', 'outage')),
  message      TEXT,
  submitted_at INTEGER NOT NULL,
  ended_at     INTEGER,
  deadline_at  INTEGER,
  CHECK ((state = 'running') = (worker IS NOT NULL)),
  CHECK ((state = 'running') = (deadline_at IS NOT NULL)),
  CHECK ((state = 'blocked') = (blocked_why IS NOT NULL)),
  CHECK ((state IN ('completed', 'cancelled', 'discarded')) = (ended_at IS NOT NULL)),
  CHECK (state <> 'running' OR (run IS NOT NULL AND epoch > 0)),
  CHECK (ended_at IS NULL OR run IS NULL)
) STRICT;

INSERT INTO tasks_next (id, stream_id, seq, hash, state, queue, engine, priority, dedup_key, batch, epoch, failures, crashes, runs, run,
  last_run, worker, available_at, blocked_why, message, submitted_at, ended_at, deadline_at)
SELECT id, stream_id, seq, hash, state, queue, engine, priority, dedup_key, batch, epoch, failures, crashes, runs, run,
  last_run, worker, available_at, blocked_why, message, submitted_at, ended_at, deadline_at
FROM tasks;

DROP TABLE tasks;
ALTER TABLE tasks_next RENAME TO tasks;

CREATE INDEX tasks_leasable ON tasks (priority DESC, available_at, id, queue, engine) WHERE state = 'available';
CREATE INDEX tasks_due ON tasks (available_at) WHERE state IN ('scheduled', 'retryable') OR blocked_why = 'outage';
CREATE INDEX tasks_deadline ON tasks (deadline_at) WHERE state = 'running';
CREATE UNIQUE INDEX tasks_dedup ON tasks (dedup_key)
  WHERE dedup_key IS NOT NULL AND state NOT IN ('completed', 'cancelled', 'discarded');
CREATE INDEX tasks_batch ON tasks (batch, id) WHERE batch IS NOT NULL;
CREATE INDEX tasks_state ON tasks (state, id);

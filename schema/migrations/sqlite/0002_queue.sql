-- Projections of the log: tasks and runs; and what is no event: deadlines, workers, lease answers.
-- A task's specification is not repeated here: it stands in the first event of its stream.

CREATE TABLE tasks (
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
  blocked_why  TEXT    CHECK (blocked_why IN ('person', 'child', 'paused')),
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

CREATE INDEX tasks_leasable ON tasks (priority DESC, available_at, id, queue, engine) WHERE state = 'available';
CREATE INDEX tasks_due ON tasks (available_at) WHERE state IN ('scheduled', 'retryable');
CREATE INDEX tasks_deadline ON tasks (deadline_at) WHERE state = 'running';
CREATE UNIQUE INDEX tasks_dedup ON tasks (dedup_key)
  WHERE dedup_key IS NOT NULL AND state NOT IN ('completed', 'cancelled', 'discarded');
CREATE INDEX tasks_batch ON tasks (batch, id) WHERE batch IS NOT NULL;
CREATE INDEX tasks_state ON tasks (state, id);

CREATE TABLE runs (
  id         BLOB    PRIMARY KEY CHECK (length(id) = 16),
  stream_id  INTEGER NOT NULL UNIQUE REFERENCES streams (id),
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

CREATE INDEX runs_task ON runs (task, attempt);

CREATE TABLE workers (
  incarnation BLOB    PRIMARY KEY CHECK (length(incarnation) = 16),
  name        TEXT    NOT NULL,
  seen_at     INTEGER NOT NULL
) STRICT;

CREATE INDEX workers_seen ON workers (seen_at);

-- The last lease answer of each incarnation: its numbers rise by one, so an older one is never asked again.
CREATE TABLE lease_requests (
  incarnation BLOB    PRIMARY KEY CHECK (length(incarnation) = 16),
  number      INTEGER NOT NULL,
  answer      TEXT    NOT NULL
) STRICT;

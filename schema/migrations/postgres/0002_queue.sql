-- Projections of the log: tasks and runs; and what is no event: deadlines, workers, lease answers.
-- A task's specification is not repeated here: it stands in the first event of its stream.

CREATE TABLE tasks (
  id           BYTEA    PRIMARY KEY CHECK (length(id) = 16),
  stream_id    BIGINT NOT NULL UNIQUE REFERENCES streams (id),
  seq          BIGINT NOT NULL,
  hash         BYTEA    NOT NULL,
  state        TEXT    NOT NULL CHECK (state IN ('pending', 'scheduled', 'available', 'running', 'retryable',
                                                 'blocked', 'completed', 'cancelled', 'discarded')),
  queue        TEXT    NOT NULL,
  engine       TEXT    NOT NULL,
  priority     BIGINT NOT NULL,
  dedup_key    TEXT,
  batch        BYTEA,
  epoch        BIGINT NOT NULL CHECK (epoch >= 0),
  failures     BIGINT NOT NULL CHECK (failures >= 0),
  crashes      BIGINT NOT NULL CHECK (crashes >= 0),
  runs         BIGINT NOT NULL CHECK (runs >= 0),
  run          BYTEA,
  last_run     BYTEA,
  worker       BYTEA,
  available_at BIGINT NOT NULL,
  blocked_why  TEXT    CHECK (blocked_why IN ('person', 'child', 'paused')),
  message      TEXT,
  submitted_at BIGINT NOT NULL,
  ended_at     BIGINT,
  deadline_at  BIGINT,
  CHECK ((state = 'running') = (worker IS NOT NULL)),
  CHECK ((state = 'running') = (deadline_at IS NOT NULL)),
  CHECK ((state = 'blocked') = (blocked_why IS NOT NULL)),
  CHECK ((state IN ('completed', 'cancelled', 'discarded')) = (ended_at IS NOT NULL)),
  CHECK (state <> 'running' OR (run IS NOT NULL AND epoch > 0)),
  CHECK (ended_at IS NULL OR run IS NULL)
);

CREATE INDEX tasks_leasable ON tasks (priority DESC, available_at, id, queue, engine) WHERE state = 'available';
CREATE INDEX tasks_due ON tasks (available_at) WHERE state IN ('scheduled', 'retryable');
CREATE INDEX tasks_deadline ON tasks (deadline_at) WHERE state = 'running';
CREATE UNIQUE INDEX tasks_dedup ON tasks (dedup_key)
  WHERE dedup_key IS NOT NULL AND state NOT IN ('completed', 'cancelled', 'discarded');
CREATE INDEX tasks_batch ON tasks (batch, id) WHERE batch IS NOT NULL;
CREATE INDEX tasks_state ON tasks (state, id);

CREATE TABLE runs (
  id         BYTEA    PRIMARY KEY CHECK (length(id) = 16),
  stream_id  BIGINT NOT NULL UNIQUE REFERENCES streams (id),
  task       BYTEA    NOT NULL CHECK (length(task) = 16),
  attempt    BIGINT NOT NULL CHECK (attempt > 0),
  stage      TEXT    NOT NULL CHECK (stage IN ('living', 'blocked', 'paused',
                                               'succeeded', 'failed', 'cancelled', 'superseded')),
  parent     BYTEA,
  parent_seq BIGINT,
  ended_at   BIGINT,
  CHECK ((parent IS NULL) = (parent_seq IS NULL)),
  CHECK ((stage IN ('living', 'blocked', 'paused')) = (ended_at IS NULL))
);

CREATE INDEX runs_task ON runs (task, attempt);

CREATE TABLE workers (
  incarnation BYTEA    PRIMARY KEY CHECK (length(incarnation) = 16),
  name        TEXT    NOT NULL,
  seen_at     BIGINT NOT NULL
);

CREATE INDEX workers_seen ON workers (seen_at);

-- The last lease answer of each incarnation: its numbers rise by one, so an older one is never asked again.
CREATE TABLE lease_requests (
  incarnation BYTEA    PRIMARY KEY CHECK (length(incarnation) = 16),
  number      BIGINT NOT NULL,
  answer      TEXT    NOT NULL
);

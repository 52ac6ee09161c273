-- When a model provider that has a limit may be asked next, by all workers together. No projection: what stands here is
-- worth nothing once its moment has passed. In microseconds, as all times here. Each permit updates one row in place: room
-- on its page, and no index over what changes, make that a HOT update. A moment is believed only as far after `taken_at`,
-- when it was written, as it was then: a clock that was ahead for a while must hold up no call later.

CREATE TABLE provider_limits (
  provider    TEXT   PRIMARY KEY,
  requests_at BIGINT NOT NULL,
  tokens_at   BIGINT NOT NULL,
  taken_at    BIGINT NOT NULL
) WITH (fillfactor = 20, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

-- Calls under way to providers that may only be asked so many at a time, one per run. One counts while its run is leased
-- under the epoch it was made under: what a run leaves behind that dies counts for nothing from then on.
CREATE TABLE provider_calls (
  run      BYTEA PRIMARY KEY,
  task     BYTEA NOT NULL,
  epoch    BIGINT NOT NULL,
  provider TEXT NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_scale_factor = 0);

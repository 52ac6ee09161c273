-- When a model provider that has a limit may be asked next, by all workers together. No projection: what stands here is
-- worth nothing once its moment has passed. In microseconds, as all times here. A moment is believed only as far after
-- `taken_at`, when it was written, as it was then: a clock that was ahead for a while must hold up no call later.

CREATE TABLE provider_limits (
  provider    TEXT    PRIMARY KEY,
  requests_at INTEGER NOT NULL,
  tokens_at   INTEGER NOT NULL,
  taken_at    INTEGER NOT NULL
) STRICT;

-- Calls under way to providers that may only be asked so many at a time, one per run. One counts while its run is leased
-- under the epoch it was made under: what a run leaves behind that dies counts for nothing from then on.
CREATE TABLE provider_calls (
  run      BLOB PRIMARY KEY,
  task     BLOB NOT NULL,
  epoch    INTEGER NOT NULL,
  provider TEXT NOT NULL
) STRICT;

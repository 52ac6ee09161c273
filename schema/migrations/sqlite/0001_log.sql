-- The log: streams, events, blobs. Events are a rowid table on purpose: clustered by stream, each
-- stream of a batch would dirty pages of its own, and dirty pages are what a commit costs.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value BLOB NOT NULL
) STRICT;

CREATE TABLE streams (
  id        INTEGER PRIMARY KEY,
  name      TEXT    NOT NULL UNIQUE,
  head_seq  INTEGER NOT NULL CHECK (head_seq >= 0),
  head_hash BLOB    NOT NULL CHECK (length(head_hash) = 32),
  head_at   INTEGER NOT NULL,
  epoch     INTEGER NOT NULL CHECK (epoch >= 0),
  fence     TEXT    NOT NULL CHECK (fence IN ('none', 'open', 'shut', 'closed'))
) STRICT;

CREATE TABLE events (
  position    INTEGER PRIMARY KEY,
  stream_id   INTEGER NOT NULL,
  seq         INTEGER NOT NULL CHECK (seq > 0),
  recorded_at INTEGER NOT NULL,
  turn        INTEGER NOT NULL CHECK (turn >= 0),
  epoch       INTEGER NOT NULL CHECK (epoch >= 0),
  kind        TEXT    NOT NULL CHECK (kind <> ''),
  version     INTEGER NOT NULL CHECK (version > 0),
  payload     TEXT    NOT NULL,
  prev_hash   BLOB    NOT NULL CHECK (length(prev_hash) = 32),
  hash        BLOB    NOT NULL CHECK (length(hash) = 32),
  UNIQUE (stream_id, seq)
) STRICT;

CREATE TRIGGER events_refuse_update BEFORE UPDATE ON events
BEGIN
  SELECT RAISE(ABORT, 'events are immutable');
END;

CREATE TRIGGER events_refuse_delete BEFORE DELETE ON events
BEGIN
  SELECT RAISE(ABORT, 'events are immutable');
END;

CREATE TABLE blobs (
  hash       BLOB    PRIMARY KEY CHECK (length(hash) = 32),
  size       INTEGER NOT NULL CHECK (size >= 0),
  data       BLOB    NOT NULL,
  touched_at INTEGER NOT NULL
) STRICT;

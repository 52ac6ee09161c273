-- The archive: what stands in the place of streams that were copied to a file, read back, and removed.
-- Derived from `system/archive`, as every projection is from its streams.

CREATE TABLE archived_streams (
  name        TEXT    PRIMARY KEY,
  -- The task's, or the run's.
  id          BLOB    NOT NULL CHECK (length(id) = 16),
  head_seq    INTEGER NOT NULL CHECK (head_seq >= 0),
  head_hash   BLOB    NOT NULL CHECK (length(head_hash) = 32),
  archived_at INTEGER NOT NULL,
  place       TEXT    NOT NULL,
  file        TEXT    NOT NULL,
  file_hash   BLOB    NOT NULL CHECK (length(file_hash) = 32),
  file_bytes  INTEGER NOT NULL CHECK (file_bytes > 0)
) STRICT;

-- Ids from a few of their digits.
CREATE INDEX archived_streams_id ON archived_streams (id);

-- Streams that the running transaction removes. Empty between transactions: whoever writes here and deletes
-- without leaving a stub of the very head is refused.
CREATE TABLE archiving (
  stream_id INTEGER PRIMARY KEY
) STRICT;

DROP TRIGGER events_refuse_delete;
CREATE TRIGGER events_refuse_delete BEFORE DELETE ON events
WHEN NOT EXISTS (
  SELECT 1 FROM archiving a JOIN streams s ON s.id = a.stream_id JOIN archived_streams t ON t.name = s.name
  WHERE a.stream_id = OLD.stream_id AND t.head_seq = s.head_seq AND t.head_hash = s.head_hash)
BEGIN
  SELECT RAISE(ABORT, 'events are immutable');
END;

-- A name that stands in the archive begins no stream: its stub goes first.
CREATE TRIGGER streams_refuse_archived BEFORE INSERT ON streams
WHEN EXISTS (SELECT 1 FROM archived_streams t WHERE t.name = NEW.name)
BEGIN
  SELECT RAISE(ABORT, 'the stream is archived');
END;

-- Tasks whose retention may be over, oldest end first.
CREATE INDEX tasks_ended ON tasks (ended_at, id) WHERE ended_at IS NOT NULL;

-- Which coordinator does what only one should do, and until when.
CREATE TABLE terms (
  name     TEXT    PRIMARY KEY,
  holder   TEXT    NOT NULL,
  until_at INTEGER NOT NULL
) STRICT;

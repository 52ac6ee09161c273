-- The archive: what stands in the place of streams that were copied to a file, read back, and removed.
-- Derived from `system/archive`, as every projection is from its streams.

CREATE TABLE archived_streams (
  name        TEXT   COLLATE "C" PRIMARY KEY,
  -- The task's, or the run's.
  id          BYTEA  NOT NULL CHECK (length(id) = 16),
  head_seq    BIGINT NOT NULL CHECK (head_seq >= 0),
  head_hash   BYTEA  NOT NULL CHECK (length(head_hash) = 32),
  archived_at BIGINT NOT NULL,
  place       TEXT   NOT NULL,
  file        TEXT   NOT NULL,
  file_hash   BYTEA  NOT NULL CHECK (length(file_hash) = 32),
  file_bytes  BIGINT NOT NULL CHECK (file_bytes > 0)
);

-- Ids from a few of their digits.
CREATE INDEX archived_streams_id ON archived_streams (id);

-- Streams that a transaction removes: nobody but that transaction ever sees its rows. Whoever writes here and
-- deletes without leaving a stub of the very head is refused.
CREATE TABLE archiving (
  stream_id BIGINT PRIMARY KEY
);

CREATE FUNCTION events_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'DELETE' AND EXISTS (
    SELECT 1 FROM archiving a JOIN streams s ON s.id = a.stream_id JOIN archived_streams t ON t.name = s.name
    WHERE a.stream_id = OLD.stream_id AND t.head_seq = s.head_seq AND t.head_hash = s.head_hash) THEN
    RETURN OLD;
  END IF;
  RAISE EXCEPTION 'events are immutable';
END
$$;

DROP TRIGGER events_refuse_change ON events;
CREATE TRIGGER events_refuse_change BEFORE UPDATE OR DELETE ON events
  FOR EACH ROW EXECUTE FUNCTION events_refuse_change();

-- A name that stands in the archive begins no stream: its stub goes first. Once for a statement, however many
-- streams it begins.
CREATE FUNCTION streams_refuse_archived() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF EXISTS (SELECT 1 FROM begun b JOIN archived_streams t ON t.name = b.name) THEN
    RAISE EXCEPTION 'the stream is archived';
  END IF;
  RETURN NULL;
END
$$;

CREATE TRIGGER streams_refuse_archived AFTER INSERT ON streams
  REFERENCING NEW TABLE AS begun FOR EACH STATEMENT EXECUTE FUNCTION streams_refuse_archived();

-- Tasks whose retention may be over, oldest end first.
CREATE INDEX tasks_ended ON tasks (ended_at, id) WHERE ended_at IS NOT NULL;

-- Which coordinator does what only one should do, and until when.
CREATE TABLE terms (
  name     TEXT   PRIMARY KEY,
  holder   TEXT   NOT NULL,
  until_at BIGINT NOT NULL
);

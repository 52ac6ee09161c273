-- The log: streams, events, blobs.
--
-- A position is the writing transaction's id, shifted, plus a place within the transaction: so
-- positions order as transactions do, and whatever lies under the snapshot's xmin is complete. A
-- sequence would not do: a transaction may draw its number early and commit late.

CREATE TABLE meta (
  key   TEXT PRIMARY KEY,
  value BYTEA NOT NULL
);

-- Coordinators take ids in blocks; see store/postgres.
CREATE SEQUENCE stream_ids AS BIGINT INCREMENT BY 1000 START WITH 1000;

CREATE TABLE streams (
  id        BIGINT PRIMARY KEY,
  name      TEXT COLLATE "C" NOT NULL UNIQUE,
  head_seq  BIGINT NOT NULL CHECK (head_seq >= 0),
  head_hash BYTEA  NOT NULL CHECK (length(head_hash) = 32),
  head_at   BIGINT NOT NULL,
  epoch     BIGINT NOT NULL CHECK (epoch >= 0),
  fence     TEXT   NOT NULL CHECK (fence IN ('none', 'open', 'shut', 'closed'))
) WITH (fillfactor = 70);

CREATE TABLE events (
  position    BIGINT PRIMARY KEY,
  stream_id   BIGINT NOT NULL,
  seq         BIGINT NOT NULL CHECK (seq > 0),
  recorded_at BIGINT NOT NULL,
  turn        BIGINT NOT NULL CHECK (turn >= 0),
  epoch       BIGINT NOT NULL CHECK (epoch >= 0),
  kind        TEXT   NOT NULL CHECK (kind <> ''),
  version     BIGINT NOT NULL CHECK (version > 0),
  -- Bytes: what is hashed is stored, and no conversion of encodings comes near it.
  payload     BYTEA  NOT NULL,
  prev_hash   BYTEA  NOT NULL CHECK (length(prev_hash) = 32),
  hash        BYTEA  NOT NULL CHECK (length(hash) = 32),
  UNIQUE (stream_id, seq)
);

CREATE FUNCTION events_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'events are immutable';
END
$$;

CREATE TRIGGER events_refuse_change BEFORE UPDATE OR DELETE ON events
  FOR EACH ROW EXECUTE FUNCTION events_refuse();
CREATE TRIGGER events_refuse_truncate BEFORE TRUNCATE ON events
  FOR EACH STATEMENT EXECUTE FUNCTION events_refuse();

CREATE TABLE blobs (
  hash       BYTEA  PRIMARY KEY CHECK (length(hash) = 32),
  size       BIGINT NOT NULL CHECK (size >= 0),
  data       BYTEA  NOT NULL,
  touched_at BIGINT NOT NULL
);
-- Compressed already.
ALTER TABLE blobs ALTER COLUMN data SET STORAGE EXTERNAL;

-- What a stub keeps of a task, so that it still counts: it is listed, its batch has it, an import knows it by its
-- key, what is submitted to wait for it knows how it ended. As its event in `system/archive` has it: nothing for
-- runs, nor for what was archived before this step.

ALTER TABLE archived_streams ADD COLUMN title        TEXT;
ALTER TABLE archived_streams ADD COLUMN queue        TEXT;
ALTER TABLE archived_streams ADD COLUMN state        TEXT CHECK (state IN ('completed', 'cancelled', 'discarded'));
ALTER TABLE archived_streams ADD COLUMN batch        BLOB;
ALTER TABLE archived_streams ADD COLUMN batch_name   TEXT;
ALTER TABLE archived_streams ADD COLUMN dedup_key    TEXT;
ALTER TABLE archived_streams ADD COLUMN runs         INTEGER;
ALTER TABLE archived_streams ADD COLUMN failures     INTEGER;
ALTER TABLE archived_streams ADD COLUMN crashes      INTEGER;
ALTER TABLE archived_streams ADD COLUMN submitted_at INTEGER;
ALTER TABLE archived_streams ADD COLUMN ended_at     INTEGER;

-- The archived tasks of a batch, newest first: its totals, and an import's keys.
CREATE INDEX archived_streams_batch ON archived_streams (batch, id) WHERE batch IS NOT NULL;

-- The inbox: tasks that an application puts here within a transaction of its own, by one INSERT. A coordinator takes
-- them out again and makes their first event of them, in one transaction. No projection: nothing of the log says
-- what stands here.
--
-- An id is a UUID of version 7, of the application's or as made here; it is text, for it is people's applications
-- that write it. What can be said about `spec` here is only that it has bounds: a row that is no task is kept, with
-- the reason in `refused`.

CREATE TABLE inbox (
  id           TEXT    NOT NULL PRIMARY KEY DEFAULT (
    substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 1, 8) || '-' ||
    substr(printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)), 9, 4) || '-7' ||
    substr(lower(hex(randomblob(2))), 2, 3) || '-' ||
    substr('89ab', 1 + (random() & 3), 1) || substr(lower(hex(randomblob(2))), 2, 3) || '-' ||
    lower(hex(randomblob(6)))
  ) CHECK (length(id) <= 100),
  spec         TEXT    NOT NULL CHECK (length(CAST(spec AS BLOB)) BETWEEN 1 AND 1048576),
  submitted_by TEXT    NOT NULL DEFAULT '' CHECK (length(submitted_by) <= 100),
  created_at   INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000),
  refused      TEXT,
  refused_at   INTEGER,
  CHECK ((refused IS NULL) = (refused_at IS NULL))
);

-- What coordinators look for each second: rows that wait, oldest first.
CREATE INDEX inbox_waiting ON inbox (created_at, id) WHERE refused IS NULL;

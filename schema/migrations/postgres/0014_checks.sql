-- SQLite alone makes a table in memory for a list that a CHECK compares with.
-- Why a completed task, or one that asks a person, is unverified.
ALTER TABLE tasks ADD COLUMN unverified TEXT;
-- Leases in a row that ended with a fault of the worker.
ALTER TABLE tasks ADD COLUMN worker_faults BIGINT NOT NULL DEFAULT 0 CHECK (worker_faults >= 0);
ALTER TABLE tasks ALTER COLUMN worker_faults DROP DEFAULT;

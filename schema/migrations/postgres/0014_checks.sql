-- SQLite alone makes a table in memory for a list that a CHECK compares with.
-- Why a completed task, or one that asks a person, is unverified.
ALTER TABLE tasks ADD COLUMN unverified TEXT;

-- How each table is kept, by how it is written.
--
-- Vacuum is told by rows, not by shares: a share of a large table is a long time, and what waits behind a dead
-- row is a lease.

-- The log only grows. Nothing there is ever dead, so autovacuum comes for what was inserted: to freeze it, once and
-- while it is still in memory, and to mark its pages as seen by all.
ALTER TABLE events SET (
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000,
  autovacuum_freeze_min_age = 0, autovacuum_analyze_scale_factor = 0.02);

-- So do blobs; now and then one is touched, at most once an hour. Their bytes stand beside the table.
ALTER TABLE blobs SET (
  fillfactor = 90,
  autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000,
  autovacuum_freeze_min_age = 0,
  toast.autovacuum_vacuum_insert_scale_factor = 0, toast.autovacuum_vacuum_insert_threshold = 50000,
  toast.autovacuum_freeze_min_age = 0);

-- Each append moves a head; each task's life is a dozen changes of its row, each heartbeat one more. Room on the
-- page keeps the new version beside the old one, without a new entry in any index (a HOT update), and
-- what is dead goes at once, at full speed.
ALTER TABLE streams SET (
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE tasks SET (
  fillfactor = 70,
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
  autovacuum_analyze_scale_factor = 0.02);
ALTER TABLE runs SET (
  fillfactor = 90,
  autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- A few rows that never rest.
ALTER TABLE workers SET (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE lease_requests SET (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE terms SET (
  fillfactor = 50,
  autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_cost_delay = 0);

-- A heartbeat moves a deadline, and a worker's `seen_at`: with these in an index no heartbeat was a HOT update.
-- What runs is found by `tasks_running`, and is never many rows.
DROP INDEX tasks_deadline;
DROP INDEX workers_seen;

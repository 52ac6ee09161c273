-- A task may wait for its model's provider: for money, or a key.

ALTER TABLE tasks DROP CONSTRAINT tasks_blocked_why_check;
ALTER TABLE tasks ADD CONSTRAINT tasks_blocked_why_check
  CHECK (blocked_why IN ('person', 'child', 'paused', 'provider'));

-- A task may rest until its provider is back: it is due then, by the clock.

ALTER TABLE tasks DROP CONSTRAINT tasks_blocked_why_check;
ALTER TABLE tasks ADD CONSTRAINT tasks_blocked_why_check
  CHECK (blocked_why IN ('person', 'child', 'paused', 'provider', 'outage'));

DROP INDEX tasks_due;
CREATE INDEX tasks_due ON tasks (available_at) WHERE state IN ('scheduled', 'retryable') OR blocked_why = 'outage';

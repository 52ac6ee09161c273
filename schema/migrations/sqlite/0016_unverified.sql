-- The completed tasks that nothing verified, for their count in `/metrics`.
CREATE INDEX tasks_unverified ON tasks (id) WHERE state = 'completed' AND unverified IS NOT NULL;

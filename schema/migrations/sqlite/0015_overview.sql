-- What ended, by state and when: the counts by hour of the overview, and the newest of a state. Written once in a
-- task's life, when it ends.
CREATE INDEX tasks_settled ON tasks (state, ended_at, id) WHERE ended_at IS NOT NULL;

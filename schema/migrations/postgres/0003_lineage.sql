-- Runs that stand on a run's history: what `docket show` draws as a tree, from parent to children.

CREATE INDEX runs_parent ON runs (parent) WHERE parent IS NOT NULL;

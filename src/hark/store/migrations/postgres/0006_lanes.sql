-- Children are shown in the order of their spawn; retention continues after its last page; lists are read by
-- (definition, status), so that a filter with few matches reads few rows.
ALTER TABLE instances ADD COLUMN nth bigint NOT NULL DEFAULT 0; -- its position in the turn that started it
DROP INDEX instances_finished;
DROP INDEX instances_newest;
CREATE INDEX instances_finished ON instances (finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX instances_listed ON instances (definition, status, created_at, id);

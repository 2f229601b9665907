-- Children are shown in the order of their spawn; retention goes on from where it was; lists are read lane by lane,
-- (definition, status), so a filter that few fit walks past nobody.
ALTER TABLE instances ADD COLUMN nth bigint NOT NULL DEFAULT 0; -- its place among those started with it
DROP INDEX instances_finished;
DROP INDEX instances_newest;
CREATE INDEX instances_finished ON instances (finished_at, id) WHERE finished_at IS NOT NULL;
CREATE INDEX instances_listed ON instances (definition, status, created_at, id);

-- A lane names what a worker must be able to run: the code of a definition, an interpreter, the handler of a task.
ALTER TABLE instances ADD COLUMN lane text COLLATE "C" NOT NULL DEFAULT '';
UPDATE instances SET lane = definition || '@' || version;
DROP INDEX instances_claim;
CREATE INDEX instances_claim ON instances (queue, lane, priority, since)
    WHERE status = 'runnable' AND blocked_on IS NULL AND due_at IS NULL;

ALTER TABLE waits ADD COLUMN answers_each boolean NOT NULL DEFAULT false; -- of children: each end is an answer
ALTER TABLE definitions ADD COLUMN undeployed_at bigint; -- no instance can be started by its name any more

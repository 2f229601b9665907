-- A job is one address, its run: signals and awakeables of its tasks are sent to the id of the job.
ALTER TABLE instances ADD COLUMN entries integer NOT NULL DEFAULT 0; -- of a job: the awakeables of its tasks so far
ALTER TABLE awakeables ADD COLUMN task_id text COLLATE "C"; -- the task that gets the answer, if it is not instance_id

-- The same question of a task, asked again, is the same awakeable; and those that a task leaves open are found.
CREATE UNIQUE INDEX awakeables_task ON awakeables (task_id, place) WHERE task_id IS NOT NULL;

-- The open waits of the tasks of a run, the oldest first: `key` of a wait for a signal is the id of the run.
CREATE INDEX waits_run ON waits (key, name, since, id)
    WHERE kind = 'signal' AND key IS NOT NULL AND closed_at IS NULL AND fired_at IS NULL;

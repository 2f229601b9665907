-- Lists are newest first also among rows of one commit: `nth` is the position of an instance among those with the same
-- `created_at`, and the awakeables of one instance are numbered. Tags have the order of their instances.
DROP INDEX instances_listed;
CREATE INDEX instances_listed ON instances (definition, status, created_at, nth, id);
DROP INDEX awakeables_newest;
CREATE INDEX awakeables_newest ON awakeables (created_at, instance_id, entry_index);

DROP TABLE tags;                                       -- no version has written to it
CREATE TABLE tags (                                    -- instances by tag, newest first
    name        text COLLATE "C" NOT NULL,
    value       text COLLATE "C" NOT NULL,
    created_at  bigint NOT NULL,
    nth         bigint NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (name, value, created_at, nth, instance_id)
);
CREATE INDEX tags_instance ON tags (instance_id);

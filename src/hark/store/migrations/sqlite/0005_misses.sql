-- What was told to nobody: the target was not there, was finished, or had heard it before. It left no row in an
-- inbox; here it is remembered for whoever asks why an instance still waits. A few thousand at most.
CREATE TABLE misses (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    at          bigint NOT NULL,
    kind        text NOT NULL CHECK (kind IN ('signal', 'message')),
    target      text NOT NULL,                     -- as it was addressed: an id or a key
    name        text NOT NULL,
    reason      text NOT NULL CHECK (reason IN ('missing', 'finished', 'duplicate')),
    instance_id text,
    CHECK ((reason = 'missing') = (instance_id IS NULL))
);
CREATE INDEX misses_target ON misses (target, seq);
CREATE INDEX misses_name ON misses (name, seq);
CREATE INDEX misses_instance ON misses (instance_id, seq) WHERE instance_id IS NOT NULL;

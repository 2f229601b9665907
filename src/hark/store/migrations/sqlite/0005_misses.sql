-- Near misses: signals whose target did not exist, had ended, or had received the same dedup key before. They left no
-- row in an inbox; here they are kept, a few thousand at most, to explain why an instance still waits (D7).
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

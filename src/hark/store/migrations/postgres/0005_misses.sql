-- Near misses: signals whose target did not exist, had ended, or had received the same dedup key before. They left no
-- row in an inbox; here they are kept, a few thousand at most, to explain why an instance still waits (D7).
CREATE TABLE misses (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          bigint NOT NULL,
    kind        text COLLATE "C" NOT NULL CHECK (kind IN ('signal', 'message')),
    target      text COLLATE "C" NOT NULL,         -- as it was addressed: an id or a key
    name        text COLLATE "C" NOT NULL,
    reason      text COLLATE "C" NOT NULL CHECK (reason IN ('missing', 'finished', 'duplicate')),
    instance_id text COLLATE "C",
    CHECK ((reason = 'missing') = (instance_id IS NULL))
);
CREATE INDEX misses_target ON misses (target, seq);
CREATE INDEX misses_name ON misses (name, seq);
CREATE INDEX misses_instance ON misses (instance_id, seq) WHERE instance_id IS NOT NULL;

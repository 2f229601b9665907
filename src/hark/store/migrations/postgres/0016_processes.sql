-- What operators ask of a process is a row in its inbox too.
ALTER TABLE signals DROP CONSTRAINT signals_kind_check;
ALTER TABLE signals ADD CONSTRAINT signals_kind_check
    CHECK (kind IN ('signal', 'broadcast', 'message', 'timer', 'awakeable', 'children', 'control')) NOT VALID;

-- User tasks: the groups whose members may answer, when it should be answered, and who works on it.
ALTER TABLE awakeables ADD COLUMN groups text;          -- a JSON list
ALTER TABLE awakeables ADD COLUMN due_at bigint;        -- for people: nothing happens then
ALTER TABLE awakeables ADD COLUMN claimed_by text;
ALTER TABLE awakeables ADD COLUMN claimed_at bigint;

-- Messages that wait for a receiver until their time is over, and the dedup keys of those that have had one.
CREATE TABLE messages (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name        text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    payload     text NOT NULL,
    dedup_key   text COLLATE "C",
    expires_at  bigint NOT NULL,
    receiver    text COLLATE "C",                  -- the instance that got it; NULL: none has yet
    at          bigint NOT NULL
);
CREATE INDEX messages_kept ON messages (name, key, seq) WHERE receiver IS NULL;
CREATE INDEX messages_expiring ON messages (expires_at) WHERE receiver IS NULL;
CREATE UNIQUE INDEX messages_dedup ON messages (name, key, dedup_key) WHERE dedup_key IS NOT NULL;
CREATE INDEX messages_received ON messages (at) WHERE receiver IS NOT NULL;

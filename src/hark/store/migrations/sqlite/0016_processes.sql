-- What operators ask of a process is a row in its inbox too. A CHECK cannot be changed: the table is copied, and its
-- numbers go on where they were.
CREATE TABLE new_signals (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id text NOT NULL,
    kind        text NOT NULL
        CHECK (kind IN ('signal', 'broadcast', 'message', 'timer', 'awakeable', 'children', 'control')),
    name        text NOT NULL,
    wait_id     text,                  -- answers only this wait
    payload     text NOT NULL,
    dedup_key   text,
    at          bigint NOT NULL,
    consumed_at bigint                             -- marked, not deleted: deduplication outlives consumption
);
INSERT INTO new_signals SELECT seq, instance_id, kind, name, wait_id, payload, dedup_key, at, consumed_at FROM signals;
DELETE FROM sqlite_sequence WHERE name = 'new_signals';
INSERT INTO sqlite_sequence (name, seq) SELECT 'new_signals', seq FROM sqlite_sequence WHERE name = 'signals';
DROP TABLE signals;
ALTER TABLE new_signals RENAME TO signals;
CREATE UNIQUE INDEX signals_dedup ON signals (instance_id, dedup_key) WHERE dedup_key IS NOT NULL;
CREATE INDEX signals_inbox ON signals (instance_id, seq) WHERE consumed_at IS NULL;
CREATE INDEX signals_consumed ON signals (consumed_at)  -- rows that retention has not handled yet
    WHERE consumed_at IS NOT NULL AND (dedup_key IS NULL OR payload <> 'null');

-- User tasks: the groups whose members may answer, when it should be answered, and who works on it.
ALTER TABLE awakeables ADD COLUMN groups text;          -- a JSON list
ALTER TABLE awakeables ADD COLUMN due_at bigint;        -- for people: nothing happens then
ALTER TABLE awakeables ADD COLUMN claimed_by text;
ALTER TABLE awakeables ADD COLUMN claimed_at bigint;

-- Messages that wait for a receiver until their time is over, and the dedup keys of those that have had one.
CREATE TABLE messages (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    name        text NOT NULL,
    key         text NOT NULL,
    payload     text NOT NULL,
    dedup_key   text,
    expires_at  bigint NOT NULL,
    receiver    text,                              -- the instance that got it; NULL: none has yet
    at          bigint NOT NULL
);
CREATE INDEX messages_kept ON messages (name, key, seq) WHERE receiver IS NULL;
CREATE INDEX messages_expiring ON messages (expires_at) WHERE receiver IS NULL;
CREATE UNIQUE INDEX messages_dedup ON messages (name, key, dedup_key) WHERE dedup_key IS NOT NULL;
CREATE INDEX messages_received ON messages (at) WHERE receiver IS NOT NULL;

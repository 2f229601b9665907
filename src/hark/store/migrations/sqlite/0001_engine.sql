-- One idea: everything that can wake an instance is a row in its inbox (signals).
-- A wait is a question, a signal is an answer, an awakeable is a question with a public address.
-- Times are whole microseconds since 1970 by the database's clock. JSON is text: jsonb would change numbers and
-- the order of keys, and would refuse \u0000 for a whole batch.
-- No foreign keys: each costs a trigger and a KEY SHARE lock per row on the most frequent inserts. Only retention
-- deletes instances, and it deletes the dependent rows first.

CREATE TABLE instances (
    id              text PRIMARY KEY,
    definition      text NOT NULL,
    version         integer NOT NULL,
    kind            text NOT NULL,
    correlation_key text,
    scope           text NOT NULL DEFAULT 'live' CHECK (scope IN ('live', 'forever')),
    holds_key       integer NOT NULL DEFAULT 0,
    queue           text NOT NULL,
    priority        integer NOT NULL,
    status          text NOT NULL,
    step            text NOT NULL,
    visit           integer NOT NULL DEFAULT 0,
    state           text NOT NULL,
    result          text,
    error           text,
    attempt         integer NOT NULL DEFAULT 0,
    crashes         integer NOT NULL DEFAULT 0,
    since           bigint NOT NULL,               -- the queue position: the order within a queue
    due_at          bigint,                        -- for the sweep: the end of a delay, or the earliest deadline
    blocked_on      text,              -- the bucket it waits for: not in the claim index
    lease_owner     text,
    epoch           bigint NOT NULL DEFAULT 0,
    concurrency_key text,
    rate_limit      text,
    weight          real NOT NULL DEFAULT 1,
    parent_id       text,
    parent_wait     text,
    counted         integer NOT NULL DEFAULT 0, -- its end has been counted against parent_wait
    mail            integer NOT NULL DEFAULT 0, -- has ever received a signal; has_signals since 0009
    created_at      bigint NOT NULL,
    updated_at      bigint NOT NULL,
    finished_at     bigint,
    CHECK (status IN ('runnable', 'executing', 'awaiting_signal', 'awaiting_children', 'done', 'failed', 'cancelled')),
    CHECK ((status = 'executing') = (lease_owner IS NOT NULL)),
    CHECK ((status IN ('done', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK (blocked_on IS NULL OR status = 'runnable'),
    CHECK (due_at IS NULL OR status IN ('runnable', 'awaiting_signal', 'awaiting_children')),
    CHECK (holds_key = 0 OR correlation_key IS NOT NULL)
);

-- The claim is O(batch): its index has no parked, finished, delayed or blocked rows, and no rows in other lanes are read.
CREATE INDEX instances_claim ON instances (queue, definition, version, priority, since)
    WHERE status = 'runnable' AND blocked_on IS NULL AND due_at IS NULL;
CREATE INDEX instances_due ON instances (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX instances_blocked ON instances (blocked_on, priority, since) WHERE blocked_on IS NOT NULL;
CREATE INDEX instances_leased ON instances (lease_owner) WHERE lease_owner IS NOT NULL;
CREATE INDEX instances_slots ON instances (concurrency_key)
    WHERE status = 'executing' AND concurrency_key IS NOT NULL;
CREATE UNIQUE INDEX instances_key ON instances (correlation_key) WHERE holds_key;
CREATE INDEX instances_kept_key ON instances (correlation_key, created_at) WHERE correlation_key IS NOT NULL;
CREATE INDEX instances_parent ON instances (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX instances_parent_wait ON instances (parent_wait) WHERE parent_wait IS NOT NULL;
CREATE INDEX instances_finished ON instances (finished_at) WHERE finished_at IS NOT NULL;
CREATE INDEX instances_newest ON instances (created_at, id);

CREATE TABLE signals (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id text NOT NULL,
    kind        text NOT NULL
        CHECK (kind IN ('signal', 'broadcast', 'message', 'timer', 'awakeable', 'children')),
    name        text NOT NULL,
    wait_id     text,                  -- answers only this wait (message, timer, children)
    payload     text NOT NULL,
    dedup_key   text,
    at          bigint NOT NULL,
    consumed_at bigint                             -- marked, not deleted: deduplication outlives consumption
);
CREATE UNIQUE INDEX signals_dedup ON signals (instance_id, dedup_key) WHERE dedup_key IS NOT NULL;
CREATE INDEX signals_inbox ON signals (instance_id, seq) WHERE consumed_at IS NULL;
CREATE INDEX signals_consumed ON signals (consumed_at)  -- rows that retention has not handled yet
    WHERE consumed_at IS NOT NULL AND (dedup_key IS NULL OR payload <> 'null');

CREATE TABLE waits (
    id          text PRIMARY KEY,
    instance_id text NOT NULL,
    place       text NOT NULL,
    kind        text NOT NULL
        CHECK (kind IN ('signal', 'broadcast', 'message', 'timer', 'awakeable', 'children')),
    name        text,
    key         text,
    deadline    bigint,
    remaining   integer,                           -- children that have not ended yet
    since       bigint NOT NULL,
    fired_at    bigint,                            -- its deadline has fired, or its answer has arrived
    closed_at   bigint,                            -- its instance has failed; a retry opens it again
    CHECK ((kind = 'children') = (remaining IS NOT NULL)),
    CHECK (kind <> 'timer' OR deadline IS NOT NULL),
    CHECK (kind IN ('timer', 'children') OR name IS NOT NULL)
);
CREATE INDEX waits_instance ON waits (instance_id);
CREATE INDEX waits_broadcast ON waits (name, instance_id) WHERE kind = 'broadcast' AND closed_at IS NULL;
CREATE UNIQUE INDEX waits_message ON waits (name, key)
    WHERE kind = 'message' AND closed_at IS NULL AND fired_at IS NULL;

CREATE TABLE workers (
    id          text PRIMARY KEY,
    until       bigint NOT NULL,
    definitions text NOT NULL,
    started_at  bigint NOT NULL
);

CREATE TABLE awakeables (
    id          text PRIMARY KEY,
    instance_id text NOT NULL,
    task        text,
    place       text NOT NULL,
    entry_index integer NOT NULL,
    status      text NOT NULL DEFAULT 'PENDING'
        CHECK (status IN ('PENDING', 'RESOLVED', 'REJECTED', 'TIMEOUT', 'CANCELLED')),
    payload     text,
    error       text,
    timeout_at  bigint,
    nonce       text NOT NULL,
    title       text,
    description text,
    schema      text,
    assignees   text,
    answered_by text,
    created_at  bigint NOT NULL,
    resolved_at bigint,
    UNIQUE (instance_id, entry_index),
    CHECK ((status = 'PENDING') = (resolved_at IS NULL))
);
CREATE INDEX awakeables_newest ON awakeables (created_at, id);

CREATE TABLE journal (
    instance_id text NOT NULL,
    visit       integer NOT NULL,
    seq         integer NOT NULL,
    kind        text NOT NULL,
    name        text,
    value       text,
    error       text,
    PRIMARY KEY (instance_id, visit, seq)
);

CREATE TABLE events (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    tx          bigint NOT NULL,                   -- always 0 here: one writer, so seq is the order of commits
    instance_id text NOT NULL,
    type        text NOT NULL,
    step        text,
    data        text,
    at          bigint NOT NULL
);
CREATE INDEX events_instance ON events (instance_id, seq);

CREATE TABLE broadcasts (
    id          text PRIMARY KEY,
    name        text NOT NULL,
    payload     text NOT NULL,
    dedup_key   text,
    count       integer NOT NULL,
    at          bigint NOT NULL
);
CREATE UNIQUE INDEX broadcasts_dedup ON broadcasts (name, dedup_key) WHERE dedup_key IS NOT NULL;
CREATE INDEX broadcasts_at ON broadcasts (at);

CREATE TABLE deliveries (                          -- marks: subscribers of a large broadcast that is delivered in chunks
    broadcast_id text NOT NULL,
    instance_id  text NOT NULL,
    PRIMARY KEY (broadcast_id, instance_id)
);

CREATE TABLE definitions (
    name        text NOT NULL,
    version     integer NOT NULL,
    kind        text NOT NULL,
    queue       text NOT NULL,
    initial     text NOT NULL,
    source      text,
    digest      text,
    created_at  bigint NOT NULL,
    PRIMARY KEY (name, version)
);

CREATE TABLE buckets (                             -- token buckets (rate) and slots of concurrency keys (slot)
    kind        text NOT NULL CHECK (kind IN ('rate', 'slot')),
    key         text NOT NULL,
    shard       integer NOT NULL,
    capacity    real NOT NULL,
    available   real NOT NULL,
    refilled_at bigint NOT NULL,
    due_at      bigint,                            -- when the sweep promotes its blocked rows
    PRIMARY KEY (kind, key, shard)
);
CREATE INDEX buckets_due ON buckets (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE tombstones (                          -- a `forever` key stays taken after its instance was removed
    key         text PRIMARY KEY,
    instance_id text NOT NULL,
    at          bigint NOT NULL
);

-- The tables of Hark on PostgreSQL, in their newest version: store/migrations/ brings older stores here. The tables,
-- columns, indexes and checks are those of sqlite.sql.
--
-- One idea: everything that can wake an instance is a row in its inbox. An instance is one run of a workflow. A wait is
-- a question, a row in the inbox is an answer, and an awakeable is a question with a public address. A delivery adds
-- its row and compares it with the waits; a park arms its waits and compares them with the inbox. Both hold the lock of
-- the instance, so no wake-up is lost.
--
--   definitions --< instances --< inbox, waits, awakeables, journal, events, streams, tags
--   triggers -----> instances         started by the clock, a broadcast or a message
--   broadcasts ---< deliveries        subscribers of a broadcast that is too large for one transaction
--   messages, misses, tombstones      messages without a receiver yet, lost signals, keys of removed instances
--   buckets, workers                  limits of rate and concurrency, leases of the processes that execute
--   tokens, secrets, origins          access over HTTP, links to awakeables
--   eras                              clusters that the store has lived in, for cursors
--
-- Writers: turns, the transactions of the clerk of each process (kernel/turn.py), with the statements of
-- store/statements/. Exceptions: a worker renews its row of `workers` on a connection of its own, and `migrations` is
-- written when a store is opened. Only retention deletes instances, and it deletes the rows that depend on them first.
-- There are no foreign keys: each costs a trigger and a lock per row on the most frequent inserts.
--
-- Status: runnable -> executing -> runnable, parked (awaiting_signal, awaiting_children), held (its code does not fit
-- what was committed) or ended (done, failed, cancelled). Each claim, outcome, reclaim, cancel and retry changes
-- `epoch`; an outcome with another one is refused.
-- Claim: one scan of `instances_claim`, which has only rows that can be claimed now: a parked, delayed or blocked
-- instance costs a claim nothing.
-- Clock: all times are whole microseconds since 1970 by the clock of the database; a turn has one time. A turn that
-- sweeps finds what has come by the columns `due_at`.
-- Lock order of a turn: reserved names, instances by id, triggers by id, buckets by key. The sweep, the claim and the
-- retention skip locked rows.
-- JSON is text: numbers and the order of keys stay as they were written. COLLATE "C": by bytes, as in SQLite.

-- -- Instances --------------------------------------------------------------------------------------------------------

-- One row per run of a workflow: its state machine, its place in a queue, its data.
CREATE TABLE instances (
    -- Identity
    id              text COLLATE "C" PRIMARY KEY,          -- Chosen by the engine, or made from the id of its parent.
    definition      text COLLATE "C" NOT NULL,             -- The name of what it runs.
    version         integer NOT NULL,                      -- The version of the definition; only migrate changes it.
    kind            text NOT NULL,                         -- Its interpreter: machine, workflow, job, bpmn or task.
    lane            text COLLATE "C" NOT NULL DEFAULT '',  -- The code that a worker needs to claim it (model/lanes.py).
    created_at      bigint NOT NULL,                       -- The time of its start.
    nth             bigint NOT NULL DEFAULT 0,             -- Its order among instances with the same created_at.
    updated_at      bigint NOT NULL,                       -- The time of the last turn that changed the row.
    finished_at     bigint,                                -- The time of its end; NULL while it lives.
    -- Address
    correlation_key text COLLATE "C",                      -- A name that its caller gave it; signals can be sent to it.
    scope           text NOT NULL DEFAULT 'live',          -- It holds the key while it lives (live), or forever.
    holds_key       boolean NOT NULL DEFAULT false,        -- It holds its key: signals to the key reach this row.
    -- Progress
    status          text COLLATE "C" NOT NULL,             -- Its status (see the head of this file).
    step            text NOT NULL,                         -- The step to execute, or the place where it rests.
    visit           integer NOT NULL DEFAULT 0,            -- The journal that counts; continue_as_new begins the next.
    attempt         integer NOT NULL DEFAULT 0,            -- The number of retries of this step.
    crashes         integer NOT NULL DEFAULT 0,            -- The number of workers that died at this step.
    has_run         boolean NOT NULL DEFAULT false,        -- An outcome was committed, or a worker lost: it is not new.
    held_by         text COLLATE "C",                      -- The fingerprints of the codes that do not fit it, by commas.
    epoch           bigint NOT NULL DEFAULT 0,             -- The fence: an outcome must bring the present one.
    lease_owner     text COLLATE "C",                      -- The worker that executes it.
    has_inbox_rows  boolean NOT NULL DEFAULT false,        -- A row has reached its inbox; else no turn reads the inbox.
    entries         integer NOT NULL DEFAULT 0,            -- Of a job: the number of awakeables of its tasks so far.
    -- Place in its queue
    queue           text COLLATE "C" NOT NULL,             -- The queue whose slots it needs.
    priority        integer NOT NULL,                      -- A lower number is claimed first.
    since           bigint NOT NULL,                       -- Its position in the queue: the time it became runnable.
    due_at          bigint,                                -- The end of its delay, or its earliest deadline.
    blocked_on      text COLLATE "C",                      -- The bucket that refused it, as kind:key.
    concurrency_key text COLLATE "C",                      -- It takes one slot of this key while it executes.
    rate_limit      text COLLATE "C",                      -- Its claim takes tokens of this limit.
    weight          double precision NOT NULL DEFAULT 1,   -- The number of tokens.
    -- Parent
    parent_id       text COLLATE "C",                      -- The instance that started it and gets its end.
    parent_wait     text COLLATE "C",                      -- The wait of the parent that its end answers.
    counted         boolean NOT NULL DEFAULT false,        -- Its end has been counted, and counts no second time.
    -- Start and cancel
    scheduled_at    bigint,                                -- The tick of the schedule that started it.
    forked_from     text COLLATE "C",                      -- The instance whose journal or state it began with.
    trace           text,                                  -- W3C traceparent of the start, if tracing is configured.
    on_cancel       text COLLATE "C",                      -- A cancel goes to this step; NULL: it ends at once.
    cancel_reason   text,                                  -- A cancel was requested, and its undo has not finished.
    -- Data; last, so that SQLite reads the other columns of a long row without it
    state           text NOT NULL,                         -- JSON: the data of the next step.
    result          text,                                  -- JSON: its result.
    error           text,                                  -- The error that ended it, for people.
    traceback       text,                                  -- The traceback of that error.
    progress        text,                                  -- JSON: the last `ctx.progress`.
    tags            text,                                  -- JSON object of texts; the table `tags` finds them.
    CHECK (scope IN ('live', 'forever')),
    CHECK (status IN ('runnable', 'executing', 'awaiting_signal', 'awaiting_children', 'held', 'done', 'failed',
        'cancelled')),
    CHECK ((status = 'executing') = (lease_owner IS NOT NULL)),
    CHECK ((status IN ('done', 'failed', 'cancelled')) = (finished_at IS NOT NULL)),
    CHECK (blocked_on IS NULL OR status = 'runnable'),
    CHECK (due_at IS NULL OR status IN ('runnable', 'awaiting_signal', 'awaiting_children', 'held')),
    CHECK ((status = 'held') = (held_by IS NOT NULL)),
    CHECK (NOT holds_key OR correlation_key IS NOT NULL)
) WITH (fillfactor = 70);  -- Room for updates in place: a step that runs ahead touches no index.

-- The claim index: one scan per lane of a queue, in the order of the claims.
CREATE INDEX instances_claim ON instances (queue, lane, priority, since)
    WHERE status = 'runnable' AND blocked_on IS NULL AND due_at IS NULL;
-- The sweep: delays and deadlines that have come.
CREATE INDEX instances_due ON instances (due_at) WHERE due_at IS NOT NULL;
-- Held instances: those that other code may fit.
CREATE INDEX instances_held ON instances (lane, held_by, priority, since) WHERE status = 'held';
-- Promotion: the rows that a bucket lets go, in order.
CREATE INDEX instances_blocked ON instances (blocked_on, priority, since) WHERE blocked_on IS NOT NULL;
-- Reclaim: the instances of a dead worker.
CREATE INDEX instances_leased ON instances (lease_owner) WHERE lease_owner IS NOT NULL;
-- The slots of a concurrency key are counted here, and stored nowhere.
CREATE INDEX instances_slots ON instances (concurrency_key)
    WHERE status = 'executing' AND concurrency_key IS NOT NULL;
-- A key has one holder, and this finds it.
CREATE UNIQUE INDEX instances_key ON instances (correlation_key) WHERE holds_key;
-- The kept instances of a key, the latest one last.
CREATE INDEX instances_kept_key ON instances (correlation_key, created_at) WHERE correlation_key IS NOT NULL;
-- The children of an instance: cancel, and lists of a job.
CREATE INDEX instances_parent ON instances (parent_id) WHERE parent_id IS NOT NULL;
-- The children behind a wait.
CREATE INDEX instances_parent_wait ON instances (parent_wait) WHERE parent_wait IS NOT NULL;
-- Retention: a page of those that finished first. Failed ones, which are kept for longer, and tasks, which go with their
-- jobs, are apart from the others.
CREATE INDEX instances_finished ON instances
    ((CASE WHEN kind = 'task' THEN 2 WHEN status = 'failed' THEN 1 ELSE 0 END), finished_at, id)
    WHERE finished_at IS NOT NULL;
-- Lists, newest first: a filter with few matches reads few rows.
CREATE INDEX instances_listed ON instances (definition, status, kind, created_at, nth, id);

-- One row per event that an instance may read; written under the lock of the instance.
CREATE TABLE inbox (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- Rises in one inbox in the order of the commits.
    instance_id text COLLATE "C" NOT NULL,                  -- Its receiver; a signal to a job moves to a task and back.
    kind        text COLLATE "C" NOT NULL,                  -- The kind of wait it answers; control: from an operator.
    name        text COLLATE "C" NOT NULL,                  -- The name that a wait must have; of an awakeable, its id.
    wait_id     text COLLATE "C",                           -- It answers only this wait.
    payload     text NOT NULL,                              -- JSON.
    dedup_key   text COLLATE "C",                           -- A second row with this key is a duplicate.
    at          bigint NOT NULL,                            -- The time of its arrival.
    consumed_at bigint,                                     -- Set, and the row kept: a consumed dedup key still counts.
    CHECK (kind IN ('signal', 'broadcast', 'message', 'timer', 'awakeable', 'children', 'control'))
);

-- A dedup key counts once per instance, for as long as the instance is kept.
CREATE UNIQUE INDEX inbox_dedup ON inbox (instance_id, dedup_key) WHERE dedup_key IS NOT NULL;
-- The rows that an instance may still read, in the order of arrival.
CREATE INDEX inbox_unconsumed ON inbox (instance_id, seq) WHERE consumed_at IS NULL;
-- Retention: consumed rows that it has neither deleted nor emptied.
CREATE INDEX inbox_consumed ON inbox (consumed_at)
    WHERE consumed_at IS NOT NULL AND (dedup_key IS NULL OR payload <> 'null');

-- One row per answer that an instance waits for; armed when it parks.
CREATE TABLE waits (
    id           text COLLATE "C" PRIMARY KEY,    -- Made from the id of its instance.
    instance_id  text COLLATE "C" NOT NULL,       -- The instance that waits.
    place        text NOT NULL,                   -- The operation, token or call in the instance that waits.
    kind         text COLLATE "C" NOT NULL,       -- The kind of rows that answer it (kernel/wait_kinds.py).
    name         text COLLATE "C",                -- The name of these rows.
    key          text COLLATE "C",                -- Of a message, its key; else only directed rows answer it.
    deadline     bigint,                          -- The time at which a timer answers it instead.
    remaining    integer,                         -- Of children: the number that have not ended.
    answers_each boolean NOT NULL DEFAULT false,  -- Of children and messages: each one is an answer.
    since        bigint NOT NULL,                 -- The time at which it was armed.
    fired_at     bigint,                          -- The time at which it was answered or timed out.
    closed_at    bigint,                          -- The time at which its instance failed; a retry opens it.
    CHECK (kind IN ('signal', 'broadcast', 'message', 'timer', 'awakeable', 'children')),
    CHECK ((kind = 'children') = (remaining IS NOT NULL)),
    CHECK (kind <> 'timer' OR deadline IS NOT NULL),
    CHECK (kind IN ('timer', 'children') OR name IS NOT NULL)
);

-- The waits of an instance, which every delivery compares.
CREATE INDEX waits_instance ON waits (instance_id);
-- The subscribers of a broadcast. With a key, a wait takes one broadcast only.
CREATE INDEX waits_broadcast ON waits (name, instance_id)
    WHERE kind = 'broadcast' AND closed_at IS NULL AND (key IS NULL OR fired_at IS NULL);
-- The receiver of a message. Not unique: several places of one instance may wait for it.
CREATE INDEX waits_message ON waits (name, key) WHERE kind = 'message' AND closed_at IS NULL AND fired_at IS NULL;
-- The waits of the tasks of a run for a signal to it, the oldest first.
CREATE INDEX waits_run ON waits (key, name, since, id)
    WHERE kind = 'signal' AND key IS NOT NULL AND closed_at IS NULL AND fired_at IS NULL;
-- Open waits of a kind, the longest first: lists and metrics.
CREATE INDEX waits_open ON waits (kind, since, id) WHERE closed_at IS NULL AND fired_at IS NULL;

-- One row per question with a public address, which a person or a program answers.
CREATE TABLE awakeables (
    id          text COLLATE "C" PRIMARY KEY,               -- The public address.
    instance_id text COLLATE "C" NOT NULL,                  -- The instance that asks; of a question of a task, its job.
    task        text,                                       -- The name of the task that asks.
    task_id     text COLLATE "C",                           -- The task that gets the answer, if it is not instance_id.
    place       text NOT NULL,                              -- The operation, token or call that asks.
    entry_index integer NOT NULL,                           -- Its number within its instance.
    status      text COLLATE "C" NOT NULL DEFAULT 'PENDING',  -- PENDING until it is settled, which happens once.
    payload     text,                                       -- JSON: the answer.
    error       text,                                       -- The reason of a rejection.
    timeout_at  bigint,                                     -- The time at which it becomes TIMEOUT.
    nonce       text NOT NULL,                              -- Part of what a link to it signs.
    title       text,                                       -- The question, for people.
    description text,                                       -- The question in more words.
    schema      text,                                       -- JSON Schema that the answer must match.
    assignees   text,                                       -- JSON list: the people who may answer; NULL: everyone.
    groups      text,                                       -- JSON list: the groups whose members may answer.
    due_at      bigint,                                     -- The time by which it should be answered; nothing happens.
    claimed_by  text,                                       -- The person who works on it.
    claimed_at  bigint,                                     -- The time of that claim.
    answered_by text,                                       -- The person who answered.
    created_at  bigint NOT NULL,                            -- The time of the question.
    resolved_at bigint,                                     -- The time of the settlement.
    UNIQUE (instance_id, entry_index),
    CHECK (status IN ('PENDING', 'RESOLVED', 'REJECTED', 'TIMEOUT', 'CANCELLED')),
    CHECK ((status = 'PENDING') = (resolved_at IS NULL))
) WITH (fillfactor = 45);  -- One turn may answer all rows of a page: room for their new versions, without indexes.

-- Lists, newest first.
CREATE INDEX awakeables_newest ON awakeables (created_at, instance_id, entry_index);
-- A question that a task asks again is the same row; and the questions that a task leaves open.
CREATE UNIQUE INDEX awakeables_task ON awakeables (task_id, place) WHERE task_id IS NOT NULL;

-- One row per finished operation of a durable function, whose code is replayed against these lines; and per run of a
-- task since its last checkpoint.
CREATE TABLE journal (
    instance_id text COLLATE "C" NOT NULL,   -- The function.
    visit       integer NOT NULL,            -- The number of the journal: only that of the instance counts. Of a
                                             -- task: the period.
    seq         integer NOT NULL,            -- The order in which the code received the answers.
    entry       integer NOT NULL DEFAULT 0,  -- The operation that it answers: the order of the questions.
    kind        text NOT NULL,               -- The kind of operation.
    name        text,                        -- Its name.
    value       text,                        -- JSON: its answer.
    error       text,                        -- JSON: the error that it raised instead.
    attempts    integer NOT NULL DEFAULT 1,  -- How often a run was called until this result.
    at          bigint NOT NULL,             -- The time of its commit.
    PRIMARY KEY (instance_id, visit, seq)
);

-- The bytes that were streamed by a task, and by all tasks of a run: both are limited.
CREATE TABLE streams (
    instance_id text COLLATE "C" PRIMARY KEY,  -- A task, or a job or process.
    bytes       bigint NOT NULL                -- Of its chunks and heartbeats, also those above the limit, as events.
) WITH (fillfactor = 50);

-- The history: one row per event, written by the turn that caused it, and proof that the turn has committed.
CREATE TABLE events (
    seq         bigint GENERATED ALWAYS AS IDENTITY,  -- The order of the events.
    tx          bigint NOT NULL,                      -- The transaction: readers order by (tx, seq) and stop below the
                                                      -- oldest running one. Higher than in all eras before.
    instance_id text COLLATE "C" NOT NULL,            -- The instance that it happened to.
    type        text NOT NULL,                        -- The type (model/events.py).
    step        text,                                 -- The step at which it happened.
    data        text,                                 -- JSON: the details.
    at          bigint NOT NULL,                      -- The time of the turn.
    PRIMARY KEY (tx, seq)
);

-- The history of one instance.
CREATE INDEX events_instance ON events (instance_id, seq);

-- One row per tag of an instance: lists by tag, newest first.
CREATE TABLE tags (
    name        text COLLATE "C" NOT NULL,  -- The tag.
    value       text COLLATE "C" NOT NULL,  -- Its value.
    created_at  bigint NOT NULL,            -- That of the instance, for the order of the list.
    nth         bigint NOT NULL,            -- That of the instance.
    instance_id text COLLATE "C" NOT NULL,  -- The instance.
    PRIMARY KEY (name, value, created_at, nth, instance_id)
);

-- Retention removes the tags of an instance.
CREATE INDEX tags_instance ON tags (instance_id);

-- -- Starting instances -----------------------------------------------------------------------------------------------

-- Everything that can be started by its name; registered by processes, or deployed from files.
CREATE TABLE definitions (
    name          text COLLATE "C" NOT NULL,  -- The name by which instances are started.
    version       integer NOT NULL,           -- Starts by name choose one (kernel/definitions.py).
    kind          text NOT NULL,              -- The kind of its instances.
    queue         text NOT NULL,              -- The queue of its instances, unless a start names another.
    initial       text NOT NULL,              -- The first step of its instances.
    source        text,                       -- The text that a job or process was read from.
    digest        text,                       -- Of the source; with the same digest it is the same version.
    on_cancel     text,                       -- The `on_cancel` of a new instance.
    created_at    bigint NOT NULL,            -- The time at which this version was recorded.
    undeployed_at bigint,                     -- Since then, no instance can be started by this name.
    retired_at    bigint,                     -- Since then, starts by name choose another version.
    fingerprint   text,                       -- Of the code that was registered last.
    earlier_code  text,                       -- The fingerprint of the code before that.
    code_since    bigint,                     -- The time at which the fingerprint changed last.
    PRIMARY KEY (name, version)
);

-- One row per trigger. A tick moves next_at in the turn that inserts its instance, under the
-- lock of this row: so each tick starts one instance.
CREATE TABLE triggers (
    id              text COLLATE "C" PRIMARY KEY,    -- schedule:name, or kind:definition:element.
    kind            text COLLATE "C" NOT NULL,       -- The clock, or the kind of event that it listens to.
    name            text COLLATE "C" NOT NULL,       -- The name of the schedule, the broadcast or the message.
    definition      text COLLATE "C" NOT NULL,       -- The definition that it starts.
    version         integer,                         -- NULL: the newest version at the time of the start.
    element         text COLLATE "C" NOT NULL,       -- The step to start with; empty: the initial one.
    state           text,                            -- JSON; NULL: the payload of the broadcast or message.
    correlation_key text COLLATE "C",                -- The key of the instance.
    cron            text COLLATE "C",                -- Ticks at the times of this cron expression.
    every           bigint,                          -- Ticks every so many microseconds.
    timezone        text COLLATE "C" NOT NULL,       -- The time zone of the cron expression.
    overlap         text COLLATE "C" NOT NULL,       -- The rule for ticks while an earlier instance runs.
    catch_up        integer NOT NULL,                -- The number of missed ticks that are made up for.
    remaining       bigint,                          -- Ticks that are left; NULL: no limit.
    next_at         bigint,                          -- The next tick, or what it would be without the pause.
    due_at          bigint,                          -- The next tick, or a waiting one that can start.
    paused          boolean NOT NULL DEFAULT false,  -- It does not tick.
    missed          bigint NOT NULL,                 -- Ticks without a start because no process was running.
    skipped         bigint NOT NULL,                 -- Ticks without a start because of overlap or an error.
    last_at         bigint,                          -- The tick of the last start.
    last_id         text COLLATE "C",                -- The instance that it started.
    waiting         text,                            -- JSON: ticks that wait for the end of an instance.
    running         text,                            -- JSON: instances that may still run; not with allow.
    blocker         text COLLATE "C",                -- The instance that the first waiting tick waits for.
    error           text,                            -- The reason why the last tick was refused.
    deployed_by     text COLLATE "C",                -- The definition that brought it; NULL: made by a call.
    created_at      bigint NOT NULL,                 -- The time at which it was made.
    CHECK (kind IN ('schedule', 'timer', 'broadcast', 'message')),
    CHECK (every > 0),
    CHECK (overlap IN ('skip', 'allow', 'queue')),
    CHECK (catch_up >= 0),
    CHECK (remaining >= 0),
    CHECK (due_at IS NULL OR NOT paused),
    CHECK (cron IS NULL OR every IS NULL),
    CHECK (blocker IS NULL OR waiting IS NOT NULL)
);

-- The sweep.
CREATE INDEX triggers_due ON triggers (due_at) WHERE due_at IS NOT NULL;
-- The triggers of a broadcast or message; schedules by name.
CREATE INDEX triggers_named ON triggers (kind, name, id);
-- The end of an instance lets a waiting tick start.
CREATE INDEX triggers_blocker ON triggers (blocker) WHERE blocker IS NOT NULL;
-- A new version of a definition replaces what the older one brought.
CREATE INDEX triggers_deployed ON triggers (deployed_by) WHERE deployed_by IS NOT NULL;

-- -- Broadcasts and messages ------------------------------------------------------------------------------------------

-- One row per broadcast, also without a subscriber.
CREATE TABLE broadcasts (
    id        text COLLATE "C" PRIMARY KEY,  -- Chosen by the engine.
    name      text COLLATE "C" NOT NULL,     -- The name that subscribers wait for.
    payload   text NOT NULL,                 -- JSON.
    dedup_key text COLLATE "C",              -- A second one of this name with this key is a duplicate.
    count     integer NOT NULL,              -- The number of instances that it reached.
    at        bigint NOT NULL                -- The time at which it was sent.
);

-- Duplicates.
CREATE UNIQUE INDEX broadcasts_dedup ON broadcasts (name, dedup_key) WHERE dedup_key IS NOT NULL;
-- Retention: the oldest ones.
CREATE INDEX broadcasts_at ON broadcasts (at);

-- Marks: one row per subscriber that still has to receive a broadcast, which is delivered in chunks.
CREATE TABLE deliveries (
    broadcast_id text COLLATE "C" NOT NULL,  -- The broadcast.
    instance_id  text COLLATE "C" NOT NULL,  -- The subscriber, at the time of the broadcast.
    wait_id      text COLLATE "C" NOT NULL,  -- The wait with a key that receives it; empty: by name.
    PRIMARY KEY (broadcast_id, instance_id, wait_id)
);

-- Messages with a time to live that wait for a receiver, and dedup keys of those that had one.
CREATE TABLE messages (
    seq        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- The oldest one is received first.
    name       text COLLATE "C" NOT NULL,                   -- The name of the message.
    key        text COLLATE "C" NOT NULL,                   -- Its key.
    payload    text NOT NULL,                               -- JSON; null once it was received.
    dedup_key  text COLLATE "C",                            -- A second message with this key is a duplicate.
    expires_at bigint NOT NULL,                             -- The end of its time to live.
    receiver   text COLLATE "C",                            -- The instance that got it; NULL: none has yet.
    at         bigint NOT NULL                              -- The time at which it was sent.
);

-- The messages that a new wait receives.
CREATE INDEX messages_kept ON messages (name, key, seq) WHERE receiver IS NULL;
-- Those whose time is over.
CREATE INDEX messages_expiring ON messages (expires_at) WHERE receiver IS NULL;
-- Duplicates.
CREATE UNIQUE INDEX messages_dedup ON messages (name, key, dedup_key) WHERE dedup_key IS NOT NULL;
-- Retention: those received long ago.
CREATE INDEX messages_received ON messages (at) WHERE receiver IS NOT NULL;

-- Near misses: signals and messages that were stored in no inbox. The newest few thousand, for
-- `hark instance why`.
CREATE TABLE misses (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,  -- The order of arrival.
    at          bigint NOT NULL,                            -- The time of its arrival.
    kind        text COLLATE "C" NOT NULL,                  -- A signal or a message.
    target      text COLLATE "C" NOT NULL,                  -- As it was addressed: an id or a key.
    name        text COLLATE "C" NOT NULL,                  -- Its name.
    reason      text COLLATE "C" NOT NULL,                  -- The target was missing or finished, it was a duplicate,
                                                            -- or it was refused.
    instance_id text COLLATE "C",                           -- The target, if there was one.
    detail      text COLLATE "C",                           -- Why it was refused.
    CHECK (kind IN ('signal', 'message')),
    CHECK (reason IN ('missing', 'finished', 'duplicate', 'refused')),
    CHECK ((reason IN ('missing', 'refused')) = (instance_id IS NULL)),
    CHECK ((reason = 'refused') = (detail IS NOT NULL))
);

-- Near misses of this address.
CREATE INDEX misses_target ON misses (target, seq);
-- Near misses with this name, sent to another address.
CREATE INDEX misses_name ON misses (name, seq);
-- Near misses of this instance.
CREATE INDEX misses_instance ON misses (instance_id, seq) WHERE instance_id IS NOT NULL;

-- Keys with the scope `forever` whose instance was removed: they stay taken.
CREATE TABLE tombstones (
    key         text COLLATE "C" PRIMARY KEY,  -- The correlation key.
    instance_id text NOT NULL,                 -- The instance that held it.
    at          bigint NOT NULL                -- The time at which the instance was removed.
);

-- -- Limits and workers -----------------------------------------------------------------------------------------------

-- Tokens of rate limits, and the lock of each concurrency key, whose slots are counted in `instances`.
CREATE TABLE buckets (
    kind        text COLLATE "C" NOT NULL,  -- rate or slot.
    key         text COLLATE "C" NOT NULL,  -- The name of the limit, or the concurrency key.
    shard       integer NOT NULL,           -- A busy limit has several, so that several processes can claim at once.
    capacity    double precision NOT NULL,  -- The most tokens or slots that it can have.
    available   double precision NOT NULL,  -- Of a rate: the tokens that it had at refilled_at.
    refilled_at bigint NOT NULL,            -- The time of the last refill; it never moves back.
    due_at      bigint,                     -- The time at which blocked rows may have room again.
    PRIMARY KEY (kind, key, shard),
    CHECK (kind IN ('rate', 'slot'))
) WITH (fillfactor = 50);  -- A busy bucket is updated by every turn: it stays on its page.

-- The sweep.
CREATE INDEX buckets_due ON buckets (due_at) WHERE due_at IS NOT NULL;

-- The lease of each process that executes, and of each task that was fetched from outside.
CREATE TABLE workers (
    id          text COLLATE "C" PRIMARY KEY,  -- The name in `lease_owner`.
    until       bigint NOT NULL,               -- The end of the lease.
    definitions text NOT NULL,                 -- The lanes that it can run, separated by commas.
    info        text,                          -- JSON: host, pid, version, queues, free slots.
    started_at  bigint NOT NULL                -- The time at which the lease began.
);

-- -- Access -----------------------------------------------------------------------------------------------------------

-- API tokens. Reading this table does not let anyone use one.
CREATE TABLE tokens (
    id         text COLLATE "C" PRIMARY KEY,  -- Its name in commands.
    hash       text COLLATE "C" NOT NULL,     -- SHA-256 of the token, which is shown once and not stored.
    name       text,                          -- Its purpose, for people.
    scopes     text NOT NULL,                 -- JSON list of what it allows.
    created_at bigint NOT NULL,               -- The time at which it was made.
    expires_at bigint,                        -- The end of its life.
    revoked_at bigint                         -- The time at which it was revoked.
);

-- The token of a request, by its hash.
CREATE UNIQUE INDEX tokens_hash ON tokens (hash);

-- The keys that sign links to awakeables, if no secret is configured. The highest number signs, all of them
-- verify.
CREATE TABLE secrets (
    number     integer PRIMARY KEY,  -- The order.
    secret     text NOT NULL,        -- The key.
    created_at bigint NOT NULL       -- The time at which it was made.
);
-- The first one is made here, where only one process can be, however many open the store.
INSERT INTO secrets (number, secret, created_at)
VALUES (
    1,
    replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
);

-- Addresses of the servers on this store, for links.
CREATE TABLE origins (
    url     text COLLATE "C" PRIMARY KEY,  -- The address.
    seen_at bigint NOT NULL                -- The time at which a server last started there.
);

-- One row per cluster that the store has lived in, which orders the events of all of them (store/postgres_eras.py).
-- Empty on SQLite, where seq is that order.
CREATE TABLE eras (
    number   integer PRIMARY KEY,  -- The order: (number - 1) * 2^44 is added to the numbers of its transactions.
    cluster  text NOT NULL,        -- The system identifier and the timeline.
    began_at bigint NOT NULL       -- The time at which the store was found there.
);

-- One row per version of this schema that was applied.
CREATE TABLE migrations (
    version integer PRIMARY KEY   -- The highest one is that of the store.
);

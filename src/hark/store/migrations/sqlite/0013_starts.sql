-- What starts instances by itself. A tick moves next_at in the transaction that inserts its instance, under the lock of
-- this row: so each tick starts one instance.
CREATE TABLE starts (
    id              text PRIMARY KEY,     -- schedule:name, or kind:definition:element
    kind            text NOT NULL CHECK (kind IN ('schedule', 'timer', 'broadcast', 'message')),
    name            text NOT NULL,        -- of the schedule, the broadcast or the message
    definition      text NOT NULL,
    version         integer,                       -- NULL: the newest one at the time of the start
    element         text NOT NULL,        -- the step to start with; '': the definition's first
    state           text,                          -- JSON; NULL: the payload of the broadcast or message
    correlation_key text,
    cron            text,
    every           bigint CHECK (every > 0),
    timezone        text NOT NULL,
    overlap         text NOT NULL CHECK (overlap IN ('skip', 'allow', 'queue')),
    catch_up        integer NOT NULL CHECK (catch_up >= 0),
    remaining       bigint CHECK (remaining >= 0), -- ticks that are left; NULL: no limit
    next_at         bigint,                        -- the next tick; while it is paused, the one it would have been
    due_at          bigint,                        -- for the sweep: the next tick, or a waiting one that can start
    paused          integer NOT NULL DEFAULT 0,
    missed          bigint NOT NULL,               -- ticks that started nothing because nothing was running
    skipped         bigint NOT NULL,               -- ticks that started nothing because of overlap, or were refused
    last_at         bigint,                        -- the tick of the last start
    last_id         text,                 -- the instance it started
    waiting         text,                          -- JSON: ticks that wait for the end of an instance
    running         text,                          -- JSON: the instances that may still run, unless overlap is 'allow'
    blocker         text,                 -- the one whose end the first waiting tick waits for
    error           text,                          -- why the last tick was refused
    deployed_by     text,                 -- the definition that brought it; NULL: made by a call
    created_at      bigint NOT NULL,
    CHECK (due_at IS NULL OR NOT paused),
    CHECK (cron IS NULL OR every IS NULL),
    CHECK (blocker IS NULL OR waiting IS NOT NULL)
);
CREATE INDEX starts_due ON starts (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX starts_named ON starts (kind, name, id);
CREATE INDEX starts_blocker ON starts (blocker) WHERE blocker IS NOT NULL;
CREATE INDEX starts_deployed ON starts (deployed_by) WHERE deployed_by IS NOT NULL;

-- The tick that started an instance.
ALTER TABLE instances ADD COLUMN scheduled_at bigint;

-- What it takes to run in production: visible failures, progress, tags, traces, cancel with undo, workers and servers
-- with a name.
ALTER TABLE instances ADD COLUMN traceback text;       -- of the error that ended it
ALTER TABLE instances ADD COLUMN progress text;        -- JSON, set by ctx.progress
ALTER TABLE instances ADD COLUMN tags text;            -- JSON object of texts; the rows of `tags` are for the search
ALTER TABLE instances ADD COLUMN trace text;           -- W3C traceparent of the start, if tracing is configured
ALTER TABLE instances ADD COLUMN on_cancel text COLLATE "C"; -- a cancel goes to this step first; NULL: ends at once
ALTER TABLE instances ADD COLUMN cancel_reason text;   -- a cancel was requested, and its undo has not finished
ALTER TABLE definitions ADD COLUMN on_cancel text;     -- what a new instance gets as `on_cancel`
ALTER TABLE workers ADD COLUMN info text;              -- JSON: host, pid, version, queues, free slots

CREATE TABLE tags (                                    -- instances by tag, newest first
    name        text COLLATE "C" NOT NULL,
    value       text COLLATE "C" NOT NULL,
    created_at  bigint NOT NULL,
    instance_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (name, value, created_at, instance_id)
);
CREATE INDEX tags_instance ON tags (instance_id);

CREATE TABLE origins (                                 -- addresses of the servers on this store, for links
    url         text COLLATE "C" PRIMARY KEY,
    seen_at     bigint NOT NULL
);

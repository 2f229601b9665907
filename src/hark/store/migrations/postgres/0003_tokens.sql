CREATE TABLE tokens (                              -- X3: the table alone does not let a reader use a token
    id          text COLLATE "C" PRIMARY KEY,
    hash        text COLLATE "C" NOT NULL,                   -- SHA-256 of the token, which is shown once and not stored
    name        text,
    scopes      text NOT NULL,                     -- a JSON list
    created_at  bigint NOT NULL,
    expires_at  bigint,
    revoked_at  bigint
);
CREATE UNIQUE INDEX tokens_hash ON tokens (hash);

-- Open waits, longest first: to list them, count them or find the oldest does not scan the table.
CREATE INDEX waits_open ON waits (kind, since, id) WHERE closed_at IS NULL AND fired_at IS NULL;

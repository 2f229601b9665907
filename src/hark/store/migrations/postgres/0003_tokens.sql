CREATE TABLE tokens (                              -- X3: who reads this table can use none of them
    id          text COLLATE "C" PRIMARY KEY,
    hash        text COLLATE "C" NOT NULL,                   -- SHA-256 of the token, which is shown once and kept nowhere
    name        text,
    scopes      text NOT NULL,                     -- a JSON list
    created_at  bigint NOT NULL,
    expires_at  bigint,
    revoked_at  bigint
);
CREATE UNIQUE INDEX tokens_hash ON tokens (hash);

-- What is open, longest first: the list of waits, their number and the oldest do not scan the table.
CREATE INDEX waits_open ON waits (kind, since, id) WHERE closed_at IS NULL AND fired_at IS NULL;

-- What signs links when no secret is configured. Made here, under the lock of the migrations: whoever opens the
-- store first, and however many do, there is one. The highest number signs, all of them verify.

CREATE TABLE secrets (
    number     integer PRIMARY KEY,
    secret     text NOT NULL,
    created_at bigint NOT NULL
);
INSERT INTO secrets (number, secret, created_at)
VALUES (1, lower(hex(randomblob(32))), CAST((julianday('now') - 2440587.5) * 86400000000 AS integer));

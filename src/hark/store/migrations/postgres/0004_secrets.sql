-- The key that signs links if no secret is configured. It is made here, under the lock of the migrations, so there is
-- exactly one however many processes open the store. The highest number signs, all of them verify.

CREATE TABLE secrets (
    number     integer PRIMARY KEY,
    secret     text NOT NULL,
    created_at bigint NOT NULL
);
INSERT INTO secrets (number, secret, created_at)
VALUES (
    1,
    replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''),
    (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
);

"""Keep messages for a receiver, and the dedup keys of those that were received."""

from __future__ import annotations

from hark.store.sql import Row, Sql


class SeenMessage(Row, frozen=True):
    """A message with a dedup key that was sent before. Without a receiver it is kept until `expires_at`."""

    seq: int
    name: str
    key: str
    dedup_key: str
    receiver: str | None
    expires_at: int


# B4, S7: the messages with these dedup keys that were sent before. Under reservation of name and key.
seen_messages = Sql(
    """
    SELECT m.seq, m.name, m.key, m.dedup_key, m.receiver, m.expires_at
    FROM {rows: name text, key text, dedup_key text}
    JOIN messages m ON m.name = r.name AND m.key = r.key AND m.dedup_key = r.dedup_key
    """,
    row=SeenMessage,
)

# B4: keep messages, in the order of the calls; with a receiver, only the dedup key is kept.
insert_messages = Sql(
    """
    INSERT INTO messages (name, key, payload, dedup_key, expires_at, receiver, at)
    SELECT r.name, r.key, r.payload, r.dedup_key, r.expires_at, r.receiver, :now::bigint
    FROM {rows: name text, key text, payload text, dedup_key text, expires_at bigint, receiver text}
    ORDER BY r.ord
    """
)


class KeptMessage(Row, frozen=True):
    """A message that waits for its receiver."""

    seq: int
    name: str
    key: str
    payload: str
    dedup_key: str | None


# B4, fault 62: the oldest messages that are kept for these, at most `most` of each, without those whose time is over.
kept_messages = Sql(
    """
    SELECT m.seq, r.name, r.key, m.payload, m.dedup_key FROM {rows: name text, key text} CROSS JOIN LATERAL (
        SELECT k.seq, k.payload, k.dedup_key FROM messages k
        WHERE k.name = r.name AND k.key = r.key AND k.receiver IS NULL AND k.expires_at > :now::bigint
        ORDER BY k.seq LIMIT :most::bigint) m
    ORDER BY r.ord, m.seq
    """,
    # SQLite has no LATERAL.
    sqlite="""
    SELECT m.seq, r.name, r.key, m.payload, m.dedup_key FROM {rows: name text, key text}
    CROSS JOIN messages m ON m.seq IN (
        SELECT k.seq FROM messages k
        WHERE k.name = r.name AND k.key = r.key AND k.receiver IS NULL AND k.expires_at > :now
        ORDER BY k.seq LIMIT :most)
    ORDER BY r.ord, m.seq
    """,
    row=KeptMessage,
)

# B4: delete messages that were received.
delete_messages = Sql("DELETE FROM messages WHERE seq IN :seqs[bigint]")

# B4, S7: a received message with a dedup key leaves the key and its receiver.
receive_messages = Sql(
    """
    UPDATE messages AS m SET receiver = r.receiver, payload = 'null'
    FROM {rows: seq bigint, receiver text} WHERE m.seq = r.seq
    """
)

# B4: delete messages whose time is over, after a grace period: a turn that delivers one has an older time.
forget_expired_messages = Sql(
    """
    DELETE FROM messages WHERE seq IN (
        SELECT seq FROM messages WHERE receiver IS NULL AND expires_at < :now::bigint - :grace::bigint
        ORDER BY expires_at LIMIT :size::bigint FOR UPDATE SKIP LOCKED)
    RETURNING seq
    """
)

# X7: delete the dedup keys of messages that were received long ago, as those of broadcasts.
forget_received_messages = Sql(
    """
    DELETE FROM messages WHERE seq IN (
        SELECT seq FROM messages WHERE receiver IS NOT NULL AND at < :before::bigint
        ORDER BY at LIMIT :size::bigint FOR UPDATE SKIP LOCKED)
    RETURNING seq
    """
)

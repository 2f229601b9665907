"""Write, read and consume inboxes, and record the signals that were not stored."""

from __future__ import annotations

from hark.store.sql import Sql

# S7, invariant 7: the dedup keys that an instance has seen before, consumed or not. Under lock.
seen = Sql(
    """
    SELECT s.instance_id, s.dedup_key FROM {rows: id text, dedup_key text}
    JOIN inbox s ON s.instance_id = r.id AND s.dedup_key = r.dedup_key
    """
)

# S9: the kept instances of a correlation key that have seen this dedup key, the latest last. Also for
# signals from NATS, which may be read again after the holder has changed.
seen_by_holders = Sql(
    """
    SELECT r.key, r.dedup_key, i.id FROM {rows: key text, dedup_key text}
    JOIN instances i ON i.correlation_key = r.key
    JOIN inbox s ON s.instance_id = i.id AND s.dedup_key = r.dedup_key
    ORDER BY i.created_at
    """
)

# S1: write inbox rows, in the order of the calls (S10). Under lock, so that a park that commits later sees them
# (invariant 4).
insert_signals = Sql(
    """
    INSERT INTO inbox (instance_id, kind, name, wait_id, payload, dedup_key, at)
    SELECT r.id, r.kind, r.name, r.wait_id, r.payload, r.dedup_key, :now::bigint
    FROM {rows: id text, kind text, name text, wait_id text, payload text, dedup_key text}
    ORDER BY r.ord
    RETURNING seq
    """
)
_ALIKE = "{rows: ids text, kind text, name text, wait_id text, payload text, dedup_key text}"

# B1: the same signal to many instances. A broadcast sends its payload once and its subscribers as one text, instead
# of fifty thousand rows.
insert_same_signal = Sql(
    f"""
    INSERT INTO inbox (instance_id, kind, name, wait_id, payload, dedup_key, at)
    SELECT t.id, r.kind, r.name, r.wait_id, r.payload, r.dedup_key, :now::bigint FROM {_ALIKE}
    CROSS JOIN LATERAL unnest(string_to_array(r.ids, ' ')) WITH ORDINALITY AS t(id, place)
    ORDER BY r.ord, t.place
    RETURNING seq
    """,
    # SQLite splits a list as JSON; an id contains nothing that JSON would escape. MATERIALIZED: each row is parsed
    # once, not again for each of its ids, which was three times slower for 20,000 ids.
    sqlite=f"""
    WITH alike AS MATERIALIZED (SELECT * FROM {_ALIKE})
    INSERT INTO inbox (instance_id, kind, name, wait_id, payload, dedup_key, at)
    SELECT t.value, a.kind, a.name, a.wait_id, a.payload, a.dedup_key, :now FROM alike a
    CROSS JOIN json_each('["' || replace(a.ids, ' ', '","') || '"]') AS t
    ORDER BY a.ord, t.key
    RETURNING seq
    """,
)

# The unconsumed signals of each inbox with a number above `after`, in the order of arrival. Numbers are drawn under the
# lock of the instance, so in one inbox they rise in the order of the commits: nothing can appear later below a number
# that was read. With `after` -1, all but signals: those of a run are received by its tasks, and any number of them may
# wait in the inbox of the job or process.
_UNREAD = """FROM {rows: id text, after bigint} CROSS JOIN LATERAL (
        SELECT seq, kind, name, wait_id, payload, at FROM inbox
        WHERE instance_id = r.id AND seq > r.after AND consumed_at IS NULL AND (r.after >= 0 OR kind <> 'signal')
        ORDER BY seq) s"""
_UNREAD_SQLITE = """FROM {rows: id text, after bigint}
    CROSS JOIN inbox s ON s.instance_id = r.id AND s.seq > r.after AND s.consumed_at IS NULL
        AND (r.after >= 0 OR s.kind <> 'signal') ORDER BY r.ord, s.seq"""

# S2: the rows that an activation may read.
inbox = Sql(
    f"SELECT s.seq, r.id, s.kind, s.name, s.wait_id, s.payload, s.at {_UNREAD}",
    # SQLite has no LATERAL.
    sqlite=f"SELECT s.seq, r.id, s.kind, s.name, s.wait_id, s.payload, s.at {_UNREAD_SQLITE}",
)

# Invariant 4: the rows that a park must check after it has armed its waits, without the payloads.
inbox_heads = Sql(
    f"SELECT s.seq, r.id, s.kind, s.name, s.wait_id {_UNREAD}",
    sqlite=f"SELECT s.seq, r.id, s.kind, s.name, s.wait_id {_UNREAD_SQLITE}",
)

# S4, invariant 6: consumed signals are marked, not deleted, so that deduplication outlives consumption (invariant 7).
consume = Sql("UPDATE inbox SET consumed_at = :now::bigint WHERE seq IN :seqs[bigint]", joinable=True)

# X8: consume rows directed to waits that a cancel has removed: the undo must not take them for answers to its own.
consume_directed = Sql(
    """
    UPDATE inbox SET consumed_at = :now::bigint
    WHERE instance_id IN :ids[text] AND consumed_at IS NULL AND kind NOT IN ('signal', 'broadcast')
    """
)

# Consume rows directed to the waits of a child that its parent runs again: it starts without them, unless they are for
# children of its own, or requests of operators. Signals of its run are given back instead
# (kernel/runs/run_signals.py).
consume_answers = Sql(
    """
    UPDATE inbox SET consumed_at = :now::bigint
    WHERE instance_id IN :ids[text] AND consumed_at IS NULL
        AND kind NOT IN ('signal', 'children', 'control') AND (wait_id IS NOT NULL OR kind <> 'broadcast')
    """
)

# S4, X8: a retry that runs lines of the journal again gets back the signals that those lines had consumed.
restore = Sql("UPDATE inbox SET consumed_at = NULL WHERE seq IN :seqs[bigint]", joinable=True)

# Invariant 4: parked instances whose wait was answered become claimable, at the end of their queue.
wake = Sql(
    """
    UPDATE instances SET status = 'runnable', since = :position::bigint, due_at = NULL, has_inbox_rows = true,
        updated_at = :now::bigint
    WHERE id IN :ids[text]
    """,
    joinable=True,
)

# The places of woken instances in the backlog: a worker of the same process may claim them in this turn.
woken = Sql(
    """
    SELECT id, queue, priority, concurrency_key, rate_limit, weight, lane FROM instances WHERE id IN :ids[text]
    """
)

# The first signal of an instance that was not woken by it: from now on its inbox is read.
mark_has_inbox_rows = Sql("UPDATE instances SET has_inbox_rows = true WHERE id IN :ids[text]", joinable=True)

# D7: record signals and messages that were not stored. No lock and no conflict: nothing but reads and retention
# touch these rows.
insert_misses = Sql(
    """
    INSERT INTO misses (at, kind, target, name, reason, instance_id, detail)
    SELECT :now::bigint, r.kind, r.target, r.name, r.reason, r.instance_id, r.detail
    FROM {rows: kind text, target text, name text, reason text, instance_id text, detail text} ORDER BY r.ord
    """,
    joinable=True,
)

# D7, X7: remove near misses that are older than the retention, and all but the newest few thousand.
forget_misses = Sql(
    """
    DELETE FROM misses WHERE seq IN (
        SELECT seq FROM misses WHERE at < :before::bigint OR seq <= (SELECT max(seq) FROM misses) - :most::bigint
        ORDER BY seq LIMIT :size::bigint FOR UPDATE SKIP LOCKED)
    RETURNING seq
    """
)

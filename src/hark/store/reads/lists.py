"""List instances, newest first, by every filter.

A page is read along one index, whose filter *drives* it; the other filters are checked row by row.
views/listing.py chooses the statement. Each row is an id and the bytes that showing it would take, so that a page of
large states can end early: the size of a text is known without reading it.

(at, nth, after) is the position of the last row of the page before, and `since` a time that every row is later than.
"""

from __future__ import annotations

from hark.store.sql import Row, Sql


class Listed(Row, frozen=True):
    """A row of a page: the instance, and the number of bytes of its texts."""

    id: str
    bytes: int


class Position(Row, frozen=True):
    """The position of an instance in the list of all instances."""

    created_at: int
    nth: int
    id: str


# The position of this instance: a page begins behind it.
position = Sql("SELECT created_at, nth, id FROM instances WHERE id = :id::text", row=Position)

_BYTES = """octet_length(i.state) + coalesce(octet_length(i.result), 0) + coalesce(octet_length(i.error), 0)
        + coalesce(octet_length(i.traceback), 0) + coalesce(octet_length(i.progress), 0)
        + coalesce(octet_length(i.cancel_reason), 0) + coalesce(octet_length(i.tags), 0)"""
_NEWEST = "ORDER BY i.created_at DESC, i.nth DESC, i.id DESC"
_OLDER = "(i.created_at, i.nth, i.id) < (:at::bigint, :nth::bigint, :after::text) AND i.created_at > :since::bigint"

# A lane here is a definition, a status and a kind. The index leads to the newest row of each lane, and a page takes the
# lanes with the newest rows, so rows in other lanes are not read: not the tasks of a job, if they are not asked for.
_LANE = f"i.definition = r.definition AND i.status = r.status AND i.kind = r.kind AND {_OLDER} {_NEWEST}"
_LANES = f"""
    WITH heads AS (
        SELECT r.definition, r.status, r.kind FROM {{rows: definition text, status text, kind text}}
        CROSS JOIN LATERAL (SELECT i.created_at, i.nth, i.id FROM instances i WHERE {_LANE} LIMIT 1) i
        {_NEWEST} LIMIT :window::bigint),
    newest AS (
        SELECT i.created_at, i.nth, i.id FROM heads r
        CROSS JOIN LATERAL (
            SELECT i.created_at, i.nth, i.id FROM instances i WHERE {_LANE} LIMIT :window::bigint) i
        {_NEWEST} LIMIT :window::bigint)"""
# SQLite has no LATERAL, see statements/claims.py.
_LANES_SQLITE = f"""
    WITH heads AS (
        SELECT r.definition, r.status, r.kind FROM {{rows: definition text, status text, kind text}}
        CROSS JOIN instances i ON i.rowid = (
            SELECT i.rowid FROM instances i INDEXED BY instances_listed WHERE {_LANE} LIMIT 1)
        {_NEWEST} LIMIT :window),
    newest AS (
        SELECT i.rowid FROM heads r CROSS JOIN instances i ON i.rowid IN (
            SELECT i.rowid FROM instances i INDEXED BY instances_listed WHERE {_LANE} LIMIT :window)
        {_NEWEST} LIMIT :window)"""
_PAGE = "FROM newest n CROSS JOIN LATERAL (SELECT * FROM instances o WHERE o.id = n.id OFFSET 0) i"
_PAGE_SQLITE = "FROM newest n CROSS JOIN instances i ON i.rowid = n.rowid"

# By status, definition, kind and time.
list_instances = Sql(
    f"{_LANES} SELECT i.id, {_BYTES} {_PAGE} {_NEWEST}",
    sqlite=f"{_LANES_SQLITE} SELECT i.id, {_BYTES} {_PAGE_SQLITE} {_NEWEST}",
    row=Listed,
)

# The filters that are checked row by row. A key has the prefix if it is in [low, high): both databases compare bytes.
_MATCHES = """(:status::text IS NULL OR i.status = :status::text)
        AND CASE WHEN :kind::text IS NULL THEN i.kind <> 'task' ELSE i.kind = :kind::text END
        AND (:definition::text IS NULL OR i.definition = :definition::text)
        AND (:low::text IS NULL OR i.correlation_key >= :low::text AND i.correlation_key < :high::text)"""
_TAGGED = "(:tags::text IS NULL OR coalesce(i.tags, '{}')::jsonb @> :tags::text::jsonb)"
# SQLite cannot compare JSON objects.
_TAGGED_SQLITE = """(:tags IS NULL OR NOT EXISTS (
        SELECT 1 FROM json_each(:tags) w WHERE NOT EXISTS (
            SELECT 1 FROM json_each(i.tags) h WHERE h.key = w.key AND h.value = w.value)))"""

# Among the newest `window` instances of these lanes, those that match.
list_newest = Sql(
    f"{_LANES} SELECT i.id, {_BYTES} {_PAGE} WHERE {_MATCHES} AND {_TAGGED} {_NEWEST} LIMIT :size::bigint",
    sqlite=f"""{_LANES_SQLITE} SELECT i.id, {_BYTES} {_PAGE_SQLITE} WHERE {_MATCHES} AND {_TAGGED_SQLITE} {_NEWEST}
    LIMIT :size""",
    row=Listed,
)

_TAG = """t.name = :name::text AND t.value = :value::text
        AND (t.created_at, t.nth, t.instance_id) < (:at::bigint, :nth::bigint, :after::text)
        AND t.created_at > :since::bigint"""
_LATEST = "ORDER BY t.created_at DESC, t.nth DESC, t.instance_id DESC"

# By one tag; `tags` are all that an instance must have.
list_tagged = Sql(
    f"""
    SELECT i.id, {_BYTES} FROM tags t
    CROSS JOIN LATERAL (SELECT * FROM instances o WHERE o.id = t.instance_id OFFSET 0) i
    WHERE {_TAG} AND {_MATCHES} AND {_TAGGED} {_LATEST} LIMIT :size::bigint
    """,
    sqlite=f"""
    SELECT i.id, {_BYTES} FROM tags t CROSS JOIN instances i ON i.id = t.instance_id
    WHERE {_TAG} AND {_MATCHES} AND {_TAGGED_SQLITE} {_LATEST} LIMIT :size
    """,
    row=Listed,
)

_KEY = f"i.correlation_key >= :low::text AND i.correlation_key < :high::text AND {_OLDER}"

# By the prefix of the key: reads every instance that has it, because keys are not in the order of time.
list_keyed = Sql(
    f"""
    SELECT i.id, {_BYTES} FROM instances i
    WHERE {_KEY} AND {_MATCHES} AND {_TAGGED} {_NEWEST} LIMIT :size::bigint
    """,
    sqlite=f"""
    SELECT i.id, {_BYTES} FROM instances i INDEXED BY instances_kept_key
    WHERE {_KEY} AND {_MATCHES} AND {_TAGGED_SQLITE} {_NEWEST} LIMIT :size
    """,
    row=Listed,
)

# The number of instances of these lanes, up to `most`.
count_lanes = Sql(
    f"""
    SELECT count(*) FROM (
        SELECT 1 FROM {{rows: definition text, status text, kind text}}
        CROSS JOIN LATERAL (SELECT i.id FROM instances i WHERE {_LANE} LIMIT :most::bigint) i LIMIT :most::bigint) n
    """,
    # SQLite has no LATERAL.
    sqlite=f"""
    SELECT coalesce(sum((SELECT count(*) FROM (
        SELECT 1 FROM instances i INDEXED BY instances_listed WHERE {_LANE} LIMIT :most) n)), 0)
    FROM {{rows: definition text, status text, kind text}}
    """,
)

# The number of instances of each tag, up to `most`.
count_tagged = Sql(
    f"""
    SELECT r.name, r.value, (
        SELECT count(*) FROM (
            SELECT 1 FROM tags t WHERE t.name = r.name AND t.value = r.value
                AND (t.created_at, t.nth, t.instance_id) < (:at::bigint, :nth::bigint, :after::text)
                AND t.created_at > :since::bigint {_LATEST} LIMIT :most::bigint) n)
    FROM {{rows: name text, value text}}
    """
)

# The number of instances whose key has this prefix, up to `most`.
count_keyed = Sql(
    """
    SELECT count(*) FROM (
        SELECT 1 FROM instances i WHERE i.correlation_key >= :low::text AND i.correlation_key < :high::text
        ORDER BY i.correlation_key LIMIT :most::bigint) n
    """
)

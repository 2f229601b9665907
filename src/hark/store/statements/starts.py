"""Start instances, and record the definitions they run."""

from __future__ import annotations

from hark.store.sql import Sql

# M11: the holder of each of these names: an instance with this id, a live or `forever` key, or a tombstone. The names
# are reserved, so the answer holds until COMMIT.
taken = Sql(
    """
    SELECT id AS name, id AS holder FROM instances WHERE id IN :names[text]
    UNION ALL SELECT correlation_key, id FROM instances WHERE correlation_key IN :names[text] AND holds_key
    UNION ALL SELECT key, instance_id FROM tombstones WHERE key IN :names[text]
    """
)

# M1, M8: start instances in the order of the calls. `nth` orders instances with the same time: those of a later turn
# have higher positions. A row with an error is a child that could not start: it is inserted as finished and counted.
insert_instances = Sql(
    """
    INSERT INTO instances (id, definition, version, kind, correlation_key, scope, holds_key, queue, priority,
        status, step, state, error, since, due_at, concurrency_key, rate_limit, weight, parent_id, parent_wait,
        on_cancel, tags, nth, counted, created_at, updated_at, finished_at, lane)
    SELECT r.id, r.definition, r.version, r.kind, r.correlation_key, r.scope, r.correlation_key IS NOT NULL,
        r.queue, r.priority, r.status, r.step, r.state, r.error, :position::bigint + r.ord, r.due_at, r.concurrency_key,
        r.rate_limit, r.weight, r.parent_id, r.parent_wait, r.on_cancel, r.tags,
        :position::bigint + r.ord - :now::bigint, r.error IS NOT NULL, :now::bigint, :now::bigint,
        CASE WHEN r.error IS NOT NULL THEN :now::bigint END, r.lane
    FROM {rows: id text, definition text, version integer, kind text, correlation_key text, scope text, queue text,
        priority integer, status text, step text, state text, error text, due_at bigint,
        concurrency_key text, rate_limit text, weight double precision, parent_id text, parent_wait text,
        on_cancel text, tags text, lane text}
    ORDER BY r.ord
    """
)

# X6: the traces that new instances continue. Sent only when a tracer is configured.
set_traces = Sql("UPDATE instances AS i SET trace = r.trace FROM {rows: id text, trace text} WHERE i.id = r.id")

# Find instances by tag, newest first: one row per tag, beside the column that shows them.
insert_tags = Sql(
    """
    INSERT INTO tags (name, value, created_at, nth, instance_id)
    SELECT r.name, r.value, :now::bigint, :position::bigint + r.started - :now::bigint, r.id
    FROM {rows: id text, name text, value text, started bigint}
    """
)

# M6, V8: record the definitions of this process, for other processes to start, and the fingerprint of their code. The
# latest registration wins.
record_definitions = Sql(
    """
    INSERT INTO definitions (name, version, kind, queue, initial, source, digest, on_cancel, fingerprint, code_since,
        created_at)
    SELECT r.name, r.version, r.kind, r.queue, r.initial, r.source, r.digest, r.on_cancel, r.fingerprint, :now::bigint,
        :now::bigint
    FROM {rows: name text, version integer, kind text, queue text, initial text, source text, digest text,
        on_cancel text, fingerprint text}
    WHERE true ORDER BY r.name, r.version
    ON CONFLICT (name, version) DO UPDATE SET kind = excluded.kind, queue = excluded.queue,
        initial = excluded.initial, source = excluded.source, digest = excluded.digest, on_cancel = excluded.on_cancel,
        fingerprint = excluded.fingerprint,
        earlier_code = CASE WHEN definitions.fingerprint = excluded.fingerprint THEN definitions.earlier_code
            ELSE definitions.fingerprint END,
        code_since = CASE WHEN definitions.fingerprint = excluded.fingerprint THEN definitions.code_since
            ELSE excluded.code_since END
        WHERE definitions.kind NOT IN ('job', 'bpmn')
    RETURNING name, version, earlier_code, code_since
    """
)

# M6: the newest version of each of these names, to decide whether a deployed definition is a new one. The names are
# reserved.
newest_definitions = Sql(
    """
    SELECT d.name, d.version, d.kind, d.digest FROM definitions d
    WHERE d.name IN :names[text] AND d.version = (SELECT max(n.version) FROM definitions n WHERE n.name = d.name)
    """
)

# Store deployed definitions. One that exists by now was registered by another process meanwhile.
deploy_definitions = Sql(
    """
    INSERT INTO definitions (name, version, kind, queue, initial, source, digest, on_cancel, fingerprint, created_at)
    SELECT r.name, r.version, r.kind, r.queue, r.initial, r.source, r.digest, r.on_cancel, r.fingerprint, :now::bigint
    FROM {rows: name text, version integer, kind text, queue text, initial text, source text, digest text,
        on_cancel text, fingerprint text}
    WHERE true ORDER BY r.name, r.version
    ON CONFLICT DO NOTHING RETURNING name
    """
)

# Undeploy definitions, or make them available again: all versions of a name.
set_undeployed = Sql(
    """
    UPDATE definitions AS d SET undeployed_at = r.at FROM {rows: name text, at bigint} WHERE d.name = r.name
    """
)

# M6: the definitions that can be started by name from a process without their code.
definitions = Sql(
    """
    SELECT name, version, kind, queue, initial, on_cancel, undeployed_at, retired_at FROM definitions
    ORDER BY name, version
    """
)

# V9: the lanes of the live workers.
live_lanes = Sql("SELECT w.definitions FROM workers w WHERE w.until >= :now::bigint")

# V9: take a version out of the choice of starts by name, or back in. Its name is reserved.
set_retired = Sql(
    """
    UPDATE definitions SET retired_at = CASE WHEN :retired::boolean THEN coalesce(retired_at, :now::bigint) END
    WHERE name = :name::text AND version = :version::integer
    RETURNING version
    """
)

# V5: what an instance has begun with. Under lock of the row, which this turn has inserted.
set_forked = Sql(
    """
    UPDATE instances AS i SET forked_from = r.source, has_run = r.has_run,
        on_cancel = coalesce(r.on_cancel, i.on_cancel)
    FROM {rows: id text, source text, has_run boolean, on_cancel text} WHERE i.id = r.id
    """
)

# V4: an instance goes on with another version of its definition, in a new epoch; a held one is runnable again. A
# function keeps what it has to undo. Under lock.
migrate = Sql(
    """
    UPDATE instances AS i SET version = r.version, lane = r.lane, step = r.step, state = r.state, crashes = 0,
        on_cancel = CASE WHEN r.kind IN ('workflow', 'job') THEN i.on_cancel ELSE r.on_cancel END, epoch = i.epoch + 1,
        status = CASE WHEN i.status = 'held' THEN 'runnable' ELSE i.status END, held_by = NULL,
        error = CASE WHEN i.status = 'held' THEN NULL ELSE i.error END,
        traceback = CASE WHEN i.status = 'held' THEN NULL ELSE i.traceback END,
        due_at = CASE WHEN i.status = 'held' THEN NULL ELSE i.due_at END, updated_at = :now::bigint
    FROM {rows: id text, version integer, lane text, step text, state text, kind text, on_cancel text}
    WHERE i.id = r.id
    """
)

# V4: waits stay armed at the places that the new version has for them. Under lock.
move_waits = Sql("UPDATE waits AS w SET place = r.place FROM {rows: id text, place text} WHERE w.id = r.id")

# V4: so do questions. Under lock.
move_awakeables = Sql(
    """
    UPDATE awakeables AS a SET place = r.place, task = r.task FROM {rows: id text, place text, task text}
    WHERE a.id = r.id
    """
)

# V9: functions that continue as new go on with another version. Under lock.
change_versions = Sql(
    """
    UPDATE instances AS i SET version = r.version, lane = r.lane FROM {rows: id text, version integer, lane text}
    WHERE i.id = r.id
    """,
    joinable=True,
)

# M8: the oldest ancestors of these instances, which are children.
roots_of = Sql(
    """
    WITH RECURSIVE above(below, id, parent_id) AS (
        SELECT i.id, i.id, i.parent_id FROM instances i WHERE i.id IN :ids[text]
        UNION ALL SELECT a.below, p.id, p.parent_id FROM above a JOIN instances p ON p.id = a.parent_id)
    SELECT below, id FROM above WHERE parent_id IS NULL
    """
)

# M8: how many live descendants these instances have, up to a limit for all together: the recursion ends there.
family_sizes = Sql(
    """
    WITH RECURSIVE below(root, id) AS (
        SELECT i.parent_id, i.id FROM instances i WHERE i.parent_id IN :ids[text] AND i.finished_at IS NULL
        UNION ALL SELECT b.root, i.id FROM below b CROSS JOIN instances i
        WHERE i.parent_id = b.id AND i.finished_at IS NULL)
    SELECT f.root, count(*) FROM (SELECT b.root FROM below b LIMIT :most) f GROUP BY f.root
    """
)

-- The functions of PostgreSQL: the turn that is one call. A copy of what the kernel decides in the most frequent case,
-- for its speed; tests/kernel/test_call_turns.py runs every turn both ways and compares what is in the store.
--
-- With targets: deliver one signal or answer to each, all of them different instances that wait for just this, and claim
-- these instances for the worker `_owner`; without an owner, make them claimable. Without targets: claim what is
-- claimable. It returns a row for each instance (without targets at least one). If a decision of the kernel is needed, it
-- returns fewer rows, or a last one without an id after others: the caller then rolls back, and the turn is
-- executed in full (kernel/fast/call_turn.py).
--
-- Each statement of the function has a snapshot of its own under READ COMMITTED, so what is read after the lock is what
-- the lock protects (invariant 3). A statement for each instance is right here: there are a few, and each statement for
-- a list costs twice as much for one.
--
-- The number in its name is its version: raise it with every change of the function, here and in
-- store/statements/functions.py. A process that opens the store creates the function that it lacks, beside that of the
-- version before it, which other processes still call. A later migration drops functions that no version calls.
-- {claim}, {i_claim} and {claim_types} are the columns of a claim (model/activation.py, CLAIM_COLUMNS).
SET client_min_messages = warning;  -- without a notice for each %TYPE

CREATE OR REPLACE FUNCTION call_turn_v4(
    _targets text[], _has_keys boolean, _kinds text[], _names text[], _payloads text[], _dedup_keys text[], _events text[],
    _statuses text[], _answers text[], _errors text[], _answered_by text[], _schemas text[],
    _owner text, _nonce bigint, _queues text[], _lanes text[], _sizes integer[], _most integer,
    _clock bigint, _least_position bigint, _base bigint)
RETURNS TABLE (
    {claim_types},
    inbox text, waits text, awakeable text, unknown_schema text,
    turn_now bigint, turn_tx bigint, turn_position bigint)
LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    _ids text[];
    _needs_bucket boolean;
    _is_answered boolean;
    _has_children boolean;
    _seq bigint;
    _row instances%ROWTYPE;
    _asked awakeables%ROWTYPE;
BEGIN
    -- Invariant 17, as at the beginning of every turn.
    PERFORM pg_advisory_xact_lock_shared(hashtext('hark:' || current_schema()), -1);
    turn_now := coalesce(_clock, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
    turn_tx := _base + pg_current_xact_id()::text::bigint;
    turn_position := greatest(turn_now, _least_position);

    IF _targets IS NULL THEN
        -- M10: as `claimable`, one index scan for each lane of a queue, up to the free slots of the queue.
        SELECT array_agg(c.id ORDER BY c.priority, c.since) FILTER (WHERE c.nth <= c.size),
            bool_or(c.concurrency_key IS NOT NULL OR c.rate_limit IS NOT NULL OR c.kind NOT IN ('machine', 'workflow'))
        INTO _ids, _needs_bucket
        FROM (
            SELECT l.*, r.size, row_number() OVER (PARTITION BY r.queue ORDER BY l.priority, l.since) AS nth
            FROM unnest(_queues, _lanes, _sizes) AS r (queue, lane, size)
            CROSS JOIN LATERAL (
                SELECT i.id, i.priority, i.since, i.concurrency_key, i.rate_limit, i.kind FROM instances i
                WHERE i.queue = r.queue AND i.lane = r.lane
                    AND i.status = 'runnable' AND i.blocked_on IS NULL AND i.due_at IS NULL
                ORDER BY i.priority, i.since LIMIT least(r.size, _most + 1) FOR NO KEY UPDATE SKIP LOCKED) l) c;
        IF _ids IS NULL THEN
            RETURN NEXT;
            RETURN;
        ELSIF _needs_bucket OR cardinality(_ids) > _most THEN
            RETURN;
        END IF;
    ELSE
        _ids := _targets;
        IF _has_keys THEN
            -- M11: as `addresses`.
            SELECT array_agg(coalesce(
                    (SELECT i.id FROM instances i WHERE i.id = t.target),
                    (SELECT i.id FROM instances i WHERE i.correlation_key = t.target AND i.holds_key),
                    (SELECT i.id FROM instances i WHERE i.correlation_key = t.target ORDER BY i.created_at DESC LIMIT 1))
                ORDER BY t.ord)
            INTO _ids FROM unnest(_targets) WITH ORDINALITY AS t (target, ord);
        END IF;
        IF cardinality(_ids) = 1 THEN
            -- After a wait for the lock, this returns the row as the other transaction has left it.
            SELECT i.* INTO _row FROM instances i WHERE i.id = _ids[1] FOR NO KEY UPDATE;
        ELSE
            PERFORM FROM instances i WHERE i.id = ANY (_ids) ORDER BY i.id FOR NO KEY UPDATE;
        END IF;
    END IF;

    FOR _nth IN 1 .. cardinality(_ids) LOOP
        -- What a step may read, and whether the kernel would decide what this function does: the instance waits for just
        -- this and needs no bucket. Of waits for children it would read more.
        SELECT json_agg(json_build_array(w.id, w.place, w.kind, w.name, w.key, w.deadline, w.remaining, w.fired_at,
                w.since, w.answers_each) ORDER BY w.id)::text,
            bool_or(w.kind = _kinds[_nth] AND w.name = _names[_nth] AND w.key IS NULL), bool_or(w.kind = 'children')
        INTO waits, _is_answered, _has_children
        FROM waits w WHERE w.instance_id = _ids[_nth] AND w.closed_at IS NULL;
        IF _has_children THEN
            IF _nth > 1 THEN
                -- Without targets the caller does not know how many rows to expect.
                id := NULL;
                RETURN NEXT;
            END IF;
            RETURN;
        END IF;

        IF _targets IS NOT NULL THEN
            IF cardinality(_ids) > 1 THEN
                SELECT i.* INTO _row FROM instances i WHERE i.id = _ids[_nth];
            END IF;
            -- A second target of the same instance finds that it is not parked any more.
            IF _row.status IS DISTINCT FROM 'awaiting_signal' OR _row.kind NOT IN ('machine', 'workflow')
                OR _is_answered IS NOT TRUE
                OR (_owner IS NOT NULL AND (_row.queue <> ALL (_queues) OR _row.lane <> ALL (_lanes)
                    OR _row.concurrency_key IS NOT NULL OR _row.rate_limit IS NOT NULL)) THEN
                RETURN;
            END IF;

            IF _kinds[_nth] = 'awakeable' THEN
                SELECT a.* INTO _asked FROM awakeables a WHERE a.id = _names[_nth];
                IF _asked.status IS DISTINCT FROM 'PENDING' OR _asked.instance_id <> _row.id
                    OR _asked.task_id IS NOT NULL OR _asked.timeout_at <= turn_now
                    OR (_answered_by[_nth] IS NOT NULL AND _asked.assignees IS NOT NULL AND _asked.groups IS NULL
                        AND NOT _asked.assignees::jsonb ? _answered_by[_nth]) THEN
                    RETURN;
                ELSIF _asked.schema IS NOT NULL AND _asked.schema IS DISTINCT FROM _schemas[_nth] THEN
                    unknown_schema := _asked.schema;
                    RETURN NEXT;
                    RETURN;
                END IF;
                -- Invariant 8: as `settle`.
                UPDATE awakeables AS a SET status = _statuses[_nth], payload = _answers[_nth], error = _errors[_nth],
                    answered_by = _answered_by[_nth], resolved_at = turn_now
                WHERE a.id = _asked.id;
                awakeable := json_build_array(_asked.task, _asked.entry_index, _asked.timeout_at, _asked.created_at,
                    _asked.title, _asked.description, _asked.schema, _asked.assignees, _asked.nonce, _asked.groups,
                    _asked.claimed_by, _asked.due_at)::text;
            ELSE
                IF _dedup_keys[_nth] IS NOT NULL THEN
                    PERFORM FROM inbox s WHERE s.instance_id = _row.id AND s.dedup_key = _dedup_keys[_nth];
                    IF FOUND THEN
                        RETURN;
                    END IF;
                END IF;
                awakeable := NULL;
            END IF;

            -- Invariant 4: as `insert_signals`.
            INSERT INTO inbox (instance_id, kind, name, payload, dedup_key, at)
            VALUES (_row.id, _kinds[_nth], _names[_nth], _payloads[_nth], _dedup_keys[_nth], turn_now)
            RETURNING seq INTO _seq;
            INSERT INTO events (tx, instance_id, type, data, at)
            VALUES (turn_tx, _row.id, _kinds[_nth], _events[_nth], turn_now);
        END IF;

        IF _owner IS NULL THEN
            -- As `wake`.
            UPDATE instances AS i SET status = 'runnable', since = turn_position, due_at = NULL, has_inbox_rows = true,
                updated_at = turn_now
            WHERE i.id = _row.id;
            id := _row.id;
        ELSE
            -- X2, invariant 2: as `claim`.
            UPDATE instances AS i SET status = 'executing', lease_owner = _owner,
                epoch = (i.epoch + _nonce) & 4611686018427387903, due_at = NULL,
                has_inbox_rows = (i.has_inbox_rows OR i.status <> 'runnable'), updated_at = turn_now
            WHERE i.id = _ids[_nth]
            RETURNING {i_claim} INTO {claim};
            inbox := NULL;
            IF _targets IS NOT NULL AND NOT _row.has_inbox_rows THEN
                inbox := json_build_array(json_build_array(
                    _seq, _kinds[_nth], _names[_nth], NULL, _payloads[_nth], turn_now))::text;
            ELSIF has_inbox_rows THEN
                SELECT json_agg(json_build_array(s.seq, s.kind, s.name, s.wait_id, s.payload, s.at) ORDER BY s.seq)::text
                INTO inbox FROM inbox s WHERE s.instance_id = _ids[_nth] AND s.consumed_at IS NULL;
            END IF;
        END IF;
        RETURN NEXT;
    END LOOP;
END $$;

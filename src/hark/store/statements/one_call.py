"""A whole turn as one call of a function in the database (store/schema/functions.sql)."""

from __future__ import annotations

from hark.model.activation import CLAIM_COLUMNS
from hark.store.sql import Sql

_CLAIMED = ", ".join(CLAIM_COLUMNS)

# S1, A1, M10: deliver and claim, or only claim. `now` is 0, and the function reads the clock, unless tests own it.
# `position` is the least one that the turn may have.
one_call_turn = Sql(
    """
    SELECT * FROM call_turn_v1(
        :targets::text[], :has_keys::boolean, :kinds::text[], :names::text[], :payloads::text[], :dedup_keys::text[],
        :events::text[], :statuses::text[], :answers::text[], :errors::text[], :answered_by::text[], :schemas::text[],
        :owner::text, :queues::text[], :lanes::text[], :sizes::integer[], :most::integer,
        :in_memory::text[], :call::bigint, nullif(:now::bigint, 0), :position::bigint)
    """
)

# X5: the instance that a call with one request was for, if the call has committed; by the id or the key of its target.
proof_of_call = Sql(
    """
    SELECT e.instance_id FROM events e WHERE e.instance_id = :target::text AND e.call = :call::bigint
    UNION ALL
    SELECT e.instance_id FROM instances i JOIN events e ON e.instance_id = i.id AND e.call = :call::bigint
    WHERE i.correlation_key = :target::text
    """
)

# X5: what a worker holds, as the store has it: claims of a call whose answer was lost are among it.
held = Sql(
    f"""
    SELECT {_CLAIMED}
    FROM instances WHERE lease_owner = :owner::text
    """
)

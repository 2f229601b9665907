"""Call the function that executes a whole turn (store/schema/functions.sql)."""

from __future__ import annotations

from hark.store.sql import Sql

# S1, A1, M10: deliver and claim, or only claim. `now` is 0, and the function reads the clock, unless tests own it.
# `position` is the least one that the turn may have, `base` what is added to the number of the transaction.
call_turn = Sql(
    """
    SELECT * FROM call_turn_v4(
        :targets::text[], :has_keys::boolean, :kinds::text[], :names::text[], :payloads::text[], :dedup_keys::text[],
        :events::text[], :statuses::text[], :answers::text[], :errors::text[], :answered_by::text[], :schemas::text[],
        :owner::text, :nonce::bigint, :queues::text[], :lanes::text[], :sizes::integer[], :most::integer,
        nullif(:now::bigint, 0), :position::bigint, :base::bigint)
    """
)

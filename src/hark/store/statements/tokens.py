"""Read and write API tokens."""

from __future__ import annotations

from hark.store.sql import Row, Sql


class TokenRow(Row, frozen=True):
    """A token, without its secret."""

    id: str
    name: str | None
    scopes: str
    created_at: int
    expires_at: int | None
    revoked_at: int | None


class HashedToken(TokenRow, frozen=True):
    """A token and the hash of its secret."""

    hash: str


_TOKEN = TokenRow.columns()

# X3: only the hash is stored; the secret is shown once.
insert_tokens = Sql(
    f"""
    INSERT INTO tokens (id, hash, name, scopes, expires_at, created_at)
    SELECT r.id, r.hash, r.name, r.scopes, r.expires_at, :now::bigint
    FROM {{rows: id text, hash text, name text, scopes text, expires_at bigint}}
    RETURNING {_TOKEN}
    """,
    row=TokenRow,
)

# X3: a token that was revoked before keeps its first time.
revoke_tokens = Sql(
    f"""
    UPDATE tokens SET revoked_at = coalesce(revoked_at, :now::bigint) WHERE id IN :ids[text] RETURNING {_TOKEN}
    """,
    row=TokenRow,
)

# X3: all tokens, also expired and revoked ones, for people.
read_tokens = Sql(f"SELECT {_TOKEN} FROM tokens ORDER BY created_at, id", row=TokenRow)

# X3: the tokens of these hashes, except expired and revoked ones.
live_tokens = Sql(
    f"""
    SELECT {_TOKEN}, hash FROM tokens
    WHERE hash IN :hashes[text] AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now::bigint)
    """,
    row=HashedToken,
)

# X3: one row if there is a live token.
any_live_token = Sql(
    """
    SELECT 1 FROM tokens WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now::bigint) LIMIT 1
    """
)

"""X3: two processes rotate the secret of the store at the same moment."""

import pytest

from hark.kernel.requests import RotateSecret
from tests.support.stage import Duel, Race, Stage, part, race

pytestmark = pytest.mark.asyncio(loop_scope="module")


@race(deep=True)
async def test_x3_two_concurrent_rotations_get_two_numbers_or_one_runs_again(stage: Stage) -> Race:
    await stage.eye.execute("DELETE FROM secrets")
    rotations = [RotateSecret(secret="one"), RotateSecret(secret="two")]
    first, second = yield Duel(part(rotations[0]), part(rotations[1]))
    rows = await stage.eye.fetch("SELECT number, secret FROM secrets ORDER BY number")
    again = [request.secret for request in (*first.again, *second.again)]  # type: ignore[attr-defined]
    assert sorted([*again, *(secret for _, secret in rows)]) == ["one", "two"]
    assert [number for number, _ in rows] == [1, 2][: len(rows)]

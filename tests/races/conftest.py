"""A stage with two sides for every race."""

from collections.abc import AsyncIterator, Callable

import pytest

from hark.kernel.turn import Rules
from hark.model.values import Rate
from tests.support.postgres import Postgres
from tests.support.stage import Stage, staged
from tests.support.stores import Store
from tests.support.turns import rules


@pytest.fixture
def make_rules() -> Callable[[], Rules]:
    return lambda: rules(slots={"two": 2}, rates={"rate": Rate(allowed=1, period=10)})


@pytest.fixture
async def stage(pg_store: Store, postgres: Postgres, make_rules: Callable[[], Rules]) -> AsyncIterator[Stage]:
    async with staged(pg_store, postgres, make_rules) as stage:
        yield stage

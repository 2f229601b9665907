"""A stage with two sides for every race: one per file, emptied before each test."""

import inspect
from collections.abc import AsyncIterator, Callable, Iterator

import pytest
import pytest_asyncio

from hark.kernel.rules import Rules
from hark.model.values import Rate
from tests.support.postgres import Postgres
from tests.support.stage import Stage, no_deadlock, staged
from tests.support.stores import Store, postgres_schema
from tests.support.turns import rules


@pytest.fixture(scope="module")
def make_rules() -> Callable[[], Rules]:
    return lambda: rules(slots={"two": 2}, rates={"rate": Rate(allowed=1, period=10)})


@pytest.fixture(scope="module")
def schema(postgres: Postgres) -> Iterator[Store]:
    with postgres_schema(postgres.url) as store:
        yield store


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_stage(schema: Store, make_rules: Callable[[], Rules]) -> AsyncIterator[Stage]:
    async with staged(schema, make_rules) as stage:
        yield stage


@pytest.fixture
def fates() -> Iterator[set[bool]]:
    """The fates of one side; both of them must occur in some interleaving."""
    fates: set[bool] = set()
    yield fates
    assert fates == {False, True}


@pytest.fixture
def call_turns() -> bool:
    """Whether acts are one call if they can be; see `IN_BOTH_WAYS`."""
    return False


@pytest_asyncio.fixture(loop_scope="module")
async def stage(shared_stage: Stage, postgres: Postgres, call_turns: bool) -> AsyncIterator[Stage]:
    await shared_stage.clear(whole=True)
    shared_stage.call_turns, shared_stage.in_one_call = call_turns, 0
    with no_deadlock(shared_stage, postgres):
        yield shared_stage
    assert bool(shared_stage.in_one_call) is call_turns, "the second run must differ from the first"


def pytest_itemcollected(item: pytest.Item) -> None:
    if inspect.isasyncgenfunction(getattr(item, "obj", None)):
        raise pytest.UsageError(f"{item.nodeid} would never run: a race needs @race().")

"""A6: awakeables are listed by their instance; one that does not exist is an error, as it is for events."""

import pytest

from hark import NotFound
from tests.doors.support_cli import Cli, cli
from tests.promises.support_jobs import one_task, ran
from tests.support.http import app_on, serving
from tests.support.stores import Store

__all__ = ["cli"]


async def test_a6_the_awakeables_of_an_instance_that_does_not_exist_are_an_error(store: Store) -> None:
    async with ran(store, one_task(gate="user_approval"), work=lambda task: 1, id="j-1") as (app, _):
        assert len(await app.awakeables(job="j-1")) == 1
        for missing in ("nope", "j-1.7"):
            with pytest.raises(NotFound, match=missing):
                await app.awakeables(job=missing)
            with pytest.raises(NotFound, match=missing):
                await app.events(missing)


async def test_a6_over_http_it_is_404(store: Store) -> None:
    async with serving(app_on(store), worker=False) as client:
        for path in ("/awakeables?job=nope", "/events?job=nope"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["type"]) == (404, "NotFound")
        assert (await client.get("/awakeables")).json() == {"items": [], "next": None}


def test_a6_on_the_command_line_it_is_exit_code_3(cli: Cli) -> None:
    assert "nope" in cli("awakeable", "list", "--job", "nope").error_line(3)
    assert "nope" in cli("awakeable", "list", "--job", "nope", "--json").error_line(3)

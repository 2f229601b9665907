"""D4: start with tags, and find instances, on the command line."""

import pytest

from hark import Await, Context, Hark, Machine, step
from hark.views import listing
from tests.doors.support_cli import Cli


class Order(Machine):
    @step
    async def start(self, ctx: Context) -> Await:
        return Await("go", then=self.start)


@pytest.fixture
def orders(cli: Cli) -> Cli:
    app = Hark(cli.store.url, **cli.store.options)
    app.register(Order)
    with app:
        pass  # records the definition
    for words in (
        ("a", "--tag", "tenant=a", "--key", "order:1"),
        ("b", "--tag", "tenant=a", "--tag", "plan=x=y", "--key", "order:2"),
        ("c", "--key", "cart:1"),
    ):
        assert cli("start", "Order", "--id", *words).code == 0
    return cli


def test_d4_instances_are_found_by_tags_key_and_time(orders: Cli) -> None:
    def found(*words: str) -> list[str]:
        return [one["id"] for one in orders("instance", "list", *words, "--json").json]

    shown = orders("instance", "show", "b", "--json").json
    assert shown["tags"] == {"tenant": "a", "plan": "x=y"}
    assert "tags             tenant=a plan=x=y" in orders("instance", "show", "b").out
    assert found("--tag", "tenant=a") == ["b", "a"]
    assert found("--tag", "tenant=a", "--tag", "plan=x=y") == ["b"]
    assert found("--tag", "tenant=b") == []
    assert found("--key-prefix", "order:", "--limit", "1") == ["b"]
    assert found("--key-prefix", "order:", "--after", "b") == ["a"]
    assert found("--created-after", shown["created_at"]) == ["c"]
    assert found("--created-before", shown["created_at"], "--status", "runnable") == ["a"]
    assert orders("instance", "list", "--tag", "tenant=b").out == "No such instances.\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--tag", "tenant"), "--tag tenant=a"),
        (("--tag", "=a"), "--tag tenant=a"),
        (("--tag", "a="), "--tag tenant=a"),
        (("--tag", "a=1", "--tag", "a=2"), "two values"),
        (("--created-after", "yesterday"), "2026-01-31T09:00:00Z"),
        (("--created-before", "2026-01-31"), "no time zone"),
        (("--key-prefix", ""), "empty"),
    ],
)
def test_d4_a_malformed_filter_is_a_usage_error(cli: Cli, words: tuple[str, ...], says: str) -> None:
    assert says in cli("instance", "list", *words).error_line(2)


def test_d4_a_list_is_complete_although_its_pages_end_early(orders: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "MAX_BYTES", 1)
    assert [one["id"] for one in orders("instance", "list", "--json").json] == ["c", "b", "a"]
    listed = orders("instance", "list", "--limit", "2").out
    assert listed.splitlines()[-1] == "There is more: run the same command with --after b."

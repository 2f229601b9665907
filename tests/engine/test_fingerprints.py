"""V8: a fingerprint changes with the code that is replayed, and with nothing else."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hark.engine.worker import fingerprints
from hark.engine.worker.fingerprints import fingerprint

ORDERS = '''"""Orders."""

import shop
from shop import reserve

LARGE = 10_000


async def order(ctx, item):
    """Sell an item."""
    await ctx.run(reserve, item)
    if ctx.random() > LARGE:
        await check(ctx)


async def check(ctx):
    await ctx.sleep(60)


class Cart:
    limit = 5

    async def start(self, ctx):
        return self.limit
'''
SHOP = "def reserve(item):\n    return item\n"
Read = Callable[..., dict[str, str]]


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Read]:
    """Import the modules anew, and return the fingerprints of what is in the first."""

    def read_modules(orders: str = ORDERS, shop: str = SHOP, module: str = "hark_test_orders") -> dict[str, str]:
        (tmp_path / f"{module}.py").write_text(orders)
        (tmp_path / "shop.py").write_text(shop)
        for name in (module, "shop"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        fingerprints._source.cache_clear()
        found: Any = importlib.import_module(module)
        return {name: fingerprint(getattr(found, name)) for name in ("order", "Cart")}

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield read_modules
    for name in ("hark_test_orders", "hark_test_orders_moved", "shop"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    "code",
    [
        ORDERS.replace("    await ctx.run", "    # reserves it\n\n    await ctx.run"),
        ORDERS.replace('"""Sell an item."""', '"""Sell an item, once."""').replace('"""Orders."""', ""),
        ORDERS.replace("async def order(ctx, item):", "async def order(\n    ctx,\n    item,\n):"),
        "\n\n\n" + ORDERS,
    ],
    ids=["comments and blank lines", "docstrings", "formatting", "line numbers"],
)
def test_v8_what_does_not_change_the_code_does_not_change_its_fingerprint(read: Read, code: str) -> None:
    assert code != ORDERS
    assert read(code) == read()


def test_v8_the_name_and_the_place_of_the_module_are_not_in_a_fingerprint(read: Read) -> None:
    assert read(module="hark_test_orders_moved") == read()


def test_v8_the_code_of_other_modules_is_not_in_a_fingerprint(read: Read) -> None:
    assert read(shop="def reserve(item):\n    return item.upper()\n") == read()


@pytest.mark.parametrize(
    "code",
    [
        ORDERS.replace("await ctx.run(reserve, item)", "await ctx.run(reserve, item, retries=3)"),
        ORDERS.replace("sleep(60)", "sleep(61)"),
        ORDERS.replace("LARGE = 10_000", "LARGE = 20_000"),
        ORDERS.replace("item):", "goods):").replace("reserve, item", "reserve, goods"),
        ORDERS + "\n\ndef unrelated():\n    pass\n",
        ORDERS.replace("limit = 5", "limit = 6"),
    ],
    ids=["its own code", "a helper", "a constant", "a name", "anything in its module", "an attribute of a class"],
)
def test_v8_every_change_of_code_in_its_module_changes_a_fingerprint(read: Read, code: str) -> None:
    assert code != ORDERS
    before, after = read(), read(code)
    assert before["order"] != after["order"]
    assert before["Cart"] != after["Cart"]


def test_v8_a_source_whose_parse_fails_by_chance_is_parsed_again(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11 raises SystemError if garbage is collected at the wrong moment."""
    expected, parse, failures = read(), ast.parse, [SystemError("depth mismatch")] * 3

    def parse_later(text: str) -> ast.Module:
        if failures:
            raise failures.pop()
        return parse(text)

    monkeypatch.setattr(ast, "parse", parse_later)
    assert read() == expected
    assert failures == []


def test_v8_a_source_that_is_nested_too_deeply_is_compared_by_its_compiled_code(read: Read) -> None:
    deep = f"{ORDERS}\nTEXT = {' + '.join(['LARGE'] * 1500)}\n"
    found = read(deep)
    assert read(f"# moved down\n{deep}") == found
    assert read(deep.replace("> LARGE", "< LARGE"))["order"] != found["order"]


def test_v8_fields_that_only_some_versions_of_python_have_are_not_in_a_fingerprint() -> None:
    tree = ast.parse("def f(a):\n    'text'\n    return None")
    text = "Module(body=FunctionDef(name='f'args=arguments(args=arg(arg='a'),)body=Return(value=Constant()),),)"
    assert fingerprints._dump(tree).decode() == text
    tree.body[0].type_params = []  # type: ignore[attr-defined]
    assert fingerprints._dump(tree).decode() == text


def test_v8_a_captured_value_is_part_of_a_fingerprint() -> None:
    def make(limit: int) -> Any:
        async def order(ctx: Any) -> int:
            return limit

        return order

    assert fingerprint(make(1)) == fingerprint(make(1))
    assert fingerprint(make(1)) != fingerprint(make(2))

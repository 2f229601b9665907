"""X4, before anything runs: invalid options of Hark and invalid machine classes are refused immediately."""

from datetime import timedelta
from typing import Any

import pytest

from hark import Await, Child, Context, Done, Hark, InvalidDefinition, InvalidInput, Machine, Next, Rate, Spawn, step
from hark.testing import Harness
from tests.support.stores import Store

NAN, INFINITY = float("nan"), float("inf")
URLS: dict[Any, str] = {
    "": "is not the URL of a store. Use sqlite:///file.db",
    "hark.db": "is not the URL of a store",
    "mysql://localhost/hark": "is not the URL of a store",
    "sqlite:/hark.db": "is not the URL of a store",
    "sqlite://host/hark.db": "is not a SQLite URL",
    "sqlite:///hark.db?mode=ro": "is not a SQLite URL",
    "sqlite:///hark.db#part": "is not a SQLite URL",
    "sqlite:///a\0b": "without NUL",
    5: "must be text",
    None: "must be text",
}
SECONDS: dict[Any, str] = {
    -1: "negative",
    NAN: "finite",
    INFINITY: "finite",
    "5": "must be seconds",
    None: "must be seconds",
    10**12: "100 years",
    timedelta(-1): "negative",
}
WHOLE: dict[Any, str] = dict.fromkeys([0, -1, 1.5, "5", None, True, NAN], "give a whole number from 1")
RATES: list[tuple[Any, str]] = [
    (5, "give a dict of names"),
    ([("api", Rate(1, 1))], "give a dict of names"),
    ({"api": 5}, r"rate_limits\['api'\].*Give Rate"),
    ({"api": None}, "Give Rate"),
    ({"api": {}}, "allowed.*Give Rate"),
    ({"api": {"allowed": 1}}, "period.*Give Rate"),
    ({"api": {"allowed": 1, "period": 1, "brust": 5}}, "brust.*Give Rate"),
    ({"api": {"allowed": 0, "period": 1}}, "above zero"),
    ({"api": {"allowed": NAN, "period": 1}}, "above zero"),
    ({"api": {"allowed": INFINITY, "period": 1}}, "above zero"),
    ({"api": {"allowed": "1", "period": 1}}, "above zero"),
    ({"api": {"allowed": 1, "period": -1}}, "above zero"),
    ({"api": {"allowed": 1, "period": 1, "burst": 0}}, "above zero"),
    ({"api": {"allowed": 1, "period": 1, "burst": "5"}}, "above zero"),
    ({"api": {"allowed": 1, "period": 1, "shards": 0}}, "from 1 to 1024"),
    ({"api": {"allowed": 1, "period": 1, "shards": 1.5}}, "from 1 to 1024"),
    ({"": Rate(1, 1)}, "empty"),
    ({5: Rate(1, 1)}, "must be text"),
    ({"a:b": Rate(1, 1)}, "cannot contain ':'"),
    ({"x" * 256: Rate(1, 1)}, "255 bytes"),
]
SLOTS: list[tuple[Any, str]] = [
    (5, "give a dict"),
    ([("api", 1)], "give a dict"),
    ({"api": 0}, "whole number from 1"),
    ({"api": 1.5}, "whole number from 1"),
    ({"api": "1"}, "whole number from 1"),
    ({"api": True}, "whole number from 1"),
    ({"": 1}, "empty"),
    ({"a:b": 1}, "cannot contain ':'"),
]
SCHEMAS = ["", "Hark", "1x", "a-b", 'a"b', "a b", "x" * 64, "a\n", "pg_catalog", "é", 5, None]


@pytest.mark.parametrize("url", URLS)
def test_x4_a_bad_url_is_refused_when_the_app_is_made(url: Any) -> None:
    with pytest.raises(InvalidInput, match=URLS[url]):
        Hark(url)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///hark.db", "sqlite:////tmp/a%20b.db"])
def test_x4_a_valid_url_is_accepted_and_nothing_is_opened_yet(url: str) -> None:
    assert Hark(url).url == url


@pytest.mark.parametrize("schema", SCHEMAS)
def test_x4_a_bad_schema_is_refused_when_the_app_is_made(schema: Any) -> None:
    with pytest.raises(InvalidInput, match=r"is not a valid schema name. Use lower-case"):
        Hark("postgresql://localhost/x", schema=schema)


@pytest.mark.parametrize("schema", ["hark", "_x", "a1_b", "x" * 63])
def test_x4_a_valid_schema_is_accepted(schema: str) -> None:
    assert Hark("postgresql://localhost/x", schema=schema).url == "postgresql://localhost/x"


@pytest.mark.parametrize("option", ["lease", "retention"])
def test_x4_an_option_in_seconds_is_checked(option: str) -> None:
    for value, message in SECONDS.items():
        with pytest.raises(InvalidInput, match=f"{option}.*{message}"):
            Hark("sqlite://", **{option: value})
    Hark("sqlite://", **{option: timedelta(hours=1)})


@pytest.mark.parametrize("option", ["lease", "retention"])
def test_x4_no_option_in_seconds_may_be_zero(option: str) -> None:
    with pytest.raises(InvalidInput, match="zero"):
        Hark("sqlite://", **{option: 0})


@pytest.mark.parametrize("make", [Hark, Harness])
@pytest.mark.parametrize("nats", [5, "", "http://x", {"url": "nats://x"}])
def test_x4_an_option_that_is_not_a_nats_server_is_refused(make: Any, nats: Any) -> None:
    with pytest.raises(InvalidInput, match=r"(Hark\(nats=…\)|The NATS URL is malformed): .*nats://"):
        make(url="sqlite://", nats=nats)


@pytest.mark.parametrize("option", ["max_crashes", "max_payload", "broadcast_limit"])
def test_x4_an_integer_option_is_checked(option: str) -> None:
    for value, message in WHOLE.items():
        with pytest.raises(InvalidInput, match=f"{option}=.*{message}"):
            Hark("sqlite://", **{option: value})


@pytest.mark.parametrize(("rates", "message"), RATES)
def test_x4_rate_limits_are_checked(rates: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Hark("sqlite://", rate_limits=rates)


@pytest.mark.parametrize(("slots", "message"), SLOTS)
def test_x4_concurrency_is_checked(slots: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Hark("sqlite://", concurrency=slots)


def test_x4_an_unknown_option_is_refused_by_its_name() -> None:
    with pytest.raises(TypeError, match="retension"):
        Hark("sqlite://", retension=5)  # type: ignore[call-arg]


# -- classes ---------------------------------------------------------------------------------------


def test_x4_a_next_to_an_unknown_step_is_refused_when_the_class_is_defined() -> None:
    with pytest.raises(
        InvalidDefinition, match=r"Typo: step 'start' leads to 'shipp'.* ship, start\. Correct"
    ) as refused:

        class Typo(Machine):
            @step
            async def start(self, ctx: Context) -> Next:
                return Next("shipp")

            @step
            async def ship(self, ctx: Context) -> Done:
                return Done()

    assert refused.value.problems


def test_x4_a_then_to_an_unknown_step_is_refused_when_the_class_is_defined() -> None:
    with pytest.raises(InvalidDefinition, match="leads to 'nowhere'"):

        class Typo(Machine):
            @step
            async def start(self, ctx: Context) -> Await:
                if ctx.attempt:
                    return Await("x", then="start")
                return Await("x", then="nowhere", timeout=5)


def test_x4_a_then_of_a_spawn_to_an_unknown_step_is_refused_when_the_class_is_defined() -> None:
    with pytest.raises(InvalidDefinition, match="leads to 'nowhere'"):

        class Typo(Machine):
            @step
            def start(self, ctx: Context) -> Spawn:
                return Spawn([Child("x")], "nowhere")


def test_x4_a_method_without_the_step_decorator_is_refused_when_the_class_is_defined() -> None:
    with pytest.raises(InvalidDefinition, match=r"leads to self.ship, which is not one of its steps. Is @step missing"):

        class Forgotten(Machine):
            @step
            async def start(self, ctx: Context) -> Next:
                return Next(self.ship)

            async def ship(self, ctx: Context) -> Done:
                return Done()


def test_x4_a_method_that_does_not_exist_is_refused_when_the_class_is_defined() -> None:
    with pytest.raises(InvalidDefinition, match=r"self\.shipp"):

        class Typo(Machine):
            @step
            async def start(self, ctx: Context) -> Await:
                return Await("x", then=self.shipp)


def test_x4_steps_by_their_own_names_and_inherited_ones_are_found() -> None:
    class Shared:
        @step("wrap up")
        async def end(self, ctx: Context) -> Done:
            return Done()

    class Derived(Shared, Machine):
        @step
        async def start(self, ctx: Context) -> Any:
            return Next(self.end) if ctx.attempt else Next("wrap up")

    assert set(Derived.__hark_program__.steps) == {"start", "wrap up"}


async def test_x4_a_machine_without_its_first_step_cannot_be_registered_or_started() -> None:
    class Headless(Machine):
        @step
        async def go(self, ctx: Context) -> Done:
            return Done()

    async with Hark("sqlite://") as app:
        for use in (app.register, app.start):
            with pytest.raises(InvalidDefinition, match=r"Headless: it has no initial step 'start'\..*initial="):
                use(Headless)
        assert await app.list() == []


async def test_x4_machines_share_a_base_class_whose_steps_lead_to_steps_of_their_own(store: Store) -> None:
    class Base(Machine, on_cancel="undo"):
        @step
        async def ship(self, ctx: Context) -> Any:
            return Next("finish")

        @step
        async def undo(self, ctx: Context) -> Any:
            return Done()

        def handle(self, error: Exception, ctx: Context) -> Any:
            return Done("handled by the base")

    class Order(Base):
        @step
        async def start(self, ctx: Context) -> Any:
            return Next(self.ship)

        @step
        async def finish(self, ctx: Context) -> Any:
            return Done("shipped")

    class Broken(Order):
        @step
        async def finish(self, ctx: Context) -> Any:
            raise OSError("no")

    async with Harness(Order, Broken, url=store.url, **store.options) as app:
        order, broken = await app.start(Order), await app.start(Broken)
        await app.drain()
        assert await order.result() == "shipped"
        assert await broken.result() == "handled by the base"


def test_x4_the_steps_of_a_base_class_are_checked_in_the_machine_that_inherits_them() -> None:
    class Base(Machine):
        @step
        async def ship(self, ctx: Context) -> Any:
            return Next("finish")

    with pytest.raises(InvalidDefinition, match=r"Order: step 'ship' leads to 'finish', which is not one of its steps"):

        class Order(Base):
            @step
            async def start(self, ctx: Context) -> Any:
                return Next(self.ship)


def test_x4_two_steps_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidDefinition, match=r"Twins: it has two steps named 'start'.*Rename one"):

        class Twins(Machine):
            @step
            async def start(self, ctx: Context) -> Done:
                return Done()

            @step("start")
            async def begin(self, ctx: Context) -> Done:
                return Done()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"name": ""}, InvalidInput, "empty"),
        ({"name": 5}, InvalidInput, "must be text"),
        ({"name": "x" * 256}, InvalidInput, "255 bytes"),
        ({"name": "a\0"}, InvalidInput, "NUL"),
        ({"queue": ""}, InvalidInput, "empty"),
        ({"queue": 5}, InvalidInput, "must be text"),
        ({"version": -1}, InvalidDefinition, "whole number from 0 to 2147483647"),
        ({"version": "1"}, InvalidDefinition, "whole number from 0 to 2147483647"),
        ({"version": 1.5}, InvalidDefinition, "whole number from 0 to 2147483647"),
        ({"version": True}, InvalidDefinition, "whole number from 0 to 2147483647"),
        ({"version": 2**31}, InvalidDefinition, "whole number from 0 to 2147483647"),
        ({"initial": "nope"}, InvalidDefinition, "no initial step 'nope'"),
        ({"bogus": 1}, TypeError, "keyword arguments"),
    ],
)
def test_x4_options_of_a_machine_are_checked(options: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):

        class Odd(Machine, **options):
            @step
            async def start(self, ctx: Context) -> Done:
                return Done()


async def test_x4_a_state_of_a_plain_class_is_refused_at_the_start() -> None:
    class Plain:
        pass

    class Odd(Machine, state=Plain):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done()

    async with Hark("sqlite://") as app:
        with pytest.raises(InvalidInput, match="cannot be read from JSON; use a dataclass"):
            await app.start(Odd)
        assert await app.list() == []


@pytest.mark.parametrize("state", [5, "dict"])
async def test_x4_a_state_that_cannot_be_stored_is_refused_when_it_is_registered(state: Any) -> None:
    class Odd(Machine, state=state):
        @step
        async def start(self, ctx: Context) -> Done:
            return Done()

    async with Hark("sqlite://") as app:
        with pytest.raises(InvalidDefinition, match=r"cannot be a state.*dataclass"):
            await app.start(Odd)
        assert await app.list() == []


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0", 5, None])
def test_x4_a_step_has_a_proper_name(name: Any) -> None:
    with pytest.raises((InvalidInput, InvalidDefinition), match="step"):
        step(name)


async def test_x4_two_different_definitions_of_one_name_and_version_are_refused() -> None:
    def make(result: int) -> type[Machine]:
        class Same(Machine, version=3):
            @step
            async def start(self, ctx: Context) -> Done:
                return Done(result)

        return Same

    one, two = make(1), make(2)
    async with Hark("sqlite://") as app:
        await app.register(one)
        await app.register(one)  # registering the same definition again is allowed
        with pytest.raises(InvalidDefinition, match=r"'Same' version 3 is registered twice.*name= or version="):
            app.register(two)
        with pytest.raises(InvalidDefinition):
            app.start(two)
        assert await app.list() == []

"""The registry is written by callers and read by the clerk and the lease thread, at any time."""

from hark import Context, Done, Machine, step
from hark.engine.worker.registry import Registry
from hark.programs.machines.machine import program_of


class First(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


class Second(Machine):
    @step
    async def start(self, ctx: Context) -> Done:
        return Done()


def test_a_registration_does_not_change_what_a_reader_iterates_over() -> None:
    """The clerk reads the lanes in every turn that claims; a dict that grew meanwhile would raise there."""
    registry = Registry(lambda: None)
    first, second = program_of(First), program_of(Second)
    assert first is not None
    assert second is not None
    registry.add(first)
    lanes = registry.lanes()
    reader = iter(lanes)
    registry.add(second)
    assert list(reader) == ["First@1"]
    assert list(registry.lanes()) == ["First@1", "Second@1"]
    assert registry.lanes() is registry.lanes()  # no copy per turn

"""The report of a job names the command that ends a wait."""

import pytest

from hark.model.values import WaitKind
from hark.store.reads import OpenWait
from hark.views.job_reporting import _wake


@pytest.mark.parametrize(
    ("kind", "key", "command"),
    [
        ("signal", None, "hark signal order-1 paid"),
        ("signal", "release", "hark signal release paid"),
        ("broadcast", None, "hark broadcast paid"),
        ("message", "k 1", "hark message paid 'k 1'"),
        ("awakeable", None, """hark awakeable resolve paid --payload '{"action": "approve"}'"""),
        ("timer", None, None),
        ("children", None, None),
    ],
)
def test_a_wait_is_shown_with_the_command_that_ends_it(kind: WaitKind, key: str | None, command: str | None) -> None:
    assert _wake(OpenWait("w", "order-1", "", kind, "paid", key, None, None, 0), None) == command

"""Claims for tests of programs and of the worker, without a store."""

from typing import Any

from hark.model.activation import Claim


def a_claim(**columns: Any) -> Claim:
    return Claim(**{
        **dict.fromkeys(Claim.__struct_fields__[: Claim.__struct_fields__.index("now")]),
        "id": "id", "definition": "m", "version": 1, "kind": "machine", "queue": "default", "priority": 0,
        "step": "start", "state": "{}", "attempt": 0, "epoch": 1, "counted": False, "has_inbox_rows": False, "visit": 0,
        "crashes": 0, "weight": 1.0, "lane": "m@1", **columns,
    })  # fmt: skip

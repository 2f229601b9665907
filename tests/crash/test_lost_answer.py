"""The client dies after the COMMIT and before the reply; a second client repeats the calls without a second effect."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

from tests.crash.processes import ROOT
from tests.support.inspect import query
from tests.support.stores import Store


async def test_s7_s9_m11_fault_19_a_call_repeated_after_its_reply_was_lost_has_no_second_effect(
    store: Store,
) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.crash.mayfly", store.url, json.dumps(store.options)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["held by patient", "duplicate", "duplicate", True, 2]
    assert await query(store, "SELECT count(*) FROM instances") == [(3,)]
    received = "SELECT kind, name, count(*), count(DISTINCT instance_id) FROM inbox GROUP BY kind, name ORDER BY kind"
    assert await query(store, received) == [("broadcast", "bell", 2, 2), ("signal", "word", 3, 3)]

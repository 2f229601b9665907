"""A3, A6, A7: a workflow asks, its server is killed, and the answer comes over HTTP."""

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.stores import Store

HARK = str(Path(sys.executable).parent / "hark")
CODE = """
from hark import AwakeableRejected, Hark, workflow

@workflow
async def deploy(ctx, ref: str):
    approval = await ctx.awakeable(title=f"Deploy {ref}?")
    try:
        return {"verdict": await approval}
    except AwakeableRejected as no:
        return {"refused": str(no)}

app = Hark(%r, **%r)
app.register(deploy)
"""


class Server:
    """`hark serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: asyncio.subprocess.Process
        self.http: httpx.AsyncClient

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            HARK, "serve", "--app", "shop:app", "--port", "0", cwd=self._folder, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        line = (await asyncio.wait_for(self._process.stdout.readline(), 60)).decode()
        self.http = httpx.AsyncClient(base_url=line.split()[2].rstrip(";"), timeout=30)

    async def end(self, number: int) -> int:
        await self.http.aclose()
        self._process.send_signal(number)
        return await asyncio.wait_for(self._process.wait(), 60)

    async def get(self, path: str, done: Any) -> Any:
        """Request until the condition holds."""
        async with asyncio.timeout(60):
            while not done(found := (await self.http.get(path)).json()):
                await asyncio.sleep(0.01)
        return found


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "body", "result"), [
    ("resolve", {"ok": True}, {"verdict": {"ok": True}}),
    ("reject", {"error": "not today"}, {"refused": "not today"}),
])  # fmt: skip
async def test_a7_a_question_of_a_workflow_survives_kill_9_and_is_answered_over_http(
    store: Store, tmp_path: Path, verb: str, body: Any, result: Any
) -> None:
    (tmp_path / "shop.py").write_text(CODE % (store.url, store.options | {"lease": 2.0}))
    server = Server(tmp_path)
    await server.start()
    started = await server.http.post("/instances", json={"definition": "deploy", "input": {"ref": "v1"}, "id": "d-1"})
    assert started.status_code == 201
    [question] = (await server.get("/awakeables?status=PENDING", lambda found: found["items"]))["items"]
    assert (question["title"], question["instance_id"]) == ("Deploy v1?", "d-1")
    await server.end(signal.SIGKILL)
    await server.start()
    answer = await server.http.post(f"/awakeables/{question['id']}/{verb}", json=body)
    assert answer.status_code == 200, answer.text
    done = await server.get("/instances/d-1", lambda found: found["status"] == "done")
    assert done["result"] == result
    assert await server.end(signal.SIGTERM) == 0

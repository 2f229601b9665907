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
async def test_a7_questions_of_workflows_survive_kill_9_and_are_answered_over_http(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(CODE % (store.url, store.options | {"lease": 2.0}))
    answers: dict[str, tuple[str, Any, Any]] = {
        "d-1": ("resolve", {"ok": True}, {"verdict": {"ok": True}}),
        "d-2": ("reject", {"error": "not today"}, {"refused": "not today"}),
    }
    server = Server(tmp_path)
    await server.start()
    for id in answers:
        started = await server.http.post("/instances", json={"definition": "deploy", "input": {"ref": id}, "id": id})
        assert started.status_code == 201
    asked = (await server.get("/awakeables?status=PENDING", lambda found: len(found["items"]) == 2))["items"]
    assert {one["instance_id"]: one["title"] for one in asked} == {"d-1": "Deploy d-1?", "d-2": "Deploy d-2?"}
    await server.end(signal.SIGKILL)
    await server.start()
    for question in asked:
        id = question["instance_id"]
        verb, body, result = answers[id]
        answer = await server.http.post(f"/awakeables/{question['id']}/{verb}", json=body)
        assert answer.status_code == 200, answer.text
        done = await server.get(f"/instances/{id}", lambda found: found["status"] == "done")
        assert done["result"] == result
    assert await server.end(signal.SIGTERM) == 0

"""Many processes that open the same store at the same moment: `python -m tests.crash.opener URL OPTIONS NUMBER`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback

from hark import Hark
from tests.crash.errand import Leaf


async def open_and_work(url: str, options: dict[str, str]) -> None:
    app = Hark(url, **options)
    app.register(Leaf)
    async with app, app.worker():
        await app.result(await app.start(Leaf, {"errand": os.getpid()}), timeout=60)


def main() -> int:
    url, options, number = sys.argv[1:]
    start, release = os.pipe()
    children = []
    for _ in range(int(number)):
        pid = os.fork()
        if pid == 0:
            os.close(release)
            os.read(start, 1)  # until the parent closes its end of the pipe, so that all processes start together
            try:
                asyncio.run(open_and_work(url, json.loads(options)))
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        children.append(pid)
    os.close(release)
    return sum(os.waitpid(pid, 0)[1] != 0 for pid in children)


if __name__ == "__main__":
    sys.exit(main())

"""The handlers of the order process: what its service tasks do. `hark worker --app orders:app` runs them.

The process itself is order.bpmn, drawn in any BPMN modeler. This file deploys it when it is run: `python orders.py`.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

from hark import Hark, TaskContext

app = Hark(os.environ.get("HARK_DB", "sqlite:///orders.db"))


@app.handler("reserve-stock")
async def reserve_stock(task: TaskContext) -> dict[str, Any]:
    return {"reserved": task.input["items"]}  # what a handler returns becomes variables of the process


@app.handler("release-stock")
async def release_stock(task: TaskContext) -> dict[str, Any]:
    return {"reserved": 0}


@app.handler("remind-sales")
async def remind_sales(task: TaskContext) -> None:
    print(f"sales: an order of {task.input['total']} waits for approval", flush=True)


@app.handler("ship-order")
async def ship_order(task: TaskContext) -> dict[str, Any]:
    return {"parcel": f"parcel of {task.input['reserved']}, paid {task.input['amount']}"}


async def main() -> None:
    async with app:
        for name, version in await app.deploy(Path(__file__).with_name("order.bpmn")):
            print(f"deployed {name} version {version}")


if __name__ == "__main__":
    asyncio.run(main())

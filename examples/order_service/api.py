"""The web application in front of the workflow: `uvicorn api:api`. It runs no steps; the workers do."""

from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from orders import app, order
from pydantic import BaseModel

from hark import Conflict, Duplicate, NoTarget, NotFound


@asynccontextmanager
async def lifespan(api):
    async with app:
        yield


api = FastAPI(lifespan=lifespan)
api.mount("/hark", app.asgi())  # the pages behind the links, and the HTTP API


class NewOrder(BaseModel):
    order_id: str
    item: str
    quantity: int = 1
    amount: int
    customer: str = "unknown"


class Packed(BaseModel):
    event_id: str
    order_id: str


@api.post("/orders", status_code=201)
async def place(new: NewOrder):
    """Place an order. Sent twice, it is one order: the correlation key is its identity."""
    values = new.model_dump(exclude={"customer"})
    try:
        await app.start(order, values, correlation_key=f"order:{new.order_id}", tags={"customer": new.customer})
    except Duplicate:
        raise HTTPException(409, f"Order {new.order_id} exists already.") from None
    return {"order_id": new.order_id}


@api.get("/orders/{order_id}")
async def show(order_id: str):
    try:
        found = await app.get(f"order:{order_id}")
    except NotFound:
        raise HTTPException(404, f"There is no order {order_id}.") from None
    return {"status": found.status, "progress": found.progress, "result": found.result, "error": found.error}


@api.post("/webhooks/warehouse")
async def packed(event: Packed):
    """The warehouse calls this once or several times for each order; the event id makes it count once."""
    try:
        delivery = await app.signal(f"order:{event.order_id}", "packed", dedup_key=event.event_id)
    except NoTarget:
        raise HTTPException(404, f"No order {event.order_id} waits.") from None
    return {"status": delivery.status}


@api.delete("/orders/{order_id}")
async def cancel(order_id: str):
    """Cancel an order that is not shipped yet: its payment is refunded and its stock released."""
    try:
        found = await app.cancel(f"order:{order_id}", "the customer cancelled")
    except NotFound:
        raise HTTPException(404, f"There is no order {order_id}.") from None
    except Conflict as error:
        raise HTTPException(409, f"Order {order_id} is {error.status} already.") from None
    return {"status": found.status}

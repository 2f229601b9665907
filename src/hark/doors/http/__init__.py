"""The HTTP door: the routes of docs/http.md over ASGI, mountable (`app.asgi()`) or served (`server.serve`).

    server     uvicorn and a worker in one process
    asgi       a request from its first byte to its answer; the lifespan
    guard      who is it, and may it
    routes     the table that serves, and that openapi.py describes
    parsing     what comes in: bytes, queries, shapes
    answers    what goes out: JSON, headers, the one table from errors to codes
    changes · looks · stream · metrics · pages · answer   the handlers

Nothing is decided here that the engine decides: a handler checks a shape, calls a verb and shows what it said.
"""

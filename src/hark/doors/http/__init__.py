"""The HTTP door: the routes of docs/http.md as an ASGI application, mounted (`app.asgi()`) or served (`app.serve()`).

    server          runs uvicorn and a worker in one process
    listening       listening sockets and their addresses
    connections     the limits of a connection: bytes, time, and how many there may be
    asgi            the ASGI application: one request from its first byte to its response; the lifespan
    auth            authentication: tokens, and requests from this machine
    api             the table of all routes
    routes          how a route is declared and found; the request as a handler sees it
    parsing         bodies and queries to typed values
    responses       values and errors to JSON; the table from errors to status codes
    read_routes, write_routes, stream, prometheus, home_page, answer_page   the handlers
    feed            one reader of new events for all clients of stream
    open_streams    how many clients of stream there may be; ends those whose token is not valid any more
    form            the form of the answer page: what was typed becomes an answer
    form_fields     the fields of that form, from a JSON Schema
    openapi         /openapi.json, generated from the table of routes
    schemas         the JSON Schemas in it, from the types
    examples        the examples in it

Handlers make no decisions of the engine: they validate the shape of a request, call a verb and render its result.
"""

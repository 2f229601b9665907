"""The home page of the server."""

from __future__ import annotations

from html import escape

from hark.doors.http.responses import Response, text_response
from hark.doors.http.routes import HttpRequest

_HOME = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Hark</title>
<h1>Hark</h1>
<p>Durable workflows that wait for the outside world. This is the HTTP API, for programs; it is described in
<a href="{root}/openapi.json">openapi.json</a>. It lists <a href="{root}/instances">instances</a>,
<a href="{root}/awakeables?status=PENDING">open questions</a>, <a href="{root}/waits">waits</a>,
<a href="{root}/events">events</a> and <a href="{root}/metrics">metrics</a>.</p>
"""


async def home(request: HttpRequest) -> Response:
    root = escape(request.scope.get("root_path", "").rstrip("/"), quote=True)
    return text_response(_HOME.format(root=root), "text/html; charset=utf-8")

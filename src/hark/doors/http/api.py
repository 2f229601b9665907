"""The table: every route of the API with its scope, its shapes and its codes."""

from __future__ import annotations

from typing import Any

from hark.doors.http import answer_page, home_page, openapi, prometheus, stream
from hark.doors.http import read_routes as read
from hark.doors.http import write_routes as write
from hark.doors.http.routes import Route
from hark.model.values import Instance, Why

_KEY = {"Idempotency-Key": "The dedup key: a second signal with it is a duplicate for as long as the instance is kept."}

ROUTES: list[Route] = [
    Route("GET", "/health", read.health, None, "Does the server answer, and its store?", {200: read.Health}, (503,)),
    Route("POST", "/instances", write.start, "operate", "Start an instance.", {201: Instance}, (400, 404, 409, 413),
          body=write.StartBody),
    Route("GET", "/instances", read.instances, "read", "Instances, newest first.", {200: read.Instances}, (404,),
          query=read.InstancesQuery),
    Route("GET", "/instances/{target}", read.instance, "read", "One instance, by id or correlation key.",
          {200: Instance}, (404,)),
    Route("POST", "/instances/{target}/signals/{name}", write.signal, "signal",
          "Put a signal into its inbox; the body is the payload.", {202: write.Delivered}, (400, 404, 413), body=Any,
          headers=_KEY),
    Route("POST", "/instances/{target}/cancel", write.cancel, "operate", "Cancel it and everything below it.",
          {200: Instance}, (400, 404, 409, 413), body=write.CancelBody),
    Route("POST", "/instances/{target}/retry", write.retry, "operate",
          "Run a failed one again, from its failed step.", {200: Instance}, (404, 409)),
    Route("GET", "/instances/{target}/events", read.history, "read",
          "What happened to it: the latest, newest last; `after` goes back in time.", {200: read.Events}, (404,),
          query=read.HistoryQuery),
    Route("GET", "/instances/{target}/why", read.why, "read",
          "What it waits for, what would wake it, what is in its way, and what almost woke it.", {200: Why}, (404,)),
    Route("GET", "/instances/{target}/stream", stream.stream, "read",
          "The same live, as server-sent events; 204 when it has ended and all was seen.",
          {200: "text/event-stream", 204: None}, (404,), query=stream.StreamQuery,
          headers={"Last-Event-ID": "Go on after this event; without it, from the start."}),
    Route("POST", "/signal", write.broadcast, "signal", "Broadcast: wake everybody who waits for it.",
          {200: write.Broadcasted}, (400, 413), body=write.BroadcastBody, headers=_KEY),
    Route("POST", "/message", write.message, "signal", "Give a message to the one who waits for it under a key.",
          {200: write.Messaged}, (400, 404, 413), body=write.MessageBody),
    Route("GET", "/awakeables", read.awakeables, "read", "Awakeables, newest first.", {200: read.Awakeables}, (404,),
          query=read.AwakeablesQuery),
    Route("GET", "/awakeables/{id}", read.awakeable, "read", "One awakeable.", {200: read.AwakeableView}, (404,)),
    Route("POST", "/awakeables/{id}/resolve", write.resolve, "answer", "Response it; the body is the payload.",
          {200: write.Resolved}, (400, 404, 409, 413), body=Any),
    Route("POST", "/awakeables/{id}/reject", write.reject, "answer", "Refuse it, with a reason.",
          {200: write.Rejected}, (400, 404, 409, 413), body=write.RejectBody),
    Route("GET", "/events", read.events, "read",
          "What happened, to all or to one job: the latest, newest last; `after` goes back in time.",
          {200: read.Events}, (404,), query=read.EventsQuery),
    Route("GET", "/waits", read.waits, "read", "What is waited for, longest first.", {200: read.Waits},
          query=read.WaitsQuery),
    Route("GET", "/metrics", prometheus.metrics, "read", "Metrics for Prometheus.", {200: "text/plain"}),
    Route("GET", "/openapi.json", openapi.openapi, "read", "This description.", {200: Any}),
    Route("GET", "/", home_page.home, "read", "The front page.", {200: "text/html"}),
    *answer_page.ROUTES,
]  # fmt: skip

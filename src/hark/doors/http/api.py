"""The table: every route of the API with its scope, its shapes and its codes."""

from __future__ import annotations

from typing import Any

from hark.doors.http import answer, changes, looks, metrics, openapi, pages, stream
from hark.doors.http.routes import Route
from hark.model.values import Instance, Why

_KEY = {"Idempotency-Key": "The dedup key: a second signal with it is a duplicate for as long as the instance is kept."}

ROUTES: list[Route] = [
    Route("GET", "/health", looks.health, None, "Does the server answer, and its store?", {200: looks.Health}, (503,)),
    Route("POST", "/instances", changes.start, "operate", "Start an instance.", {201: Instance}, (400, 404, 409, 413),
          body=changes.StartBody),
    Route("GET", "/instances", looks.instances, "read", "Instances, newest first.", {200: looks.Instances}, (404,),
          query=looks.InstancesQuery),
    Route("GET", "/instances/{target}", looks.instance, "read", "One instance, by id or correlation key.",
          {200: Instance}, (404,)),
    Route("POST", "/instances/{target}/signals/{name}", changes.signal, "signal",
          "Put a signal into its inbox; the body is the payload.", {202: changes.Delivered}, (400, 404, 413), body=Any,
          headers=_KEY),
    Route("POST", "/instances/{target}/cancel", changes.cancel, "operate", "Cancel it and everything below it.",
          {200: Instance}, (400, 404, 409, 413), body=changes.CancelBody),
    Route("POST", "/instances/{target}/retry", changes.retry, "operate",
          "Run a failed one again, from its failed step.", {200: Instance}, (404, 409)),
    Route("GET", "/instances/{target}/events", looks.history, "read",
          "What happened to it: the latest, newest last; `after` goes back in time.", {200: looks.Events}, (404,),
          query=looks.HistoryQuery),
    Route("GET", "/instances/{target}/why", looks.why, "read",
          "What it waits for, what would wake it, what is in its way, and what almost woke it.", {200: Why}, (404,)),
    Route("GET", "/instances/{target}/stream", stream.stream, "read",
          "The same live, as server-sent events; 204 when it has ended and all was seen.",
          {200: "text/event-stream", 204: None}, (404,), query=stream.StreamQuery,
          headers={"Last-Event-ID": "Go on after this event; without it, from the start."}),
    Route("POST", "/signal", changes.broadcast, "signal", "Broadcast: wake everybody who waits for it.",
          {200: changes.Broadcasted}, (400, 413), body=changes.BroadcastBody, headers=_KEY),
    Route("POST", "/message", changes.message, "signal", "Give a message to the one who waits for it under a key.",
          {200: changes.Messaged}, (400, 404, 413), body=changes.MessageBody),
    Route("GET", "/awakeables", looks.awakeables, "read", "Awakeables, newest first.", {200: looks.Awakeables}, (404,),
          query=looks.AwakeablesQuery),
    Route("GET", "/awakeables/{id}", looks.awakeable, "read", "One awakeable.", {200: looks.AwakeableView}, (404,)),
    Route("POST", "/awakeables/{id}/resolve", changes.resolve, "answer", "Answer it; the body is the payload.",
          {200: changes.Resolved}, (400, 404, 409, 413), body=Any),
    Route("POST", "/awakeables/{id}/reject", changes.reject, "answer", "Refuse it, with a reason.",
          {200: changes.Rejected}, (400, 404, 409, 413), body=changes.RejectBody),
    Route("GET", "/events", looks.events, "read",
          "What happened, to all or to one job: the latest, newest last; `after` goes back in time.",
          {200: looks.Events}, (404,), query=looks.EventsQuery),
    Route("GET", "/waits", looks.waits, "read", "What is waited for, longest first.", {200: looks.Waits},
          query=looks.WaitsQuery),
    Route("GET", "/metrics", metrics.metrics, "read", "Figures for Prometheus.", {200: "text/plain"}),
    Route("GET", "/openapi.json", openapi.openapi, "read", "This description.", {200: Any}),
    Route("GET", "/", pages.home, "read", "The front page.", {200: "text/html"}),
    *answer.ROUTES,
]  # fmt: skip

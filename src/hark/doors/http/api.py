"""The table of all routes: handler, scope, types and status codes of each."""

from __future__ import annotations

from typing import Any

from hark.doors.http import answer_page, home_page, openapi, prometheus, stream
from hark.doors.http import read_routes as read
from hark.doors.http import write_routes as write
from hark.doors.http.routes import Route
from hark.model.values import Instance, Why

_DEDUP_KEY = {"Idempotency-Key": "The dedup key: a second request with the same key is a duplicate and has no effect."}

ROUTES: list[Route] = [
    Route("GET", "/health", read.health, None, "Check that the server and its store respond.", {200: read.Health},
          (503,),
          id="checkHealth", tag="Server"),
    Route("POST", "/instances", write.start, "operate", "Start an instance.", {201: Instance}, (400, 404, 409, 413),
          body=write.StartBody,
          id="startInstance", tag="Instances"),
    Route("GET", "/instances", read.instances, "read", "List instances, newest first.", {200: read.Instances},
          (400, 404), query=read.InstancesQuery,
          id="listInstances", tag="Instances"),
    Route("GET", "/instances/{target}", read.instance, "read", "Read one instance, by id or correlation key.",
          {200: Instance}, (404,),
          id="getInstance", tag="Instances"),
    Route("POST", "/instances/{target}/signals/{name}", write.signal, "signal",
          "Send a signal to an instance; the body is the payload.", {202: write.Delivered}, (400, 404, 413), body=Any,
          headers=_DEDUP_KEY,
          id="signalInstance", tag="Signals"),
    Route("POST", "/instances/{target}/cancel", write.cancel, "operate",
          "Cancel an instance and its children; undo first, unless it is forced.", {200: Instance},
          (400, 404, 409, 413), body=write.CancelBody,
          id="cancelInstance", tag="Instances"),
    Route("POST", "/instances/{target}/retry", write.retry, "operate",
          "Run a failed instance again, from the step that failed.", {200: Instance}, (404, 409),
          id="retryInstance", tag="Instances"),
    Route("GET", "/instances/{target}/events", read.history, "read",
          "List the latest events of an instance, newest last; `next` goes back in time.", {200: read.Events}, (404,),
          query=read.HistoryQuery,
          id="listInstanceEvents", tag="Events"),
    Route("GET", "/instances/{target}/why", read.why, "read",
          "Explain why an instance waits: for what, what would wake it, what blocks it, and which signals missed it.",
          {200: Why}, (404,),
          id="explainInstance", tag="Instances"),
    Route("GET", "/instances/{target}/stream", stream.stream, "read",
          "Follow the events of an instance as server-sent events; 204 when it has ended and there are no more.",
          {200: "text/event-stream", 204: None}, (404,), query=stream.StreamQuery,
          headers={"Last-Event-ID": "Continue after this event; without it, from the first one."},
          id="followInstanceEvents", tag="Events"),
    Route("POST", "/signal", write.broadcast, "signal", "Broadcast to all instances that wait for this name.",
          {200: write.Broadcasted}, (400, 413), body=write.BroadcastBody, headers=_DEDUP_KEY,
          id="broadcastSignal", tag="Signals"),
    Route("POST", "/message", write.message, "signal",
          "Send a message to the instance that waits for its name and correlation key.",
          {200: write.Messaged}, (400, 404, 413), body=write.MessageBody,
          id="sendMessage", tag="Signals"),
    Route("GET", "/awakeables", read.awakeables, "read", "List awakeables, newest first.", {200: read.Awakeables},
          (404,), query=read.AwakeablesQuery,
          id="listAwakeables", tag="Awakeables"),
    Route("GET", "/awakeables/{id}", read.awakeable, "read", "Read one awakeable.", {200: read.AwakeableView}, (404,),
          id="getAwakeable", tag="Awakeables"),
    Route("POST", "/awakeables/{id}/resolve", write.resolve, "answer", "Answer an awakeable; the body is the payload.",
          {200: write.Resolved}, (400, 404, 409, 413), body=Any,
          id="resolveAwakeable", tag="Awakeables"),
    Route("POST", "/awakeables/{id}/reject", write.reject, "answer", "Reject an awakeable, with a reason.",
          {200: write.Rejected}, (400, 404, 409, 413), body=write.RejectBody,
          id="rejectAwakeable", tag="Awakeables"),
    Route("GET", "/events", read.events, "read",
          "List the latest events of all instances, or of one (`job`), newest last; `next` goes back in time.",
          {200: read.Events}, (404,), query=read.EventsQuery,
          id="listEvents", tag="Events"),
    Route("GET", "/waits", read.waits, "read", "List open waits, oldest first.", {200: read.Waits},
          query=read.WaitsQuery,
          id="listWaits", tag="Events"),
    Route("GET", "/workers", read.workers, "read", "List the worker processes, the longest running first.",
          {200: read.Workers},
          id="listWorkers", tag="Server"),
    Route("GET", "/metrics", prometheus.metrics, "read", "Read the metrics, in the format of Prometheus.",
          {200: "text/plain"},
          id="readMetrics", tag="Server"),
    Route("GET", "/openapi.json", openapi.openapi, "read", "Read this description.", {200: Any},
          id="readOpenapi", tag="Server"),
    Route("GET", "/", home_page.home, "read", "Show the home page.", {200: "text/html"},
          id="showHome", tag="Server"),
    *answer_page.ROUTES,
]  # fmt: skip

METRICS_ROUTES = [route for route in ROUTES if route.path in ("/metrics", "/health")]
"""Of a worker that serves its metrics."""

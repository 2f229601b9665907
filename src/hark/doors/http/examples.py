"""The examples of the OpenAPI document: one order that waits for its payment, and one question to a person."""

from __future__ import annotations

from typing import Any, Final

_DATABASE: Final = "sqlite"
_ORDER: Final = "o-42"
_QUESTION: Final = "prom_1by00MjoyMA"
_WAIT: Final = {
    "instance_id": _ORDER, "kind": "signal", "name": "paid", "place": "start", "deadline": "2026-03-02T09:00:00Z",
    "since": "2026-03-01T09:00:00Z",
}  # fmt: skip
_INSTANCE: Final = {
    "id": _ORDER, "definition": "Order", "kind": "machine", "version": 1, "step": "ship", "status": "awaiting_signal",
    "state": {"order": 42}, "result": None, "error": None, "attempt": 0, "queue": "default",
    "correlation_key": "order:42", "parent_id": None, "created_at": "2026-03-01T09:00:00Z", "finished_at": None,
    "waits": [_WAIT], "cancel_reason": None, "progress": {"percent": 50}, "traceback": None, "tags": {"tenant": "a"},
    "forked_from": None,
}  # fmt: skip
_EVENT: Final = {
    "seq": 2, "instance_id": _ORDER, "type": "signal", "step": None, "data": {"name": "paid", "status": "woke"},
    "at": "2026-03-01T09:30:00Z", "cursor": [18, 2],
}  # fmt: skip
_ENTRY: Final = {
    "number": 0, "kind": "run", "name": "charge", "value": {"payment": "p-7"}, "error": None,
    "at": "2026-03-01T09:00:00Z", "attempts": 1,
}  # fmt: skip
_AWAKEABLE: Final = {
    "id": _QUESTION, "instance_id": _ORDER, "task": None, "entry_index": 2, "status": "PENDING", "payload": None,
    "error": None, "timeout_at": None, "created_at": "2026-03-01T09:00:00Z", "resolved_at": None,
    "title": "Refund order 42?", "description": None, "schema": {"type": "boolean"}, "assignees": ["ann"],
    "answered_by": None, "url": None, "groups": ["managers"], "claimed_by": None, "due_at": "2026-03-08T09:00:00Z",
}  # fmt: skip
_WAITING: Final = {
    "kind": "signal", "name": "paid", "key": None, "place": "start", "since": "2026-03-01T09:00:00Z",
    "deadline": "2026-03-02T09:00:00Z", "wake": "hark signal o-42 paid", "note": None,
}  # fmt: skip
_BLOCKER: Final = {"reason": "no_worker", "text": "No worker has the code of Order@1. Start one.", "until": None}
_NEAR_MISS: Final = {
    "reason": "other_name", "kind": "signal", "name": "payed", "target": _ORDER, "at": "2026-03-01T09:20:00Z",
    "text": "A signal 'payed' arrived; it waits for 'paid'.", "count": 1,
}  # fmt: skip
_WORKER: Final = {
    "id": "w-1", "host": "app-1", "pid": 4711, "version": "0.1.0", "queues": {"default": 100}, "free": {"default": 98},
    "definitions": ["Order@1"], "handlers": ["charge"],
    "since": "2026-03-01T08:00:00Z", "lease_until": "2026-03-01T09:00:30Z", "live": True,
    "fingerprints": {"Order@1": "5f0c1d7a"},
}  # fmt: skip

_TASK_WAIT: Final = {
    "kind": "awakeable", "name": "prom_1cmVsZWFzZS0xOjA", "title": "Release it?", "deadline": None,
    "since": "2026-03-01T09:00:00Z",
    "wake": "hark awakeable resolve prom_1cmVsZWFzZS0xOjA --payload '{\"action\": \"approve\"}'",
}  # fmt: skip
_TASK: Final = {
    "name": "verify", "type": "task", "status": "suspended", "id": "release-1.1", "attempt": 1,
    "gate": "user_approval", "at_gate": True, "output": None, "error": None, "started_at": "2026-03-01T09:00:00Z",
    "finished_at": None, "waits": [_TASK_WAIT], "note": None, "only_waits": False, "is_held": False,
}  # fmt: skip
_JOB: Final = {"name": "release", "tasks": [{"name": "build", "run": "make"}]}
_VERSION: Final = {
    "name": "Order", "kind": "machine", "version": 2, "fingerprints": ["5f0c1d7a"], "retired": False, "live": 12,
    "workers": 1,
}  # fmt: skip
_SCHEDULE: Final = {
    "name": "weekly-report", "definition": "Report", "cron": "0 9 * * MON", "every": None,
    "timezone": "Europe/Berlin", "overlap": "skip", "catch_up": 1, "correlation_key": None,
    "next_at": "2026-03-09T08:00:00Z", "last_at": "2026-03-02T08:00:00Z", "last_id": _ORDER, "paused": False,
    "missed": 0, "skipped": 0, "waiting": 0, "error": None, "created_at": "2026-03-01T09:00:00Z",
}  # fmt: skip

EXAMPLES: Final[dict[str, Any]] = {
    # responses
    "Health": {"status": "ok", "store": _DATABASE, "version": "0.1.0"},
    "Instance": _INSTANCE,
    "Instances": {"items": [_INSTANCE], "next": None},
    "Wait": _WAIT,
    "Waits": {"items": [_WAIT], "next": None},
    "Event": _EVENT,
    "Events": {"items": [_EVENT], "next": "~18.2"},
    "Entry": _ENTRY,
    "Journal": {"items": [_ENTRY], "next": None},
    "Awakeable": _AWAKEABLE,
    "Awakeables": {"items": [_AWAKEABLE], "next": None},
    "WorkerInfo": _WORKER,
    "Workers": {"items": [_WORKER], "next": None},
    "Waiting": _WAITING,
    "Blocker": _BLOCKER,
    "NearMiss": _NEAR_MISS,
    "Why": {
        "id": _ORDER, "definition": "Order", "version": 1, "status": "awaiting_signal", "step": "ship",
        "correlation_key": "order:42", "since": "2026-03-01T09:00:00Z",
        "text": "It waits for the signal 'paid' and gives up in 23 h.", "waits": [_WAITING], "blockers": [_BLOCKER],
        "misses": [_NEAR_MISS], "traceback": None,
    },
    "TaskWait": _TASK_WAIT,
    "TaskReport": _TASK,
    "JobReport": {"job": _INSTANCE, "tasks": [_TASK]},
    "Deployment": {"name": "release", "version": 1},
    "Deployed": {"deployed": [{"name": "release", "version": 1}]},
    "DefinitionView": _VERSION,
    "Definitions": {"items": [_VERSION], "next": None},
    "Retired": {"name": "Order", "version": 2, "retired": True},
    "Preview": {
        "count": 12, "receivers": [_ORDER], "starts": [], "near": [], "skipped": 1,
        "problems": ["o-43: ship: version 2 has no step 'ship'"],
    },
    "Undeployed": {"undeployed": "release"},
    "Schedule": _SCHEDULE,
    "Unscheduled": {"deleted": "weekly-report"},
    "SchedulePage": {"items": [_SCHEDULE], "next": None},
    "Delivered": {"status": "woke"},
    "Broadcasted": {"DeliveredCount": 3},
    "Messaged": {"WorkflowInstanceIds": [_ORDER], "Delivered": True},
    "Resolved": {
        "awakeable_id": _QUESTION, "payload": True, "success": True, "message": "Awakeable resolved successfully",
    },
    "Rejected": {
        "awakeable_id": _QUESTION, "error": "too late", "success": True, "message": "Awakeable rejected successfully",
    },
    "Question": {
        "awakeable_id": _QUESTION, "status": "PENDING", "title": "Refund order 42?", "description": None,
        "schema": {"type": "boolean"}, "assignees": ["ann"], "timeout_at": None, "answered_by": None,
        "resolved_at": None, "payload": None, "error": None,
    },
    "FetchedTask": {
        "id": f"{_ORDER}.0", "token": f"1.{_ORDER}.0", "handler": "resize", "run_id": _ORDER, "name": "thumbnails",
        "input": {"url": "https://example.com/a.png"}, "inputs": {"url": "https://example.com/a.png"}, "attempt": 1,
        "iteration": 1, "checkpoint": None, "previous": {"page": 1}, "headers": {"size": "small"},
    },
    "TaskHeartbeat": {"cancelled": False, "until": "2026-03-01T09:01:00Z"},
    "TaskReported": {"success": True},
    # bodies
    "FetchBody": {"worker": "node-1", "handlers": ["resize"], "max": 1, "lease": 60, "wait": 30},
    "HeartbeatBody": {"token": f"1.{_ORDER}.0", "checkpoint": {"page": 3}, "details": {"percent": 50}},
    "CompleteBody": {"token": f"1.{_ORDER}.0", "output": {"width": 100}},
    "FailBody": {"token": f"1.{_ORDER}.0", "error": "The image is empty.", "retry": False},
    "ErrorBody": {"token": f"1.{_ORDER}.0", "code": "image-empty"},
    "EscalateBody": {"token": f"1.{_ORDER}.0", "code": "late", "variables": {"days": 3}},
    "StartBody": {
        "definition": "Order", "input": {"order": 42}, "correlation_key": "order:42", "tags": {"tenant": "a"},
    },
    "BroadcastBody": {"SignalName": "market-open", "Payload": {"market": "NYSE"}},
    "BroadcastCamelBody": {"signalName": "market-open", "payload": {"market": "NYSE"}},
    "MessageBody": {"MessageName": "invoice", "CorrelationKey": "order:42", "Variables": {"total": 100}, "ttl": 3600},
    "MessageCamelBody": {
        "messageName": "invoice", "correlationKey": "order:42", "variables": {"total": 100}, "ttl": 3600,
    },
    "ScheduleBody": {
        "definition": "Report", "input": {"to": "ann"}, "cron": "0 9 * * MON", "timezone": "Europe/Berlin",
    },
    "VersionBody": {"version": 2},
    "MigrateBody": {"to_version": 2, "definition": "Order", "steps": {"ship": "send"}, "preview": True},
    "ForkBody": {"at": 3, "correlation_key": "order:42 again"},
    "RejectBody": {"error": "too late"},
    "ClaimBody": {"by": "ann"},
    "CancelBody": {"reason": "ordered twice", "force": False},
    # queries
    "InstanceQuery": {"wait": 1},
    "InstancesQuery": {
        "status": "awaiting_signal", "definition": "Order", "kind": "machine", "tags": '{"tenant": "a"}',
        "key_prefix": "order:", "created_after": "2026-03-01T00:00:00Z", "created_before": "2026-03-02T00:00:00Z",
        "limit": 100, "after": _ORDER,
    },
    "AwakeablesQuery": {"job": _ORDER, "status": "PENDING", "limit": 100, "after": _QUESTION},
    "HistoryQuery": {"limit": 100, "after": "~18.2"},
    "EventsQuery": {"job": _ORDER, "limit": 50, "after": "18.2"},
    "WaitsQuery": {"name": "paid", "kind": "signal", "limit": 100, "after": "1772355600000000-o-42"},
    "SchedulesQuery": {"limit": 100, "after": "weekly-report"},
    "DeployQuery": {"ignore_extensions": False},
    "DefinitionsQuery": {"limit": 100, "after": "release", "name": "release", "all_versions": True},
    "JournalQuery": {"limit": 100, "after": "7"},
    "StreamQuery": {"after": "2"},
    "LinkQuery": {"t": "1.dG9rZW4.c2lnbmF0dXJl", "by": "ann"},
}  # fmt: skip

ARGUMENTS: Final[dict[str, tuple[str, str]]] = {
    "target": ("The id or the correlation key of an instance, percent-encoded (a `/` in it is %2F).", _ORDER),
    "id": ("The id of an awakeable.", _QUESTION),
    "definition": ("The name of a definition, percent-encoded.", "release"),
    "name": ("The name of a signal or a schedule, percent-encoded.", "paid"),
    "awakeable_id": ("The id of an awakeable.", _QUESTION),
    "file": ("The name of a file.", "answer.css"),
    "task": ("The id of a task, as the fetch returned it.", f"{_ORDER}.0"),
}
"""The parts of a path: description and example."""

HEADERS: Final = {"Idempotency-Key": "evt-7", "Last-Event-ID": "2"}

BODIES: Final[dict[str, Any]] = {
    "signalInstance": {"amount": 100}, "resolveAwakeable": True, "answerQuestion": True, "deployDefinition": _JOB,
    "setVariables": {"total": 100},
}  # fmt: skip
"""The bodies of operations that take any JSON."""

RESPONSES: Final[dict[str, Any]] = {
    "drawDefinition": "<svg xmlns='http://www.w3.org/2000/svg'></svg>",
    "drawInstance": "<svg xmlns='http://www.w3.org/2000/svg'></svg>",
    "followInstanceEvents": 'id: 2\nevent: signal\ndata: {"instance_id":"o-42","name":"paid","status":"woke"}\n\n',
    "readMetrics": 'hark_oldest_wait_seconds{kind="signal"} 1800\n',
    "readOpenapi": {"openapi": "3.1.0", "info": {"title": "Hark"}},
    "showHome": "<!doctype html>",
    "readAnswerPageFile": "body { margin: 0 }",
    "showQuestion": "<!doctype html>",
    "answerQuestion": "<!doctype html>",
    "rejectQuestion": "<!doctype html>",
}
"""The responses of operations whose response is not JSON of one type."""

ERRORS: Final[dict[int, dict[str, Any]]] = {
    400: {"error": "The JSON ends early. Send the whole text.", "type": "MalformedJson", "line": 1, "column": 12},
    401: {"error": "This request needs a token. Send `Authorization: Bearer TOKEN`.", "type": "Unauthenticated"},
    403: {"error": "This token lacks the scope 'operate'.", "type": "Forbidden"},
    404: {"error": "There is no instance 'o-42'. Check the id or key.", "type": "NotFound"},
    409: {"error": "The key 'order:42' is taken by 'o-42'.", "type": "Duplicate", "holder": _ORDER},
    413: {"error": "The payload has too many bytes.", "type": "PayloadTooLarge", "size": 2000000, "limit": 1048576},
    422: {"error": "The query has the wrong shape.", "type": "InvalidInput"},
    503: {"error": "The database does not respond. Try again.", "type": "StoreUnavailable"},
}

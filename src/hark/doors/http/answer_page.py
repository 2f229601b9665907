"""The answer page (D3): the page behind a signed link, for people and for programs.

GET shows the question and POST answers it, so an email scanner that opens the link answers nothing. The link is the
only credential: its holder may answer this one question, once, until it is settled, and sees nothing else. Every link
that does not work shows the same page, whatever the reason.

A form can only be posted from the page that it was sent with: its hidden field is a signature over the link and a
cookie of the browser (protection against CSRF). The page needs no JavaScript, and its Content-Security-Policy allows
none.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from importlib import resources
from typing import Any, Final
from urllib.parse import parse_qs

import jinja2
import msgspec

from hark.doors.errors import NoRoute
from hark.doors.http import parsing
from hark.doors.http.form import Form
from hark.doors.http.given_answer import GivenValue, given_answer, without_passwords
from hark.doors.http.responses import (
    Headers,
    Response,
    error_response,
    json_response,
    status_of,
    with_security_headers,
)
from hark.doors.http.routes import HttpRequest, Route
from hark.doors.http.write_routes import RejectBody, Rejected, Resolved, answer_body
from hark.model.errors import AlreadySettled, HarkError, InvalidAnswer, InvalidInput, NotAssigned, NotFound
from hark.model.names import is_name
from hark.model.values import Awakeable

_POLICY: Final = (
    b"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE: Final = ((b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", _POLICY))
_FILES: Final = {"answer.css": b"text/css; charset=utf-8", "icon.svg": b"image/svg+xml"}
_COOKIE: Final = b"hark_form"
_INVALID: Final = "Not sent yet. Please correct the following:"
_MAX_POSTED_FIELDS: Final = 2000  # far more than a form has


class LinkQuery(msgspec.Struct):
    """The query of a link. Other parameters are ignored: email programs add their own.

    Attributes:
        t: The token of the link. Without a valid one the response is 404.
        by: The name of the answerer, if the question has assignees.
    """

    t: str = ""
    by: str | None = None


class Question(msgspec.Struct):
    """The question behind a link, as JSON.

    Attributes:
        awakeable_id: The id of the awakeable.
        status: Whether it is open, or how it was settled.
        title: One line for the answerer, or None.
        description: More text for the answerer, or None.
        schema: The JSON Schema of the answer, or None.
        assignees: Names of those who may answer; empty means anyone with the link.
        timeout_at: When it times out, or None.
        answered_by: The answerer's name, or None.
        resolved_at: When it was settled, or None.
        payload: The answer, once it is resolved; a password in it is null.
        error: The reason, once it is rejected.
    """

    awakeable_id: str
    status: str
    title: str | None
    description: str | None
    schema: Any
    assignees: tuple[str, ...]
    timeout_at: datetime | None
    answered_by: str | None
    resolved_at: datetime | None
    payload: Any
    error: str | None


@dataclass(slots=True)
class Submission:
    """A posted form. The page shows it again when the answer is not accepted."""

    form: Form
    by: str = ""
    by_problem: str = ""
    reason: str = ""
    rejecting: bool = False


# -- handlers --------------------------------------------------------------------------------------

LinkHandler = Callable[[HttpRequest, Awakeable, str], Awaitable[Response]]


def _with_link(handler: LinkHandler) -> Callable[[HttpRequest], Awaitable[Response]]:
    """Verify the link before the handler runs. An error becomes a page for a person, JSON for a program."""

    @functools.wraps(handler)  # the OpenAPI document shows the handler's own name
    async def handle(request: HttpRequest) -> Response:
        token = _query(request).get("t", "")
        try:
            question = await request.access.linked(request.args[0], token)
            return await handler(request, question, token)
        except HarkError as error:
            if _wants_json(request):
                return error_response(error)
            match error:
                case NotFound():
                    return _message_page(404, "late", "This link does not work", _INVALID_LINK)
                case AlreadySettled():
                    return _settled_page(await request.app.awakeable(question.id), 409)
                case _:
                    heading = "This page cannot be shown" if request.is_read else "Your answer was not accepted"
                    return _message_page(status_of(error), "bad", heading, str(error))

    return handle


@_with_link
async def show(request: HttpRequest, question: Awakeable, token: str) -> Response:
    """Show the question, or how it was settled."""
    if _wants_json(request):
        return json_response(_question_json(question))
    if question.status != "PENDING":
        return _settled_page(question, 200, just_sent="sent" in _query(request))
    return _question_page(request, question, token, Submission(Form(question.schema)))


@_with_link
async def answer(request: HttpRequest, question: Awakeable, token: str) -> Response:
    """Resolve the awakeable with the posted form, or with any JSON."""
    match _content_type(request):
        case b"application/x-www-form-urlencoded":
            return await _answer_form(request, question, token)
        case b"application/json":
            payload = await answer_body(request, question.id)
            await request.app.resolve(question.id, payload, by=_answerer_in_query(request, question), via="link")
            return json_response(Resolved(question.id, payload))
        case _:
            raise InvalidInput("Send the form of the page, or the answer as application/json.")


@_with_link
async def reject(request: HttpRequest, question: Awakeable, token: str) -> Response:
    """Reject the awakeable with a reason in JSON."""
    body = await request.body_as(RejectBody)
    await request.app.reject(question.id, body.error, by=_answerer_in_query(request, question), via="link")
    return json_response(Rejected(question.id, body.error))


async def static(request: HttpRequest) -> Response:
    [name] = request.args
    if name not in _FILES:
        raise NoRoute("The answer page has no such file.")
    headers = [(b"content-type", _FILES[name]), (b"cache-control", b"public, max-age=86400")]
    return Response(200, _file(name), with_security_headers(headers))


async def _answer_form(request: HttpRequest, question: Awakeable, token: str) -> Response:
    posted = await _read_form(request)
    rejecting = _first(posted, "do") == "reject"
    by, reason = _first(posted, "by").strip(), _first(posted, "reason")
    submission = Submission(Form(question.schema), by, reason=reason, rejecting=rejecting)
    submission.form.fill(posted)
    if not request.access.verify_texts(_first(posted, "form"), "form", token, _cookie(request)):
        alert = "This page was opened again in the meantime. Please check your answer and send it again."
        return _question_page(request, question, token, submission, 403, alert)
    answerer = _answerer(question, submission.by)
    if not _may_answer(question, answerer):
        submission.by_problem = "Please choose your name."
    elif answerer is not None and not is_name(answerer):
        submission.by_problem = "This name is too long."
    value = None if rejecting else submission.form.answer()
    if submission.by_problem or submission.form.has_problems:
        return _question_page(request, question, token, submission, 422, _INVALID)
    if rejecting and submission.form.is_approval:
        # For a gate, "reject" is an answer like any other: the gate decides what follows.
        value, rejecting = {"action": "reject", **({"reason": reason} if reason.strip() else {})}, False
    try:
        if rejecting:
            await request.app.reject(question.id, reason.strip() or "rejected", by=answerer, via="link")
        else:
            await request.app.resolve(question.id, value, by=answerer, via="link")
    except InvalidAnswer as error:
        rest = submission.form.attach_problems(error.problems)
        return _question_page(request, question, token, submission, 422, _INVALID, rest)
    except InvalidInput as error:  # no answer may have this: a NUL character, or too many bytes
        return _question_page(
            request, question, token, submission, status_of(error), f"Not sent: {str(error).rstrip('.')}."
        )
    return Response(303, b"", with_security_headers([(b"location", f"?t={token}&sent=1".encode())]))


# -- reading a request -----------------------------------------------------------------------------


def _query(request: HttpRequest) -> dict[str, str]:
    """The first value of each parameter: an email program may have added its own."""
    raw = request.scope["query_string"].decode("latin-1")
    return {name: values[0] for name, values in parse_qs(raw, keep_blank_values=True).items()}


async def _read_form(request: HttpRequest) -> dict[str, list[str]]:
    # Percent-encoding makes three bytes of one.
    limit = request.access.max_payload
    raw = await parsing.read_body(
        request.receive, request.header(b"content-length"), limit, 2 * limit + parsing.ENVELOPE
    )
    try:
        return parse_qs(raw.decode(), keep_blank_values=True, max_num_fields=_MAX_POSTED_FIELDS, errors="strict")
    except ValueError as error:
        raise InvalidInput(
            "The form cannot be read: it is not UTF-8, or it has too many fields. Send the form of the page."
        ) from error


def _first(posted: Mapping[str, list[str]], name: str) -> str:
    return posted.get(name, [""])[0]


def _content_type(request: HttpRequest) -> bytes:
    return (request.header(b"content-type") or b"").partition(b";")[0].strip().lower()


def _wants_json(request: HttpRequest) -> bool:
    accept = request.header(b"accept") or b""
    return b"text/html" not in accept and (
        b"application/json" in accept or _content_type(request) == b"application/json"
    )


def _cookie(request: HttpRequest) -> str:
    """The cookie of this page. Not with `http.cookies`: it fails if any cookie of this host is malformed."""
    for part in (request.header(b"cookie") or b"").split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == _COOKIE and 16 <= len(value) <= 64:
            return value.decode("latin-1")
    return ""


def _answerer(question: Awakeable, name: str) -> str | None:
    """The name to record: the only assignee, the one of several that the person chose, or the name they typed."""
    return question.assignees[0] if len(question.assignees) == 1 else name or None


def _may_answer(question: Awakeable, answerer: str | None) -> bool:
    return not question.assignees or answerer in question.assignees


def _answerer_in_query(request: HttpRequest, question: Awakeable) -> str | None:
    by = _answerer(question, _query(request).get("by", ""))
    if not _may_answer(question, by):
        raise NotAssigned(
            f"Add the name of the answerer to the link as &by=: one of {', '.join(question.assignees)}.",
            problems=["by: is required"],
        )
    return by


# -- pages -----------------------------------------------------------------------------------------


def _question_page(
    request: HttpRequest,
    question: Awakeable,
    token: str,
    submission: Submission,
    status: int = 200,
    alert: str = "",
    rest: list[str] | None = None,
) -> Response:
    """The page with the form; `alert` and the problems of the fields say why an answer was not accepted."""
    cookie = _cookie(request) or secrets.token_urlsafe(24)
    form = submission.form
    problems: list[dict[str, str]] = [
        {"id": field.id, "label": field.label, "text": text} for field in form.all_fields() for text in field.problems
    ]
    if submission.by_problem:
        problems.append({"id": "by", "label": "Your name", "text": submission.by_problem})
    problems += [{"id": "", "label": "", "text": text} for text in rest or ()]
    return _page(
        "question.html",
        status,
        [(b"set-cookie", _set_cookie(request, cookie))],
        question=question,
        form=form,
        send="Approve" if form.is_approval else "Answer" if question.schema is None else "Send answer",
        token=token,
        signature=request.access.sign_texts("form", token, cookie),
        who={"names": question.assignees, "typed": submission.by, "problem": submission.by_problem},
        reason=submission.reason,
        rejecting=submission.rejecting,
        deadline=_deadline(question.timeout_at, datetime.now(UTC)),
        alert=alert,
        problems=problems,
    )


def _set_cookie(request: HttpRequest, cookie: str) -> bytes:
    prefix = request.scope.get("root_path", "").rstrip("/")
    secure = "; Secure" if request.scope["scheme"] == "https" else ""
    return f"{_COOKIE.decode()}={cookie}; Path={prefix}/a/; HttpOnly; SameSite=Lax{secure}".encode("latin-1")


_SETTLED: Final = {  # by status: the icon, the heading, the beginning of the text
    "RESOLVED": ("good", "Answered", "This question was answered"),
    "REJECTED": ("bad", "Rejected", "This question was rejected"),
    "TIMEOUT": ("late", "Too late", "The time to answer ended"),
    "CANCELLED": ("late", "No longer needed", "This question was withdrawn"),
}


def _settled_page(question: Awakeable, status: int, *, just_sent: bool = False) -> Response:
    icon, heading, text = _SETTLED[question.status]
    who = f" by {question.answered_by}" if question.answered_by else ""
    when = f" on {_day(question.resolved_at)}" if question.resolved_at else ""
    after = ""
    if status == 409:
        after = " Only the first answer counts, so yours was not accepted."
    elif just_sent and question.status in ("RESOLVED", "REJECTED"):
        heading, after = "Thank you", " You can close this page."
    return _message_page(status, icon, heading, f"{text}{who}{when}.{after}", question.title, _given(question))


def _given(question: Awakeable) -> list[GivenValue]:
    """The answer that was given: the holder of the link may see it, since it may be their own."""
    if question.status == "REJECTED":
        return [GivenValue("Reason", question.error)] if question.error not in (None, "", "rejected") else []
    return given_answer(question.schema, question.payload) if question.status == "RESOLVED" else []


_INVALID_LINK: Final = (
    "It may have expired, or some characters of it may be missing. Copy the whole link from the message you received, "
    "or ask the person who sent it for a new one."
)


def _message_page(
    status: int, icon: str, heading: str, text: str, title: str | None = None, answer: Sequence[GivenValue] = ()
) -> Response:
    return _page("message.html", status, icon=icon, heading=heading, text=text, title=title, answer=answer)


def _question_json(question: Awakeable) -> Question:
    return Question(
        question.id, question.status, question.title, question.description, question.schema, question.assignees,
        question.timeout_at, question.answered_by, question.resolved_at,
        without_passwords(question.schema, question.payload), question.error,
    )  # fmt: skip


def _deadline(at: datetime | None, now: datetime) -> dict[str, Any] | None:
    if at is None:
        return None
    left = at - now
    return {"text": _day(at), "iso": at.isoformat(), "left": _time_left(left), "soon": left < timedelta(hours=2)}


def _time_left(left: timedelta) -> str:
    minutes = round(left.total_seconds() / 60)
    if minutes < 1:
        return "less than a minute left"
    for size, word in ((1440, "day"), (60, "hour"), (1, "minute")):
        if minutes >= size:
            count = round(minutes / size)  # rounded: 7 days also a moment after the start of a week
            return f"{count} {word}{'s' if count > 1 else ''} left"
    raise AssertionError(minutes)


def _day(at: datetime) -> str:
    return f"{at:%A}, {at.day} {at:%B %Y, %H:%M} UTC"


# -- templates -------------------------------------------------------------------------------------


def _page(template: str, status: int, headers: Headers = (), **values: Any) -> Response:
    body = _templates().get_template(template).render(style=_style(), **values)
    return Response(status, body.encode(errors="replace"), with_security_headers([*_PAGE, *headers]))


@cache
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("hark.doors.http", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _file(name: str) -> bytes:
    return (resources.files("hark.doors.http") / "static" / name).read_bytes()


@cache
def _style() -> str:
    """The version of the stylesheet in its URL: a browser loads a new one as soon as it has changed."""
    return sha256(_file("answer.css")).hexdigest()[:12]


_HTML: Final = "text/html"
ROUTES: list[Route] = [
    Route("GET", "/a/static/{file}", static, None, "Read a file of the answer page.", {200: "text/css"}, (404,),
          id="readAnswerPageFile", tag="Links"),
    Route("GET", "/a/{awakeable_id}", show, None, "Show the question of a link, as JSON if the client accepts it.",
          {200: Question}, (404,), query=LinkQuery, alternative=_HTML,
          id="showQuestion", tag="Links"),
    Route("POST", "/a/{awakeable_id}", answer, None, "Answer it, with the form of the page or any JSON.",
          {200: Resolved}, (400, 404, 409, 413), query=LinkQuery, body=Any, alternative=_HTML,
          id="answerQuestion", tag="Links"),
    Route("POST", "/a/{awakeable_id}/reject", reject, None, "Reject it, with a reason.", {200: Rejected},
          (400, 404, 409, 413), query=LinkQuery, body=RejectBody, alternative=_HTML,
          id="rejectQuestion", tag="Links"),
]  # fmt: skip

"""The answer page (D3): what stands behind a signed link, for people and for programs.

GET shows, POST answers; a mail scanner that follows the link answers nothing. The link is the whole credential:
who has it may answer this one question, once, until it ends, and learns nothing else. A link that does not work
is one page, whatever is wrong with it.

A form can only be sent from the page that was given out with it: it carries a seal over the link and a cookie of
that browser. The page works without JavaScript, and its Content-Security-Policy allows none.
"""

from __future__ import annotations

import functools
import secrets
from collections.abc import Awaitable, Callable, Mapping
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
from hark.doors.http.responses import (
    Headers,
    Response,
    error_response,
    json_response,
    status_of,
    with_security_headers,
)
from hark.doors.http.routes import HttpRequest, Route
from hark.doors.http.write_routes import RejectBody, Rejected, Resolved
from hark.model.errors import AlreadySettled, HarkError, InvalidAnswer, InvalidInput, NotAssigned, NotFound
from hark.model.names import is_name
from hark.model.values import Awakeable

_POLICY: Final = (
    b"default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE: Final = ((b"content-type", b"text/html; charset=utf-8"), (b"content-security-policy", _POLICY))
_FILES: Final = {"answer.css": b"text/css; charset=utf-8", "icon.svg": b"image/svg+xml"}
_COOKIE: Final = b"hark_form"
_NOBODY: Final = ""  # several were asked, and this is none of them
_UNFIT: Final = "Not sent yet: something is missing or does not fit."
_FIELDS: Final = 2000  # names and values in a form, far above what one has
_SPARE: Final = 1 << 16


class LinkQuery(msgspec.Struct):
    """What a link carries; programs that send mail add things of their own, which mean nothing here."""

    t: str = ""
    by: str | None = None


class Question(msgspec.Struct):
    """What a program sees behind a link."""

    awakeable_id: str
    status: str
    title: str | None
    description: str | None
    schema: Any
    assignees: tuple[str, ...]
    timeout_at: datetime | None
    answered_by: str | None
    resolved_at: datetime | None


@dataclass(slots=True)
class Typed:
    """What came with a form besides the answer, kept when the page is shown again."""

    form: Form
    by: str = ""
    by_problem: str = ""
    reason: str = ""
    rejecting: bool = False


# -- handlers --------------------------------------------------------------------------------------

Handler = Callable[[HttpRequest, Awakeable, str], Awaitable[Response]]


def _behind_a_link(handler: Handler) -> Callable[[HttpRequest], Awaitable[Response]]:
    """Opens the link first. Whatever goes wrong is told to a person as a page, to a program as JSON."""

    @functools.wraps(handler)  # by its own name in the description of the API
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
                    return _told(404, "late", "This link does not work", _NO_LINK)
                case AlreadySettled():
                    return _settled(await request.app.awakeable(question.id), 409)
                case _:
                    return _told(status_of(error), "bad", "That did not work", str(error))

    return handle


@_behind_a_link
async def show(request: HttpRequest, question: Awakeable, token: str) -> Response:
    """The question, or who has answered it."""
    if _wants_json(request):
        return json_response(_for_programs(question))
    if question.status != "PENDING":
        return _settled(question, 200, fresh="sent" in _query(request))
    return _ask(request, question, token, Typed(Form(question.schema)))


@_behind_a_link
async def answer(request: HttpRequest, question: Awakeable, token: str) -> Response:
    """An answer: the page's form, or any JSON."""
    match _content_type(request):
        case b"application/x-www-form-urlencoded":
            return await _answer_form(request, question, token)
        case b"application/json":
            payload = await request.json_body()
            await request.app.resolve(question.id, payload, by=_named(request, question), via="link")
            return json_response(Resolved(question.id, payload))
        case _:
            raise InvalidInput("Send the page's own form, or the answer as application/json.")


@_behind_a_link
async def reject(request: HttpRequest, question: Awakeable, token: str) -> Response:
    """A refusal, as JSON."""
    wish = await request.body_as(RejectBody)
    await request.app.reject(question.id, wish.error, by=_named(request, question), via="link")
    return json_response(Rejected(question.id, wish.error))


async def static(request: HttpRequest) -> Response:
    [name] = request.args
    if name not in _FILES:
        raise NoRoute("There is no such file.")
    headers = [(b"content-type", _FILES[name]), (b"cache-control", b"public, max-age=86400")]
    return Response(200, _file(name), with_security_headers(headers))


async def _answer_form(request: HttpRequest, question: Awakeable, token: str) -> Response:
    posted = await _posted(request)
    rejecting = _one(posted, "do") == "reject"
    typed = Typed(Form(question.schema), _one(posted, "by").strip(), reason=_one(posted, "reason"), rejecting=rejecting)
    typed.form.fill(posted)
    if not request.access.is_sealed(_one(posted, "form"), "form", token, _cookie(request)):
        alert = "Please check your answer and send it again: this page was opened anew in the meantime."
        return _ask(request, question, token, typed, 403, alert)
    by = _name(question, typed.by)
    if by is _NOBODY or not (by is None or is_name(by)):
        typed.by_problem = "Please say who you are." if by is _NOBODY else "This name is too long."
    value = None if rejecting else typed.form.answer()
    if typed.by_problem or typed.form.has_problems:
        return _ask(request, question, token, typed, 422, _UNFIT)
    if rejecting and typed.form.is_approval:
        # Rejected is an answer here, and the gate's to act on.
        value, rejecting = {"action": "reject", **({"reason": typed.reason} if typed.reason.strip() else {})}, False
    try:
        if rejecting:
            await request.app.reject(question.id, typed.reason.strip() or "rejected", by=by, via="link")
        else:
            await request.app.resolve(question.id, value, by=by, via="link")
    except InvalidAnswer as error:
        return _ask(request, question, token, typed, 422, _UNFIT, typed.form.attach_problems(error.problems))
    except InvalidInput as error:  # what no answer may contain, a NUL for one, or too much of it
        return _ask(request, question, token, typed, status_of(error), f"Not sent: {error}.")
    return Response(303, b"", with_security_headers([(b"location", f"?t={token}&sent=1".encode())]))


# -- what comes in ---------------------------------------------------------------------------------


def _query(request: HttpRequest) -> dict[str, str]:
    """The first of each: a mail program may have added its own."""
    raw = request.scope["query_string"].decode("latin-1")
    return {name: values[0] for name, values in parse_qs(raw, keep_blank_values=True).items()}


async def _posted(request: HttpRequest) -> dict[str, list[str]]:
    # Percent-encoding makes three bytes of one.
    limit = request.access.max_payload
    raw = await parsing.read_body(request.receive, request.header(b"content-length"), limit, 2 * limit + _SPARE)
    try:
        return parse_qs(raw.decode(), keep_blank_values=True, max_num_fields=_FIELDS, errors="strict")
    except ValueError as error:
        raise InvalidInput("This form cannot be read: it is not UTF-8, or has too many fields.") from error


def _one(posted: Mapping[str, list[str]], name: str) -> str:
    return posted.get(name, [""])[0]


def _content_type(request: HttpRequest) -> bytes:
    return (request.header(b"content-type") or b"").partition(b";")[0].strip().lower()


def _wants_json(request: HttpRequest) -> bool:
    accept = request.header(b"accept") or b""
    return b"text/html" not in accept and (
        b"application/json" in accept or _content_type(request) == b"application/json"
    )


def _cookie(request: HttpRequest) -> str:
    """Ours among those of everything else on this host; not `http.cookies`, which gives up at the first odd one."""
    for part in (request.header(b"cookie") or b"").split(b";"):
        name, _, value = part.strip().partition(b"=")
        if name == _COOKIE and 16 <= len(value) <= 64:
            return value.decode("latin-1")
    return ""


def _name(question: Awakeable, given: str) -> str | None:
    """Who answers: the one who was asked, one of those who were, or whoever they say they are."""
    names = question.assignees
    if len(names) == 1:
        return names[0]
    return _NOBODY if names and given not in names else given or None


def _named(request: HttpRequest, question: Awakeable) -> str | None:
    by = _name(question, _query(request).get("by", ""))
    if by is _NOBODY:
        raise NotAssigned(
            f"Say who answers with &by=: one of {', '.join(question.assignees)}.", problems=["by: is required"]
        )
    return by


# -- what goes out ---------------------------------------------------------------------------------


def _ask(
    request: HttpRequest,
    question: Awakeable,
    token: str,
    typed: Typed,
    status: int = 200,
    alert: str = "",
    rest: list[str] | None = None,
) -> Response:
    cookie = _cookie(request) or secrets.token_urlsafe(24)
    wrong: list[dict[str, str]] = [
        {"id": one.id, "label": one.label, "text": text} for one in typed.form.all_fields() for text in one.problems
    ]
    if typed.by_problem:
        wrong.append({"id": "by", "label": "Your name", "text": typed.by_problem})
    wrong += [{"text": text} for text in rest or ()]
    return _page(
        "question.html",
        status,
        [(b"set-cookie", _bake(request, cookie))],
        question=question,
        form=typed.form,
        send="Approve" if typed.form.is_approval else "Answer" if question.schema is None else "Send answer",
        token=token,
        seal=request.access.seal("form", token, cookie),
        who={"names": question.assignees, "typed": typed.by, "problem": typed.by_problem},
        reason=typed.reason,
        rejecting=typed.rejecting,
        due=_due(question.timeout_at, datetime.now(UTC)),
        alert=alert,
        wrong=wrong,
    )


def _bake(request: HttpRequest, cookie: str) -> bytes:
    place = request.scope.get("root_path", "").rstrip("/")
    secure = "; Secure" if request.scope["scheme"] == "https" else ""
    return f"{_COOKIE.decode()}={cookie}; Path={place}/a/; HttpOnly; SameSite=Lax{secure}".encode("latin-1")


_ENDS: Final = {
    "RESOLVED": ("good", "Answered", "This was answered"),
    "REJECTED": ("bad", "Rejected", "This was rejected"),
    "TIMEOUT": ("late", "Too late", "The time to answer ended"),
    "CANCELLED": ("late", "Not needed any more", "This was withdrawn"),
}


def _settled(question: Awakeable, status: int, *, fresh: bool = False) -> Response:
    mood, heading, text = _ENDS[question.status]
    who = f" by {question.answered_by}" if question.answered_by else ""
    when = f" on {_day(question.resolved_at)}" if question.resolved_at else ""
    after = ""
    if status == 409:
        after = " Only the first answer counts, so yours was not taken."
    elif fresh and question.status in ("RESOLVED", "REJECTED"):
        heading, after = "Thank you", " You can close this page."
    return _page(
        "message.html", status, mood=mood, heading=heading, title=question.title, text=f"{text}{who}{when}.{after}"
    )


_NO_LINK: Final = (
    "It may be over, or have lost a few characters on its way. Copy all of it from the message you got, "
    "or ask whoever sent it for a new one."
)


def _told(status: int, mood: str, heading: str, text: str, title: str | None = None) -> Response:
    return _page("message.html", status, mood=mood, heading=heading, text=text, title=title)


def _for_programs(question: Awakeable) -> Question:
    return Question(
        question.id, question.status, question.title, question.description, question.schema, question.assignees,
        question.timeout_at, question.answered_by, question.resolved_at,
    )  # fmt: skip


def _due(at: datetime | None, now: datetime) -> dict[str, Any] | None:
    if at is None:
        return None
    left = at - now
    return {"text": _day(at), "machine": at.isoformat(), "left": _left(left), "soon": left < timedelta(hours=2)}


def _left(left: timedelta) -> str:
    minutes = round(left.total_seconds() / 60)
    if minutes < 1:
        return "less than a minute left"
    for size, word in ((1440, "day"), (60, "hour"), (1, "minute")):
        if minutes >= size:
            count = round(minutes / size)  # a week is 7 days also a moment later
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
    """Changes when the stylesheet does, so that no browser keeps an old one."""
    return sha256(_file("answer.css")).hexdigest()[:12]


_HTML: Final = "text/html"
ROUTES: list[Route] = [
    Route("GET", "/a/static/{file}", static, None, "A file of the answer page.", {200: "text/css"}, (404,)),
    Route("GET", "/a/{awakeable_id}", show, None, "A question behind a signed link; JSON when asked for.",
          {200: Question}, (404,), query=LinkQuery, alternative=_HTML),
    Route("POST", "/a/{awakeable_id}", answer, None, "Response it: the page's form, or any JSON as the payload.",
          {200: Resolved}, (400, 404, 409, 413), query=LinkQuery, body=Any, alternative=_HTML),
    Route("POST", "/a/{awakeable_id}/reject", reject, None, "Refuse it, with a reason.", {200: Rejected},
          (400, 404, 409, 413), query=LinkQuery, body=RejectBody, alternative=_HTML),
]  # fmt: skip

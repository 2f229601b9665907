"""X3, fault 68: requests from this machine need no credential, but a web page, a rebound name or a proxy gets 403."""

from collections.abc import AsyncIterator

import httpx
import pytest

from hark import Hark, InvalidInput
from hark.doors.http.auth import is_loopback
from tests.support.http import app_on, ask, serving
from tests.support.stores import Store


@pytest.fixture
async def http(sqlite_store: Store) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(app_on(sqlite_store), worker=False) as client:
        await ask(sqlite_store, "prom_1")
        yield client


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:99", "127.0.0.1", "127.1.2.3:80", "[::1]:4097", "localhost:1"]
)
async def test_fault_68_a_loopback_host_is_accepted(http: httpx.AsyncClient, host: str) -> None:
    assert (await http.get("/instances", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "localhost.evil.example", "evil.localhost", "127.0.0.1.nip.io", "10.0.0.1", "0.0.0.0", "[::]",
     "[::ffff:10.0.0.1]", "2130706433", "0x7f.1", "localhost:80:80", "user@localhost", "", "::1"],
)  # fmt: skip
@pytest.mark.parametrize("path", ["/health", "/instances", "/nowhere", "/"])
async def test_fault_68_any_other_host_is_403(http: httpx.AsyncClient, host: str, path: str) -> None:
    answer = await http.get(path, headers={"Host": host})
    assert answer.status_code in (400, 403), answer.text
    assert answer.status_code == 403 or not host


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "whatever"},
        {"Forwarded": "for=1.2.3.4"},
        {"X-Forwarded-For": "1.2.3.4"},
        {"X-Forwarded-Host": "localhost"},
        {"X-Real-IP": "1.2.3.4"},
        {"Via": "1.1 proxy"},
    ],
    ids=str,
)
async def test_fault_68_a_request_caused_by_a_foreign_page_or_a_proxy_is_403_and_changes_nothing(
    http: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    for method, path in (("GET", "/instances"), ("POST", "/awakeables/prom_1/resolve"), ("GET", "/health")):
        answer = await http.request(method, path, headers=headers)
        assert answer.status_code == 403
        assert answer.json()["error"]
        assert "access-control-allow-origin" not in answer.headers
    assert (await http.get("/awakeables/prom_1")).json()["status"] == "PENDING"


async def test_x3_a_form_on_another_site_answers_nothing(http: httpx.AsyncClient) -> None:
    """What a browser sends for <form method=post enctype=text/plain>: no preflight, but an Origin."""
    headers = {"Origin": "http://evil.example", "Content-Type": "text/plain", "Sec-Fetch-Site": "cross-site"}
    answer = await http.post("/awakeables/prom_1/resolve", content=b'{"action":"approve","x":"="}', headers=headers)
    assert answer.status_code == 403
    preflight = await http.options("/awakeables/prom_1/resolve", headers={"Origin": "http://evil.example"})
    assert preflight.status_code == 403


async def test_x3_a_page_of_this_server_is_accepted(http: httpx.AsyncClient) -> None:
    own = f"http://127.0.0.1:{http.base_url.port}"
    for headers in ({"Origin": own, "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}):
        assert (await http.get("/instances", headers=headers)).status_code == 200
    assert (await http.post("/awakeables/prom_1/resolve", headers={"Origin": own})).status_code == 200


async def test_x3_every_response_has_the_security_headers(http: httpx.AsyncClient) -> None:
    for path in ("/", "/health", "/instances", "/nowhere", "/metrics", "/openapi.json", "/a/prom_1?t=x"):
        headers = (await http.get(path)).headers
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["cache-control"] == "no-store"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        if headers["content-type"].startswith("text/html"):
            assert (headers["referrer-policy"], headers["x-frame-options"]) == ("no-referrer", "DENY")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "server" not in headers


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_x3_a_server_on_another_address_refuses_to_start_without_tokens(sqlite_store: Store, host: str) -> None:
    with pytest.raises(InvalidInput, match="token"):
        async with serving(app_on(sqlite_store), host=host):
            pass


@pytest.mark.parametrize(
    ("host", "near"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("[::1]", True), ("localhost", True), ("LocalHost", True),
     ("0.0.0.0", False), ("::", False), ("localhost.", False), ("a.localhost", False), ("", False)],
)  # fmt: skip
def test_x3_what_counts_as_loopback(host: str, near: bool) -> None:
    assert is_loopback(host) is near


async def test_x3_a_bad_authorization_is_401_also_over_loopback(http: httpx.AsyncClient) -> None:
    for value in ("Bearer hark_nobody", "Bearer", "Basic dTpw", "hark_x", "Bearer é".encode()):
        answer = await http.get(
            "/instances", headers=[(b"Authorization", value if isinstance(value, bytes) else value.encode())]
        )
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert "hark_nobody" not in answer.text


async def test_a_port_that_is_taken_is_refused_with_a_reason(http: httpx.AsyncClient, sqlite_store: Store) -> None:
    with pytest.raises(InvalidInput, match="Cannot listen on"):
        await Hark(sqlite_store.url).serve(port=http.base_url.port or 0)
    for port in (-1, 65536, True):
        with pytest.raises(InvalidInput, match="port"):
            await Hark(sqlite_store.url).serve(port=port)

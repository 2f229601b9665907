"""J10: credentials are taken from the URL or from options, and are never shown."""

import base64
import hashlib
import json
import logging
import os
import re
import ssl
from pathlib import Path
from typing import Any

import nkeys
import pytest

from hark import Hark, InvalidInput, Nats
from hark.engine.nats.connection import Connection
from hark.engine.nats.report import read_report
from hark.model.nats import NatsReport, at_url
from tests.nats.support import Collector, until_collected, until_reader
from tests.support.inspect import until
from tests.support.nats_client import plain_client
from tests.support.nats_server import NatsServer
from tests.support.stores import Store

FILES = Path(__file__).parent / "files"
REFUSED = "the server refuses these credentials"
PASSWORD = "hunter2/@:?"
ESCAPED = "hunter2%2F%40%3A%3F"
USERS = f'authorization {{ users: [{{ user: "hark", password: {json.dumps(PASSWORD)} }}] }}\n'
TOKEN = 'authorization { token: "hunter2token" }\n'
TLS = f'tls {{ cert_file: "{FILES / "certificate.pem"}", key_file: "{FILES / "key.pem"}" }}\n'


def seed(prefix: int) -> str:
    return str(nkeys.encode_seed(os.urandom(32), prefix).decode())


def public(of: str) -> str:
    return str(nkeys.from_seed(bytearray(of.encode())).public_key.decode())


def jwt(issuer: str, subject: str, kind: str, **claims: Any) -> str:
    """A token as NATS has them: signed with the nkey of the issuer."""

    def part(data: Any) -> str:
        raw = data if isinstance(data, bytes) else json.dumps(data).encode()
        return base64.urlsafe_b64encode(raw).decode().rstrip("=")

    body = {
        "iss": public(issuer),
        "sub": subject,
        "name": kind,
        "iat": 1,
        "nats": {"type": kind, "version": 2, **claims},
    }
    body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).decode().rstrip("=")
    text = f"{part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{part(body)}"
    return f"{text}.{part(nkeys.from_seed(bytearray(issuer.encode())).sign(text.encode()))}"


async def connects(store: Store, server: NatsServer, nats: str | Nats) -> Hark:
    app = Hark(store.url, **store.options, nats=nats)
    async with app:
        await until_reader(app)
    return app


@pytest.mark.parametrize("how", ["url", "options"])
@pytest.mark.parametrize(
    ("config", "user", "options"),
    [
        (USERS, f"hark:{ESCAPED}", {"user": "hark", "password": PASSWORD}),
        (TOKEN, "hunter2token", {"token": "hunter2token"}),
    ],
    ids=["password", "token"],
)
async def test_j10_a_password_or_token_is_accepted_in_the_url_and_as_an_option_and_is_never_shown(
    sqlite_store: Store,
    tmp_path: Path,
    how: str,
    config: str,
    user: str,
    options: dict[str, str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    with NatsServer(tmp_path, config=config) as server:
        place = server.url.removeprefix("nats://")
        nats = Nats(f"nats://{user}@{place}") if how == "url" else Nats(server.url, **options)  # type: ignore[arg-type]
        await connects(sqlite_store, server, nats)
        wrong = Nats(f"nats://hark:hunter2wrong@{place}")
        app = Hark(sqlite_store.url, nats=wrong)
        async with app:
            await until(lambda: REFUSED in caplog.text, "the log to say so", 30)
        report = await read_report(wrong)
    assert report.problem == f"{REFUSED}. Check the user and the password"
    assert "hunter2" not in "".join(map(repr, (caplog.text, nats, wrong, report)))


async def test_j10_an_nkey_is_accepted(sqlite_store: Store, tmp_path: Path) -> None:
    mine = seed(nkeys.PREFIX_BYTE_USER)
    config = f"authorization {{ users: [{{ nkey: {public(mine)} }}] }}\n"
    with NatsServer(tmp_path, config=config) as server:
        nats = Nats(server.url, nkey_seed=mine)
        await connects(sqlite_store, server, nats)
        assert mine not in repr(nats)
        report = await read_report(Nats(server.url, nkey_seed=seed(nkeys.PREFIX_BYTE_USER)))
        assert REFUSED in (report.problem or "")


async def test_j10_a_credentials_file_is_accepted(sqlite_store: Store, tmp_path: Path) -> None:
    operator, account, user = (
        seed(prefix) for prefix in (nkeys.PREFIX_BYTE_OPERATOR, nkeys.PREFIX_BYTE_ACCOUNT, nkeys.PREFIX_BYTE_USER)
    )
    system = public(seed(nkeys.PREFIX_BYTE_ACCOUNT))
    names = (
        "mem_storage",
        "disk_storage",
        "streams",
        "consumer",
        "conn",
        "subs",
        "data",
        "payload",
        "imports",
        "exports",
    )
    limits = dict.fromkeys(names, -1)
    account_token = jwt(operator, public(account), "account", limits=limits)
    system_token = jwt(operator, system, "account", limits={**limits, "mem_storage": 0, "disk_storage": 0})
    config = (
        f"operator: {jwt(operator, public(operator), 'operator')}\nsystem_account: {system}\nresolver: MEMORY\n"
        f"resolver_preload {{ {public(account)}: {account_token}, {system}: {system_token} }}\n"
    )
    file = tmp_path / "hark.creds"
    token = jwt(account, public(user), "user", subs=-1, data=-1, payload=-1)
    file.write_text(
        f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user}\n------END USER NKEY SEED------\n"
    )
    with NatsServer(tmp_path, config=config) as server:
        await connects(sqlite_store, server, Nats(server.url, credentials=file))
        file.write_text("hunter2\n")
        report = await read_report(Nats(server.url, credentials=file))
        assert "is not a .creds file" in (report.problem or "")
        assert "hunter2" not in (report.problem or "")
        file.write_text(
            f"-----BEGIN NATS USER JWT-----\n{token}\n------END NATS USER JWT------\n\n"
            "-----BEGIN USER NKEY SEED-----\nSUhunter2\n------END USER NKEY SEED------\n"
        )
        report = await read_report(Nats(server.url, credentials=file))
        assert "is not a .creds file" in (report.problem or "")
        assert "hunter2" not in (report.problem or "")


async def test_j10_a_server_with_tls_is_trusted_by_the_context_that_is_given(
    sqlite_store: Store, tmp_path: Path
) -> None:
    trusting = ssl.create_default_context(cafile=str(FILES / "certificate.pem"))
    with NatsServer(tmp_path, config=TLS) as server:
        await connects(sqlite_store, server, Nats(server.url.replace("nats://", "tls://"), tls=trusting))
        report = await read_report(Nats(server.url.replace("nats://", "tls://")))
        assert "certificate verify failed" in (report.problem or "").lower()


PERMISSIONS = re.compile(r"^\| (publish|subscribe) \| (.+) \|$", re.MULTILINE)


async def test_j10_a_user_with_the_permissions_of_the_guide_can_do_everything(
    sqlite_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    guide = (Path(__file__).parents[2] / "docs" / "nats.md").read_text("utf-8")
    allowed = {verb: re.findall("`([^`]+)`", subjects) for verb, subjects in PERMISSIONS.findall(guide)}
    assert set(allowed) == {"publish", "subscribe"}
    users = [
        {"user": "hark", "password": "x", "permissions": allowed},
        {"user": "other", "password": "x"},
        {"user": "less", "password": "x", "permissions": {"publish": ["_INBOX.>"], "subscribe": ["_INBOX.>"]}},
    ]
    with NatsServer(tmp_path, config=f"authorization {{ users: {json.dumps(users)} }}\n") as server:
        app = Hark(sqlite_store.url, nats=Nats(server.url, user="hark", password="x", keep=0, wake_ups=True))
        app.register(Collector)
        async with app, plain_client(server.url, "signals", user="other", password="x") as client:
            instance = await app.start(Collector)
            seen = await client.subscribe("$KV.signals.>")  # a watcher could miss what is removed at once
            await until_reader(app)
            await client.put(f"{instance.id}.s", "1")
            await app.signal(instance, "s", 2)
            assert sorted(await until_collected(sqlite_store, instance, 2)) == [1, 2]
            await until(lambda: len(seen) >= 2, "both on NATS", 30)

            async def is_empty() -> bool:
                return bool((await client.state()).messages == 0)

            await until(is_empty, "what was read to be removed", 30)
        monkeypatch.setitem(Connection.request.__kwdefaults__, "timeout", 1.0)
        report = await read_report(Nats(server.url, user="less", password="x"))
        assert report.problem == (
            'the user may not publish to "$JS.API.STREAM.INFO.KV_signals". Give the user the permissions in '
            "docs/nats.md"
        )


@pytest.mark.parametrize(
    "url", ["", " ", "http://hark:hunter2@h", "nats://hark:hunter2@", "nats://h:hunter2", "nats://h/hunter2", 5]
)
def test_j10_a_malformed_url_is_refused_without_being_shown(url: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        Hark("sqlite://", nats=url)
    assert "hunter2" not in str(caught.value)
    assert "nats://" in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("", "it is empty"),
        ("nats://a,", "an item of the list is empty"),
        ("http://a", "the scheme"),
        ("nats://a:0", "the port"),
        ("nats://a:99999", "the port"),
        ("nats://a:x", "the port"),
        ("nats://:4222", "no host"),
        ("nats://a b", "a space"),
        ("nats://[a", "the host"),
        ("nats://a/b", "behind the host"),
        ("nats://:secret@a", "the password has no user"),
        ("nats://u:p@a,nats://v:p@b", "different credentials"),
    ],
)
def test_j10_an_error_says_which_part_of_a_url_is_wrong(url: str, part: str) -> None:
    with pytest.raises(InvalidInput, match=part):
        Nats(url)


SEED = seed(nkeys.PREFIX_BYTE_USER)


@pytest.mark.parametrize(
    ("url", "options", "expected"),
    [
        ("nats://hark@h", {"password": "pw"}, ("hark", "pw", None)),
        ("nats://hark:pw@h", {"user": "hark"}, ("hark", "pw", None)),
        ("nats://hark:pw@h", {"user": "hark", "password": "pw"}, ("hark", "pw", None)),
        ("nats://hark:@h", {}, ("hark", "", None)),
        ("nats://t@h", {}, (None, None, "t")),
        ("nats://t@h", {"token": "t"}, (None, None, "t")),
        ("nats://hark:pw@a,nats://b", {}, ("hark", "pw", None)),
    ],
)
def test_j10_what_the_options_leave_out_is_taken_from_the_url(
    url: str, options: dict[str, Any], expected: tuple[str | None, ...]
) -> None:
    found = Nats(url, **options)
    assert (found.user, found.password, found.token) == expected


@pytest.mark.parametrize(
    ("url", "options", "why"),
    [
        ("nats://hark:pw@h", {"user": "other"}, "the user in the URL"),
        ("nats://hark:pw@h", {"password": "other"}, "the password in the URL"),
        ("nats://hark@h", {"user": "hark"}, "no password"),
        ("h", {"user": "hark"}, "no password"),
        ("h", {"password": "pw"}, "no user"),
        ("h", {"user": "hark", "password": "pw", "token": "t"}, "user and token"),
        ("nats://hark:pw@h", {"token": "t"}, "user and token"),
        ("h", {"token": "t", "nkey_seed": SEED}, "token and nkey_seed"),
        ("h", {"user": "hark", "password": b"hunter2"}, "give text"),
        ("h", {"nkey_seed": "SUhunter2"}, "not the seed"),
        ("h", {"nkey_seed": SEED[:-1]}, "not the seed"),
        ("h", {"nkey_seed": SEED[:-1] + ("A" if SEED[-1] != "A" else "Q")}, "not the seed"),
        ("h", {"nkey_seed": seed(nkeys.PREFIX_BYTE_ACCOUNT)}, "not the seed"),
        ("h", {"nkey_seed": "SUhünter2"}, "not the seed"),
        ("h", {"nkey_seed": b"SUhunter2"}, "not the seed"),
        ("h", {"credentials": "/nowhere/missing.creds"}, "missing.creds'.: the file does not exist"),
        ("h", {"credentials": "/tmp"}, "is a directory"),
        ("h", {"credentials": 5}, "give the path"),
        ("ws://h", {"tls": ssl.create_default_context()}, "wss://"),
    ],
)
def test_j10_incomplete_or_contradictory_credentials_are_refused_and_not_dropped(
    url: str, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidInput, match=why) as caught:
        Nats(url, **options)
    assert "hunter2" not in str(caught.value)


def test_j10_a_sound_seed_is_accepted() -> None:
    for _ in range(20):
        Nats("h", nkey_seed=seed(nkeys.PREFIX_BYTE_USER))


@pytest.mark.parametrize("options", [{"bucket": "a.b"}, {"bucket": ""}, {"keep": -1}, {"bucket": 5}])
def test_j10_malformed_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Nats("nats://localhost", **options)


def test_j10_the_parts_of_a_url() -> None:
    assert Nats("localhost").servers == ("nats://localhost:4222",)
    assert Nats("nats://a, tls://[::1]:5").servers == ("nats://a:4222", "tls://[::1]:5")
    assert Nats("ws://a,ws://b:1").servers == ("ws://a:80", "ws://b:1")
    assert repr(Nats("nats://hark:hunter2@a")) == "Nats('nats://a:4222', bucket='signals')"
    other = at_url(Nats("nats://u:p@a", bucket="b", keep=5), "nats://c")
    assert (other.servers, other.user, other.password, other.bucket, other.keep) == (
        ("nats://c:4222",),
        "u",
        "p",
        "b",
        5,
    )
    assert at_url(Nats("nats://u:p@a"), "nats://t@c").token == "t"
    assert at_url(Nats("nats://a", nkey_seed=SEED), "nats://t@c").nkey_seed is None
    assert at_url(Nats("nats://a", nkey_seed=SEED), "nats://c").nkey_seed == SEED
    assert NatsReport("a", "b").problem is None

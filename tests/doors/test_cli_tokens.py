"""X3, D4: tokens on the command line, on both stores, and what they open on a server."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from hark.model.decisions import Arm
from tests.doors.support_cli import Desk, call, place
from tests.doors.test_cli_server import serving
from tests.support.stores import sqlite_file


def test_x3_a_token_is_made_listed_and_revoked(services: Desk) -> None:
    assert services("token", "list").out == "No tokens.\n"
    made = services("token", "create", "--scope", "read", "--scope", "answer", "--name", "ann", "--expires", "90d")
    assert made.code == 0
    secret = made.out.strip()
    assert secret.startswith("hark_")
    [token] = services("token", "list", "--json").json
    assert (token["name"], token["scopes"]) == ("ann", ["read", "answer"])
    left = datetime.fromisoformat(token["expires_at"]) - datetime.now(UTC)
    assert 89 <= left.days <= 90
    assert f"hark token revoke {token['id']}" in made.err
    assert secret not in services("token", "list").out + services("token", "list", "--json").out
    assert "ann" in services("token", "list").out
    assert services("token", "revoke", token["id"]).out == "ann is revoked.\n"
    assert "revoked just now" in services("token", "list").out
    services("token", "revoke", "nobody").line(3)


def test_x3_deploy_says_what_it_means(services: Desk) -> None:
    assert "run commands on your workers" in services("token", "create", "--scope", "deploy").err
    assert services("token", "create", "--scope", "deploy", "--json").json["secret"].startswith("hark_")


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--scope", "everything"),
        ("--scope", "read", "--expires", "soon"),
        ("--scope", "read", "--expires", "0"),
        ("--scope", "read", "--expires", "٣d"),
        ("--scope", "read", "--expires", "999999999d"),
        ("--scope", "read", "--name", ""),
        ("--scope", "read", "--server", "http://127.0.0.1:1"),
    ],
)
def test_x3_a_token_that_makes_no_sense_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    where = [] if "--server" in words else place(sqlite_file(tmp_path))
    call("token", "create", *words, *where).line(2)


def test_x3_with_a_token_a_command_may_do_what_its_scopes_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = sqlite_file(tmp_path)
    reads, signals = (
        call("token", "create", "--scope", scope, *place(store)).out.strip() for scope in ("read", "signal")
    )
    Desk(store).parked(Arm("signal", "w", name="go"))
    with serving("--require-token", "--no-worker", *place(store), cwd=tmp_path) as url:
        assert "hark token create" in call("instance", "list", "--server", url).line(1)
        assert call("instance", "list", "--server", url, "--token", reads, "--json").json[0]["id"] == "i"
        assert "signal" in call("signal", "i", "go", "--server", url, "--token", reads).line(1)
        monkeypatch.setenv("HARK_TOKEN", signals)
        monkeypatch.setenv("HARK_SERVER", url)
        assert call("signal", "i", "go").out == "woke\n"
        [token] = [one for one in call("token", "list", "--json", *place(store)).json if one["scopes"] == ["signal"]]
        assert call("token", "revoke", token["id"], *place(store)).code == 0
        assert "revoked" in call("signal", "i", "go").line(1)
        assert "characters that no token has" in call("signal", "i", "go", "--token", "a\nb").line(2)


def test_x3_a_public_bind_needs_a_token_and_then_asks_for_it(tmp_path: Path) -> None:
    store = sqlite_file(tmp_path)
    assert call("migrate", *place(store)).code == 0
    public = ["--host", "0.0.0.0", "--no-worker", *place(store)]
    assert "hark token create" in call("serve", "--port", "0", *public).line(2)

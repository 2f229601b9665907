"""X3, D4: tokens on the command line, on both stores, and what they allow on a server."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from hark.model.decisions import Arm
from tests.doors.support_cli import Cli, run_cli, store_options
from tests.doors.test_cli_server import serving
from tests.support.stores import sqlite_file


def test_x3_a_token_is_made_listed_and_revoked(cli: Cli) -> None:
    assert cli("token", "list").out == "No tokens.\n"
    made = cli("token", "create", "--scope", "read", "--scope", "answer", "--name", "ann", "--expires", "90d")
    assert made.code == 0
    secret = made.out.strip()
    assert secret.startswith("hark_")
    [token] = cli("token", "list", "--json").json
    assert (token["name"], token["scopes"]) == ("ann", ["read", "answer"])
    left = datetime.fromisoformat(token["expires_at"]) - datetime.now(UTC)
    assert 89 <= left.days <= 90
    assert f"hark token revoke {token['id']}" in made.err
    assert secret not in cli("token", "list").out + cli("token", "list", "--json").out
    assert "ann" in cli("token", "list").out
    assert cli("token", "revoke", token["id"]).out == "ann is revoked.\n"
    assert "revoked just now" in cli("token", "list").out
    cli("token", "revoke", "unknown").error_line(3)


def test_x3_a_token_with_the_scope_deploy_comes_with_a_warning(cli: Cli) -> None:
    assert "run commands on your workers" in cli("token", "create", "--scope", "deploy").err
    assert cli("token", "create", "--scope", "deploy", "--json").json["secret"].startswith("hark_")


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
def test_x3_malformed_token_options_are_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    where = [] if "--server" in words else store_options(sqlite_file(tmp_path))
    run_cli("token", "create", *words, *where).error_line(2)


def test_x3_a_command_with_a_token_may_do_what_its_scopes_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = sqlite_file(tmp_path)
    assert run_cli("migrate", *store_options(store)).code == 0
    reads, signals = (
        run_cli("token", "create", "--scope", scope, *store_options(store)).out.strip() for scope in ("read", "signal")
    )
    Cli(store).park(Arm("signal", "w", name="go"))
    with serving("--require-token", "--no-worker", *store_options(store), cwd=tmp_path) as url:
        assert "hark token create" in run_cli("instance", "list", "--server", url).error_line(1)
        assert run_cli("instance", "list", "--server", url, "--token", reads, "--json").json[0]["id"] == "i"
        assert "signal" in run_cli("signal", "i", "go", "--server", url, "--token", reads).error_line(1)
        monkeypatch.setenv("HARK_TOKEN", signals)
        monkeypatch.setenv("HARK_SERVER", url)
        assert run_cli("signal", "i", "go").out == "woke\n"
        [token] = [
            one for one in run_cli("token", "list", "--json", *store_options(store)).json if one["scopes"] == ["signal"]
        ]
        assert run_cli("token", "revoke", token["id"], *store_options(store)).code == 0
        assert "revoked" in run_cli("signal", "i", "go").error_line(1)
        assert "characters that no token has" in run_cli("signal", "i", "go", "--token", "a\nb").error_line(2)


def test_x3_a_public_address_needs_a_token_in_the_store_and_in_every_request(tmp_path: Path) -> None:
    store = sqlite_file(tmp_path)
    assert run_cli("migrate", *store_options(store)).code == 0
    public = ["--host", "0.0.0.0", "--no-worker", *store_options(store)]
    assert "hark token create" in run_cli("serve", "--port", "0", *public).error_line(2)

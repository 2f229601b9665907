"""D4, X3: `hark secret rotate`, and links on the command line."""

from __future__ import annotations

import pytest

from tests.doors.support_cli import Cli


@pytest.fixture(autouse=True)
def _nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HARK_SECRET", raising=False)
    monkeypatch.delenv("HARK_BASE_URL", raising=False)


def test_x3_a_secret_is_rotated(cli: Cli) -> None:
    assert cli("secret", "rotate").out.startswith(
        "New links are signed with a new secret. Links that were already sent"
    )
    assert cli("secret", "rotate", "--json").json == {"rotated": True, "valid_secrets": 3}
    assert "stop working within a minute" in cli("secret", "rotate", "--drop-old").out
    assert cli("secret", "rotate", "--json").json == {"rotated": True, "valid_secrets": 2}


def test_x3_a_secret_of_the_environment_is_rotated_there(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HARK_SECRET", "mine")
    assert "HARK_SECRET=new,old" in cli("secret", "rotate").error_line(2)


def test_x3_a_server_cannot_rotate_a_secret(cli: Cli) -> None:
    assert "works on a store" in cli("secret", "rotate", "--server", "http://127.0.0.1:1").error_line(2)


def test_d4_a_link_is_shown_with_its_address_or_with_what_to_set(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    id = cli.ask()
    shown = cli("awakeable", "show", id)
    assert f" /a/{id}?t=" in shown.out
    assert "set HARK_BASE_URL" in shown.out
    assert shown.err == ""
    monkeypatch.setenv("HARK_BASE_URL", "https://ask.example")
    assert f" https://ask.example/a/{id}?t=" in cli("awakeable", "show", id).out
    assert cli("awakeable", "show", id, "--json").json["url"].startswith(f"https://ask.example/a/{id}?t=")
    assert "HARK_BASE_URL" not in cli("awakeable", "show", id).out

"""A5: `hark awakeable …`, on both stores."""

import threading
from pathlib import Path

import pytest

from hark.model.decisions import Arm
from tests.doors.support_cli import Cli

ID = "prom_1abc123"


def payload(cli: Cli, id: str = ID) -> object:
    found = cli("awakeable", "show", id, "--json").json
    assert found["status"] == "RESOLVED"
    return found["payload"]


def test_a5_resolve_with_a_json_payload(cli: Cli) -> None:
    cli.ask()
    result = cli("awakeable", "resolve", ID, "--payload", '{"action":"approve"}')
    assert (result.code, result.out) == (0, f"[✓] {ID} RESOLVED\n")
    assert payload(cli) == {"action": "approve"}
    assert cli("instance", "show", "job-1", "--json").json["status"] == "runnable"


def test_a5_resolve_with_a_plain_text_payload(cli: Cli) -> None:
    cli.ask()
    assert cli("awakeable", "resolve", ID, "--payload", "approved").code == 0
    assert payload(cli) == "approved"


def test_a5_resolve_with_a_payload_from_a_file(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "payload.json").write_text('{"action": "reject"}')
    cli.ask()
    assert cli("awakeable", "resolve", ID, "--file", "payload.json").code == 0
    assert payload(cli) == {"action": "reject"}


def test_a5_reject_with_the_default_and_with_an_own_message(cli: Cli) -> None:
    cli.ask("prom_1a", of="one")
    cli.ask("prom_1b", of="two")
    assert cli("awakeable", "reject", "prom_1a").out == "[✗] prom_1a REJECTED\n"
    assert cli("awakeable", "reject", "prom_1b", "--error", "approval denied").code == 0
    assert cli("awakeable", "show", "prom_1a", "--json").json["error"] == "rejected"
    assert cli("awakeable", "show", "prom_1b", "--json").json["error"] == "approval denied"


def test_a5_list_prints_a_table(cli: Cli) -> None:
    assert cli("awakeable", "list").out == "No awakeables.\n"
    cli.ask(of="test-job-1")
    assert cli("awakeable", "list", "--job", "test-job-1").out.splitlines() == [
        f"[·] {ID}", "  Job: test-job-1", "  Task: verify", "  Status: PENDING",
    ]  # fmt: skip


def test_a5_list_by_job_and_by_status(cli: Cli) -> None:
    cli.ask("prom_1a", of="one")
    cli.ask("prom_1b", of="two")
    cli.ask("prom_1c", of="three", timeout=0.000001)
    cli.ask("prom_1d", of="four")
    cli("awakeable", "resolve", "prom_1b")
    cli("timeout", "check")
    cli("instance", "cancel", "four")

    def ids(*args: str) -> list[str]:
        return [one["id"] for one in cli("awakeable", "list", *args, "--json").json]

    assert ids() == ["prom_1d", "prom_1c", "prom_1b", "prom_1a"]
    assert ids("--job", "one") == ["prom_1a"]
    assert ids("--status", "PENDING") == ["prom_1a"]
    assert ids("--status", "resolved") == ["prom_1b"]
    assert ids("--status", "REJECTED") == []
    marks = [line[:3] for line in cli("awakeable", "list").out.splitlines() if line.startswith("[")]
    assert marks == ["[⊘]", "[⏱]", "[✓]", "[·]"]
    assert "PENDING, RESOLVED" in cli("awakeable", "list", "--status", "OPEN").error_line(2)


def test_a5_show_prints_all_fields(cli: Cli) -> None:
    cli.ask(title="Deploy v1?", timeout=3600)
    shown = cli("awakeable", "show", ID).out
    assert shown.startswith(f"[·] {ID}\n")
    for word in ("Deploy v1?", "job-1", "verify", "PENDING", "in 1 h"):
        assert word in shown


@pytest.mark.parametrize("verb", ["resolve", "reject"])
def test_a1_the_second_answer_gets_a_conflict_that_names_the_first_answerer(cli: Cli, verb: str) -> None:
    cli.ask()
    assert cli("awakeable", "resolve", ID, "--by", "ann").code == 0
    assert "was RESOLVED at" in (result := cli("awakeable", verb, ID).error_line(4))
    assert "by ann" in result


@pytest.mark.parametrize("verb", ["resolve", "reject", "show", "await"])
def test_a5_an_unknown_id_is_not_found(cli: Cli, verb: str) -> None:
    assert "no awakeable 'prom_1nobody'" in cli("awakeable", verb, "prom_1nobody").error_line(3)


def test_a5_await_prints_the_payload_or_exits_with_75(cli: Cli) -> None:
    cli.ask("prom_1a", of="one")
    cli.ask("prom_1b", of="two")
    assert "PENDING" in cli("awakeable", "await", "prom_1a").error_line(75)
    cli("awakeable", "resolve", "prom_1a", "--payload", '{"action":"approve"}')
    assert cli("awakeable", "await", "prom_1a").out == '{"action":"approve"}\n'
    cli("awakeable", "resolve", "prom_1b", "--payload", "approved")
    assert cli("awakeable", "await", "prom_1b").out == "approved\n"
    assert cli("awakeable", "await", "prom_1b", "--json").out == '"approved"\n'


def test_a4_await_of_a_rejected_timed_out_or_cancelled_awakeable_fails_and_says_which(cli: Cli) -> None:
    cli.ask("prom_1a", of="one")
    cli.ask("prom_1b", of="two", timeout=0.000001)
    cli.ask("prom_1c", of="three")
    cli("awakeable", "reject", "prom_1a", "--error", "not today")
    cli("timeout", "check")
    cli("instance", "cancel", "three")
    assert "not today" in cli("awakeable", "await", "prom_1a").error_line(1)
    assert "timed out" in cli("awakeable", "await", "prom_1b").error_line(1)
    assert "cancelled" in cli("awakeable", "await", "prom_1c").error_line(1)


def test_a5_await_with_wait_waits_for_the_answer(cli: Cli) -> None:
    cli.ask()
    assert "PENDING" in cli("awakeable", "await", ID, "--timeout", "0.2").error_line(75)
    answer = threading.Timer(0.3, lambda: cli.run_turns(lambda turns: _resolve(turns)))
    answer.start()
    assert cli("awakeable", "await", ID, "--wait").out == "7\n"
    answer.join()


def test_a5_in_a_shell_task_await_stops_waiting_when_the_time_of_the_awakeable_is_over(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing times out what a running task has asked: its command suspends it, and the park does."""
    cli.ask(timeout=0.000001)
    monkeypatch.setenv("HARK_LEASE", "3.job-1.0")
    assert "PENDING" in cli("awakeable", "await", ID, "--wait").error_line(75)


async def _resolve(turns: object) -> None:
    from hark.kernel.requests import SettleAwakeable
    from hark.model.decisions import Settle

    await turns.run(SettleAwakeable(settle=Settle(ID, "RESOLVED", "7")))  # type: ignore[attr-defined]


def test_a5_an_awakeable_without_a_task_is_listed_without_one(cli: Cli) -> None:
    cli.ask(task=None)
    assert "  Task: -" in cli("awakeable", "list").out
    cli.park(Arm("signal", "w", name="go"), id="other")
    assert len(cli("awakeable", "list", "--json").json) == 1


def test_a8_the_name_of_a_person_who_answers_on_the_command_line_is_recorded(cli: Cli) -> None:
    cli.ask()
    assert cli("awakeable", "resolve", ID, "--by", "ann").code == 0
    [_, event] = [event for event in cli("events", "--json").json if event["type"] == "awakeable"]
    assert event["data"] == {"awakeable": ID, "status": "RESOLVED", "by": "ann", "via": "cli"}


def test_a8_an_answer_that_does_not_match_its_schema_exits_2_and_says_why(cli: Cli) -> None:
    cli.ask(schema='{"type":"integer"}')
    result = cli("awakeable", "resolve", ID, "--payload", "many")
    assert result.code == 2
    assert 'answer: "many" is not of type "integer"' in result.err
    assert cli("awakeable", "show", ID, "--json").json["status"] == "PENDING"


def test_b6_claim_and_unclaim(cli: Cli) -> None:
    cli.ask()
    assert cli("awakeable", "claim", ID, "--by", "ann").out == f"[·] {ID} claimed by ann\n"
    assert "  Claimed by: ann\n" in cli("awakeable", "list").out
    assert "ann" in cli("awakeable", "claim", ID, "--by", "bob").error_line(4)
    assert cli("awakeable", "unclaim", ID, "--json").json["claimed_by"] is None
    assert cli("awakeable", "unclaim", ID).out == f"[·] {ID} not claimed\n"
    cli("awakeable", "claim", "prom_1unknown", "--by", "ann").error_line(3)

"""A5: `hark awakeable …`, on both stores."""

import threading
from pathlib import Path

import pytest

from hark.model.decisions import Arm
from tests.doors.support_cli import Desk

ID = "prom_1abc123"


def payload(services: Desk, id: str = ID) -> object:
    found = services("awakeable", "show", id, "--json").json
    assert found["status"] == "RESOLVED"
    return found["payload"]


def test_a5_resolve_with_a_json_payload(services: Desk) -> None:
    services.asked()
    said = services("awakeable", "resolve", ID, "--payload", '{"action":"approve"}')
    assert (said.code, said.out) == (0, f"[✓] {ID} RESOLVED\n")
    assert payload(services) == {"action": "approve"}
    assert services("instance", "show", "job-1", "--json").json["status"] == "runnable"


def test_a5_resolve_with_a_plain_text_payload(services: Desk) -> None:
    services.asked()
    assert services("awakeable", "resolve", ID, "--payload", "approved").code == 0
    assert payload(services) == "approved"


def test_a5_resolve_with_a_payload_from_a_file(services: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "payload.json").write_text('{"action": "reject"}')
    services.asked()
    assert services("awakeable", "resolve", ID, "--file", "payload.json").code == 0
    assert payload(services) == {"action": "reject"}


def test_a5_reject_with_the_default_and_with_an_own_message(services: Desk) -> None:
    services.asked("prom_1a", of="one")
    services.asked("prom_1b", of="two")
    assert services("awakeable", "reject", "prom_1a").out == "[✗] prom_1a REJECTED\n"
    assert services("awakeable", "reject", "prom_1b", "--error", "approval denied").code == 0
    assert services("awakeable", "show", "prom_1a", "--json").json["error"] == "rejected"
    assert services("awakeable", "show", "prom_1b", "--json").json["error"] == "approval denied"


def test_a5_list_prints_a_table(services: Desk) -> None:
    assert services("awakeable", "list").out == "No awakeables.\n"
    services.asked(of="test-job-1")
    assert services("awakeable", "list", "--job", "test-job-1").out.splitlines() == [
        f"[·] {ID}", "  Job: test-job-1", "  Task: verify", "  Status: PENDING",
    ]  # fmt: skip


def test_a5_list_by_job_and_by_status(services: Desk) -> None:
    services.asked("prom_1a", of="one")
    services.asked("prom_1b", of="two")
    services.asked("prom_1c", of="three", timeout=0.000001)
    services.asked("prom_1d", of="four")
    services("awakeable", "resolve", "prom_1b")
    services("timeout", "check")
    services("instance", "cancel", "four")

    def ids(*args: str) -> list[str]:
        return [one["id"] for one in services("awakeable", "list", *args, "--json").json]

    assert ids() == ["prom_1d", "prom_1c", "prom_1b", "prom_1a"]
    assert ids("--job", "one") == ["prom_1a"]
    assert ids("--status", "PENDING") == ["prom_1a"]
    assert ids("--status", "resolved") == ["prom_1b"]
    assert ids("--status", "REJECTED") == []
    marks = [line[:3] for line in services("awakeable", "list").out.splitlines() if line.startswith("[")]
    assert marks == ["[⊘]", "[⏱]", "[✓]", "[·]"]
    assert "PENDING, RESOLVED" in services("awakeable", "list", "--status", "OPEN").line(2)


def test_a5_show_tells_all_of_it(services: Desk) -> None:
    services.asked(title="Deploy v1?", timeout=3600)
    shown = services("awakeable", "show", ID).out
    assert shown.startswith(f"[·] {ID}\n")
    for word in ("Deploy v1?", "job-1", "verify", "PENDING", "in 1 h"):
        assert word in shown


@pytest.mark.parametrize("verb", ["resolve", "reject"])
def test_a1_the_second_settler_gets_a_conflict_that_says_who_won(services: Desk, verb: str) -> None:
    services.asked()
    assert services("awakeable", "resolve", ID, "--by", "ann").code == 0
    assert "RESOLVED since" in (said := services("awakeable", verb, ID).line(4))
    assert "by ann" in said


@pytest.mark.parametrize("verb", ["resolve", "reject", "show", "await"])
def test_a5_an_unknown_id_is_not_found(services: Desk, verb: str) -> None:
    assert "no awakeable 'prom_1nobody'" in services("awakeable", verb, "prom_1nobody").line(3)


def test_a5_await_prints_the_payload_or_says_suspend_me(services: Desk) -> None:
    services.asked("prom_1a", of="one")
    services.asked("prom_1b", of="two")
    assert "PENDING" in services("awakeable", "await", "prom_1a").line(75)
    services("awakeable", "resolve", "prom_1a", "--payload", '{"action":"approve"}')
    assert services("awakeable", "await", "prom_1a").out == '{"action":"approve"}\n'
    services("awakeable", "resolve", "prom_1b", "--payload", "approved")
    assert services("awakeable", "await", "prom_1b").out == "approved\n"
    assert services("awakeable", "await", "prom_1b", "--json").out == '"approved"\n'


def test_a4_await_of_one_that_was_refused_late_or_cancelled_fails_and_says_which(services: Desk) -> None:
    services.asked("prom_1a", of="one")
    services.asked("prom_1b", of="two", timeout=0.000001)
    services.asked("prom_1c", of="three")
    services("awakeable", "reject", "prom_1a", "--error", "not today")
    services("timeout", "check")
    services("instance", "cancel", "three")
    assert "not today" in services("awakeable", "await", "prom_1a").line(1)
    assert "timed out" in services("awakeable", "await", "prom_1b").line(1)
    assert "cancelled" in services("awakeable", "await", "prom_1c").line(1)


def test_a5_await_stays_when_it_is_told_to(services: Desk) -> None:
    services.asked()
    assert "PENDING" in services("awakeable", "await", ID, "--timeout", "0.2").line(75)
    answer = threading.Timer(0.3, lambda: services.do(lambda turns: _resolve(turns)))
    answer.start()
    assert services("awakeable", "await", ID, "--wait").out == "7\n"
    answer.join()


async def _resolve(turns: object) -> None:
    from hark.kernel.requests import SettleAwakeable
    from hark.model.decisions import Settle

    await turns.run(SettleAwakeable(settle=Settle(ID, "RESOLVED", "7")))  # type: ignore[attr-defined]


def test_a5_an_awakeable_without_a_task_has_none_to_show(services: Desk) -> None:
    services.asked(task=None)
    assert "  Task: -" in services("awakeable", "list").out
    services.parked(Arm("signal", "w", name="go"), id="other")
    assert len(services("awakeable", "list", "--json").json) == 1


def test_a8_who_answered_through_the_command_line_is_recorded(services: Desk) -> None:
    services.asked()
    assert services("awakeable", "resolve", ID, "--by", "ann").code == 0
    [event] = [event for event in services("events", "--json").json if event["type"] == "awakeable"]
    assert event["data"] == {"awakeable": ID, "status": "RESOLVED", "by": "ann", "via": "cli"}


def test_a8_an_answer_that_does_not_fit_exits_2_and_says_why(services: Desk) -> None:
    services.asked(schema='{"type":"integer"}')
    said = services("awakeable", "resolve", ID, "--payload", "many")
    assert said.code == 2
    assert 'answer: "many" is not of type "integer"' in said.err
    assert services("awakeable", "show", ID, "--json").json["status"] == "PENDING"

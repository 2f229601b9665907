"""The runner of commands, with real processes: what it returns, and that nothing outlives it (J2).

A process of a command is recognised by an unusual duration of `sleep`, so the tests can look for it in the process
table; they wait for conditions, not for times.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from hark.engine.commands import runner
from hark.engine.commands.lease_relay import LeaseRelay
from hark.engine.commands.runner import CommandEnd, CommandLine, CommandNotRun, run_command

WORKER = Path(__file__).with_name("worker_process.py")
# A child, a grandchild whose parent has ended, and a background job, all in the process group.
TREE = "sleep {0} & sh -c 'sleep {0} & exec sleep {0}' & sh -c 'sleep {0} &'; echo ready >&2; sleep {0}; sleep {0}"


@pytest.fixture
def nap() -> Iterator[str]:
    """A duration that no other process sleeps for."""
    duration = f"{100_000 + os.getpid()}.{time.monotonic_ns() % 1_000_000}1"
    yield duration
    for process in sleepers(duration):
        process.kill()


@pytest.fixture(params=[True, False], ids=["prctl", "guard-alone"])
def use_prctl(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """With what Linux has, and as on platforms that have only process groups."""
    monkeypatch.setattr(runner, "_USE_PRCTL", request.param)
    return bool(request.param)


def sleepers(duration: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        if duration in (process.info["cmdline"] or ()) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process)
    return found


async def nothing(line: str) -> None:
    pass


async def run(script: str, *, stdin: bytes = b"", timeout: float | None = None, grace: float = 20.0) -> CommandEnd:
    command = CommandLine(["/bin/sh", "-c", script], {"PATH": os.environ["PATH"]}, stdin=stdin)
    return await run_command(command, max_stdout=1000, on_stderr=nothing, timeout=timeout, grace=grace)


async def started(script: str, grace: float = 20.0) -> asyncio.Task[CommandEnd]:
    """The task of a command that has said `ready` on stderr."""
    ready = asyncio.Event()

    async def on_stderr(line: str) -> None:
        ready.set()

    command = CommandLine(["/bin/sh", "-c", script], {"PATH": os.environ["PATH"]})
    task = asyncio.create_task(run_command(command, max_stdout=1000, on_stderr=on_stderr, grace=grace))
    await asyncio.wait([task, asyncio.create_task(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    assert not task.done()
    return task


# -- what it returns ------------------------------------------------------------------------------


async def test_a_command_gets_its_stdin_environment_and_directory(tmp_path: Path) -> None:
    here = str(tmp_path)
    prompt = b"Was nun? " * 50_000  # more than a pipe holds
    command = CommandLine(["/bin/sh", "-c", 'pwd; echo "$A"; wc -c; exit 3'], {"A": "b c", "PATH": "/usr/bin:/bin"})
    command = CommandLine(command.argv, command.env, here, prompt)
    end = await run_command(command, max_stdout=1000, on_stderr=nothing)
    assert end.exit == 3
    assert end.stdout.decode().split() == [here, "b", "c", str(len(prompt))]
    assert not end.timed_out


async def test_an_environment_that_is_not_utf8_arrives_as_it_is() -> None:
    value = os.fsdecode(b"\xff\xfe")
    end = await run_command(
        CommandLine(["/bin/sh", "-c", 'printf %s "$A"'], {"A": value}), max_stdout=10, on_stderr=nothing
    )
    assert end.stdout == b"\xff\xfe"


async def test_a_prompt_that_is_not_read_is_no_error() -> None:
    assert (await run("exit 0", stdin=b"x" * 1_000_000)).exit == 0


async def test_stdout_is_bounded_and_read_to_its_end() -> None:
    end = await run("head -c 300000 /dev/zero; echo done >&2")
    assert (end.exit, len(end.stdout), end.stdout_bytes, end.stderr_tail) == (0, 1000, 300_000, "done")


async def test_lines_of_stderr_come_while_the_command_runs(tmp_path: Path) -> None:
    lines: list[str] = []
    fifo = tmp_path / "go"
    os.mkfifo(fifo)

    async def on_stderr(line: str) -> None:
        lines.append(line)
        if line == "first":
            await asyncio.to_thread(fifo.write_text, "go")

    script = (
        f"echo first >&2; read x < {fifo}; printf 'bad \\377 byte\\n' >&2; head -c 20000 /dev/zero | tr '\\0' x >&2"
    )
    command = CommandLine(["/bin/sh", "-c", script], {"PATH": os.environ["PATH"]})
    end = await run_command(command, max_stdout=1000, on_stderr=on_stderr)
    assert lines[:2] == ["first", "bad \ufffd byte"]
    assert "".join(lines[2:]) == "x" * 20_000
    assert max(map(len, lines)) == 8192
    assert (len(end.stderr_tail), set(end.stderr_tail)) == (4096, {"x", "\n"})  # the end of it, for the error


async def test_a_signal_that_ends_the_command_is_reported() -> None:
    assert (await run("kill -9 $$")).exit == -signal.SIGKILL


async def test_a_program_that_cannot_be_executed_is_an_error() -> None:
    with pytest.raises(CommandNotRun, match="No such file or directory: /no/such/program"):
        await run_command(CommandLine(["/no/such/program"], {}), max_stdout=1, on_stderr=nothing)
    with pytest.raises(CommandNotRun, match="No such file or directory: /no/such/place"):
        await run_command(CommandLine(["/bin/true"], {}, "/no/such/place"), max_stdout=1, on_stderr=nothing)
    with pytest.raises(CommandNotRun, match="null byte"):
        await run_command(CommandLine(["/bin/echo", "\0"], {}), max_stdout=1, on_stderr=nothing)


async def test_nothing_is_left_open_after_many_ends() -> None:
    before = set(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd"))
    await run("exit 0", stdin=b"x")
    (await started("echo ready >&2; sleep 1000")).cancel()
    early = asyncio.create_task(run("exit 0"))
    await asyncio.sleep(0)
    early.cancel()
    with pytest.raises(asyncio.CancelledError):
        await early
    while len(asyncio.all_tasks()) > 1:
        await asyncio.sleep(0.01)
    assert set(os.listdir("/proc/self/fd" if sys.platform == "linux" else "/dev/fd")) <= before  # GC may close others


# -- that nothing outlives it -----------------------------------------------------------------------


async def test_what_a_command_leaves_in_its_group_ends_with_it(nap: str, use_prctl: bool) -> None:
    end = await run(f"sleep {nap} & sh -c 'sleep {nap} &'; echo out")
    assert (end.exit, end.stdout) == (0, b"out\n")
    assert sleepers(nap) == []


async def test_a_daemon_of_a_command_that_has_ended_is_left_alone(nap: str) -> None:
    """A build server, an agent of keys: it has left the group on purpose. Holding the pipes does not hold the task."""
    setsid = f'{sys.executable} -c \'import os; os.fork() or (os.setsid(), os.execvp("sleep", ["sleep", "{nap}"]))\''
    end = await run(
        f"{setsid}; while ! ps ax -o sid=,pid=,args= | grep -v grep | grep -q 'sleep {nap}'; do :; done; echo out"
    )
    assert end.stdout == b"out\n"
    assert len(sleepers(nap)) == 1


async def test_a_timeout_ends_the_whole_tree(nap: str, use_prctl: bool) -> None:
    end = await run(TREE.format(nap), timeout=1.0)
    assert end.timed_out
    assert end.exit == -signal.SIGTERM
    assert sleepers(nap) == []


async def test_a_cancel_ends_the_whole_tree(nap: str, use_prctl: bool) -> None:
    task = await started(TREE.format(nap))
    while len(sleepers(nap)) < 5:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleepers(nap) == []


async def test_a_command_gets_the_time_to_clean_up(tmp_path: Path, use_prctl: bool) -> None:
    cleaned = tmp_path / "cleaned"
    task = await started(
        f"trap 'sleep 0.1; echo yes > {cleaned}; exit 0' TERM; echo ready >&2; while :; do sleep 0.05; done"
    )
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.read_text() == "yes\n"


async def test_a_tree_that_ignores_sigterm_is_killed(nap: str, use_prctl: bool) -> None:
    task = await started(f"trap '' TERM; sleep {nap} & echo ready >&2; sleep {nap}", grace=0.1)
    task.cancel()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleepers(nap) == []


async def test_a_stopped_command_ends_too(nap: str) -> None:
    task = await started(f"echo ready >&2; kill -STOP $$; sleep {nap}")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells which processes have left the group")
async def test_a_cancel_ends_processes_that_have_left_the_group(nap: str) -> None:
    """The tools of agents run in sessions of their own: they must not go on beside the next attempt."""
    task = await started(
        f"setsid sleep {nap} & setsid sh -c 'setsid sleep {nap} & exec sleep {nap}' & "
        f"while [ $(ps ax -o args= | grep -c '^sleep {nap}') -lt 3 ]; do :; done; echo ready >&2; wait"
    )
    assert len(sleepers(nap)) == 3
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sleepers(nap) == []


async def test_an_error_while_a_line_is_passed_on_ends_the_command(nap: str) -> None:
    async def refuse(line: str) -> None:
        raise ConnectionError("the lease is lost")

    command = CommandLine(["/bin/sh", "-c", f"echo ready >&2; sleep {nap}"], {"PATH": os.environ["PATH"]})
    with pytest.raises(ConnectionError, match="the lease is lost"):
        await run_command(command, max_stdout=1, on_stderr=refuse)
    assert sleepers(nap) == []


async def test_a_killed_guard_is_an_error_and_the_command_ends(nap: str, use_prctl: bool) -> None:
    task = await started(f"sleep {nap} & echo ready >&2; sleep {nap}")
    while len(sleepers(nap)) < 2:
        await asyncio.sleep(0.01)
    guard = next(sleeper for sleeper in sleepers(nap)[0].parents() if "guard.py" in " ".join(sleeper.cmdline()))
    guard.kill()
    with pytest.raises(CommandNotRun, match="guard process of the command was killed"):
        await task
    while sleepers(nap):
        await asyncio.sleep(0.01)


# -- when the lease of the worker is lost -------------------------------------------------------------


@pytest.mark.slow
async def test_a_command_runs_as_long_as_the_lease_is_renewed_and_no_longer(nap: str, use_prctl: bool) -> None:
    was_slow = True
    while was_slow:  # then nothing was proved: the lease was not renewed in time
        relay = LeaseRelay()
        relay.renewed(1.0)
        command = CommandLine(["/bin/sh", "-c", TREE.format(nap)], {"PATH": os.environ["PATH"]})
        task = asyncio.create_task(run_command(command, max_stdout=1000, on_stderr=nothing, lease=relay))
        moments = [time.monotonic()]
        while moments[-1] < moments[0] + 2:
            relay.renewed(1.0)
            await asyncio.sleep(0.05)
            moments.append(time.monotonic())
        was_slow = max(later - earlier for earlier, later in pairwise(moments)) > 0.4
        ran_on = not task.done()
        end = await task
    assert ran_on
    assert end.lease_lost
    assert sleepers(nap) == []


async def test_a_command_does_not_begin_under_a_lease_that_has_run_out(nap: str) -> None:
    relay = LeaseRelay()
    relay.renewed(0.001)
    command = CommandLine(["/bin/sh", "-c", f"sleep {nap}"], {"PATH": os.environ["PATH"]})
    end = await run_command(command, max_stdout=1000, on_stderr=nothing, lease=relay)
    assert end.lease_lost


# -- when the worker is gone ------------------------------------------------------------------------


def worker(
    script: str, *, grace: float = 20.0, use_prctl: bool = True, ignore_sigint: bool = False, scratch: str = ""
) -> subprocess.Popen[bytes]:
    """A process of its own that runs the command, without a controlling terminal."""
    return subprocess.Popen(
        [sys.executable, str(WORKER), str(grace), str(use_prctl), script, scratch],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignore_sigint else None,
    )


@pytest.mark.crash
def test_kill_9_of_the_worker_ends_the_whole_tree(nap: str, use_prctl: bool, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "file").touch()
    process = worker(TREE.format(nap), use_prctl=use_prctl, scratch=str(scratch))
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    while len(sleepers(nap)) < 5:
        time.sleep(0.01)
    process.kill()
    process.wait()
    while sleepers(nap) or scratch.exists():
        time.sleep(0.01)
    process.stdout.close()


@pytest.mark.crash
def test_kill_9_of_the_worker_ends_a_command_that_ignores_sigterm(nap: str, use_prctl: bool) -> None:
    process = worker(f"trap '' TERM; sleep {nap} & echo ready >&2; sleep {nap}", grace=0.1, use_prctl=use_prctl)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.kill()
    process.wait()
    while sleepers(nap):
        time.sleep(0.01)
    process.stdout.close()


@pytest.mark.crash
def test_a_process_that_the_worker_has_forked_does_not_keep_the_command_alive(nap: str, use_prctl: bool) -> None:
    """It holds the socket of the guard open, so the guard has to notice in another way that the worker is gone."""
    process = worker(f"echo fork >&2; sleep {nap}", use_prctl=use_prctl)
    assert process.stdout is not None
    forked = int(process.stdout.readline())
    while not sleepers(nap):
        time.sleep(0.01)
    process.kill()
    process.wait()
    try:
        while sleepers(nap):
            time.sleep(0.01)
    finally:
        os.kill(forked, signal.SIGKILL)
    process.stdout.close()


def test_a_command_has_the_default_signals_when_the_worker_ignores_some() -> None:
    """A worker in the background of a script ignores SIGINT, and has no terminal: the command does not inherit that."""
    process = worker("sh -c 'kill -INT $$; echo ignored'; echo $?; tty >&2", ignore_sigint=True)
    out, _ = process.communicate()
    assert out.decode().split("\n") == ["not a tty", "130", ""]

"""Try mutants of BPMN files: `python -m tests.programs.bpmn.fuzz_bpmn --seconds 600 [--first NUMBER]`.

A mutant is made from its number. It is read, compiled to a graph, and drawn; if it is accepted, an instance of each
process is started and run until it rests. Anything but `InvalidDefinition` of the first two, any exception of the last,
and anything that takes over `--slow` seconds is printed with its number, and with its file in the folder `--keep`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
import traceback
from pathlib import Path

from hark import HarkError, InvalidDefinition, InvalidInput
from hark.programs.bpmn.drawing.bpmn_drawing import draw
from hark.programs.bpmn.file import read_bpmn
from hark.testing import Harness
from tests.support.bpmn_mutants import mutant, sources


def made(texts: list[str], number: int) -> bytes:
    chance = random.Random(number)
    return mutant(chance.choice(texts), chance)


def attempt(texts: list[str], number: int) -> bool:
    """Read and draw a mutant; whether it is refused. Another exception gets the number of the mutant as a note."""
    data = made(texts, number)
    try:
        return _refused(data)
    except Exception as error:
        error.add_note(f"by the mutant {number} of tests/support/bpmn_mutants.py")
        raise


def _refused(data: bytes) -> bool:
    problems = None
    try:
        xml = read_bpmn(data).xml
    except InvalidDefinition as error:
        problems, xml = error.problems, data.decode("utf-8", "replace")
    try:
        picture = draw(xml)
    except InvalidDefinition:
        picture = None
    assert picture is None or picture.startswith("<svg"), picture[:80]
    if problems is None:
        assert picture is not None, "a file that can be deployed can be drawn"
        return False
    assert problems, "a refusal lists its problems"
    assert all(problem.message for problem in problems)
    return True


async def run(data: bytes) -> None:
    """Deploy a mutant that can be read, start each process, and run it until it rests."""
    async with Harness() as app:
        try:
            deployed = await app.deploy(data)
        except InvalidDefinition:
            return  # the name of a signal that starts it has an expression that cannot be evaluated before
        for name, _ in deployed:
            try:
                await app.start(name, {"n": 3, "items": [1, 2], "total": 7})
            except InvalidInput:
                continue  # it has no none start event
        async with asyncio.timeout(20):
            await app.drain()
        for instance in await app.list():
            assert instance.error is None or "Traceback" not in instance.error, instance.error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--first", type=int, default=1_000_000)
    parser.add_argument("--slow", type=float, default=10)
    parser.add_argument("--keep", type=Path, default=Path("/tmp"))
    parser.add_argument("--run", action="store_true", help="also run what is accepted")
    options = parser.parse_args()
    texts, until, number, refused, bad = list(sources()), time.monotonic() + options.seconds, options.first, 0, 0
    while time.monotonic() < until:
        begin = time.monotonic()
        try:
            if attempt(texts, number):
                refused += 1
            elif options.run:
                asyncio.run(run(made(texts, number)))
        except (Exception, RecursionError) as error:
            bad += 1
            print(f"--- {number}: {type(error).__name__}: {str(error)[:300]}")
            if not isinstance(error, HarkError):
                traceback.print_exc(limit=-6, file=sys.stdout)
            (options.keep / f"mutant-{number}.bpmn").write_bytes(made(texts, number))
        if time.monotonic() - begin > options.slow:
            bad += 1
            print(f"--- {number} took {time.monotonic() - begin:.1f} s", flush=True)
            (options.keep / f"mutant-{number}.bpmn").write_bytes(made(texts, number))
        number += 1
    print(f"{number - options.first} mutants from {options.first}, {refused} refused, {bad} bad")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()

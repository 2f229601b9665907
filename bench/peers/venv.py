"""Create the virtual environment of each peer, `bench/.venvs/<peer>`, from its pinned requirements.

An environment is created once, and again when its requirements change. `python -m bench.peers.venv` creates all.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = ("dbos", "absurd", "restate")


def python(peer: str) -> Path:
    """The interpreter of the peer's environment; creates the environment first if necessary."""
    requirements = HERE / f"{peer}.txt"
    home = HERE.parent / ".venvs" / peer
    interpreter, installed = home / "bin" / "python", home / "installed.txt"
    if not installed.exists() or installed.read_text() != requirements.read_text():
        _run(sys.executable, "-I", "-m", "venv", "--clear", home)
        _run(interpreter, "-I", "-m", "pip", "install", "--quiet", "--requirement", requirements)
        installed.write_text(requirements.read_text())
    return interpreter


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    for name in PEERS:
        print(python(name))

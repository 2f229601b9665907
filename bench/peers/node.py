"""The server of Restate, a binary from npm: installed into `bench/.node` once per version."""

import subprocess
import sys
from pathlib import Path

VERSION = "1.7.12"
HOME = Path(__file__).resolve().parent.parent / ".node"


def restate_server() -> Path:
    """The path of the binary; installs it first if necessary. No package script is run."""
    installed = HOME / "installed.txt"
    if not installed.exists() or installed.read_text() != VERSION:
        HOME.mkdir(exist_ok=True)
        package = f"@restatedev/restate-server@{VERSION}"
        command = ["npm", "install", "--prefix", str(HOME), "--no-save", "--ignore-scripts", "--no-audit", package]
        subprocess.run(command, check=True, stdout=sys.stderr)
        installed.write_text(VERSION)
    [found] = (HOME / "node_modules" / "@restatedev").glob("restate-server-*/bin/restate-server")
    return found


if __name__ == "__main__":
    print(restate_server())

"""The workers of examples/task_worker, one in Python and one in shell, run the job of that folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

pytestmark = [pytest.mark.slow]

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "task_worker"
BIN = Path(sys.executable).parent


def test_j11_the_workers_of_the_example_run_its_job(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    server = subprocess.Popen(
        [str(BIN / "hark"), "serve", "--port", "0"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    worker = None
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split()[2].rstrip(";")
        command = [sys.executable, str(FOLDER / "worker.py"), url, "resize"]
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        source = (FOLDER / "thumbnails.yaml").read_bytes()
        deployed = httpx.post(
            f"{url}/definitions", content=source, headers={"Content-Type": "application/yaml"}, timeout=60
        )
        assert deployed.status_code == 201, deployed.text
        started = httpx.post(f"{url}/instances", json={"definition": "thumbnails", "id": "t-1"}, timeout=60)
        assert started.status_code == 201, started.text
        shell = ["sh", str(FOLDER / "worker.sh"), url, "publish"]
        done = subprocess.run(shell, capture_output=True, text=True, timeout=100, env=environment, check=False)
        assert (done.returncode, done.stdout) == (0, "completed t-1.1\n"), done.stderr
        end = time.monotonic() + 60
        while (job := httpx.get(f"{url}/instances/t-1", timeout=60).json())["status"] != "done":
            assert time.monotonic() < end, job
        sizes = {"url": "https://example.com/a.png", "sizes": [100, 200, 400]}
        assert job["result"] == {"resize": sizes, "publish": "published"}
    finally:
        for process in filter(None, (worker, server)):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)

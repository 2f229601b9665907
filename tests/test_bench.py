"""The parts of the benchmarks that decide what a number means. The benchmarks themselves are run by hand."""

import importlib
import time
from pathlib import Path
from typing import Any

import pytest

from bench import compare, functions, scale
from bench.scale_work import Client, order_id
from bench.table import Line

BENCH = Path(__file__).resolve().parents[1] / "bench"


class Delivered:
    def result(self) -> None:
        pass


class Recorder:
    """An app that notes when it is asked to signal what."""

    def __init__(self) -> None:
        self.sent: list[tuple[float, str]] = []

    def signal(self, target: str, name: str, payload: Any) -> Delivered:
        self.sent.append((time.monotonic(), target))
        return Delivered()


@pytest.mark.parametrize("module", sorted(file.stem for file in BENCH.glob("*.py")))
def test_every_benchmark_can_be_imported(module: str) -> None:
    importlib.import_module(f"bench.{module}")


def test_every_workload_that_is_compared_exists() -> None:
    compared = {(work.module, work.workload) for work in compare.WORKS}
    ways = {**functions.ANSWERED, **functions.RESUMED}.values()
    compared |= {(module, workload) for module, workload, _ in ways}
    texts = {module: (BENCH / f"{module}.py").read_text("utf-8") for module, _ in compared}
    assert [(module, name) for module, name in compared if f'"{name}": (' not in texts[module]] == []


def test_a_revision_without_a_workload_is_measured_with_the_benchmark_of_this_tree(tmp_path: Path) -> None:
    work = compare.Work("a line", "answers", "latency_http", "median_seconds")
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "answers.py").write_text('WORKLOADS = {"latency": (latency, 100)}', "utf-8")
    assert compare.benchmark(tmp_path, work) == compare.ROOT
    (tmp_path / "bench" / "answers.py").write_text('WORKLOADS = {"latency_http": (latency_http, 100)}', "utf-8")
    assert compare.benchmark(tmp_path, work) == tmp_path


def test_no_signal_is_sent_before_its_time() -> None:
    app = Recorder()
    found = Client(app).signal(orders=100, begin=time.monotonic() + 0.01, rate=1000, count=20, seed=1)  # type: ignore[arg-type]
    assert len(app.sent) == 20
    assert all(at >= planned for (at, _), planned in zip(app.sent, found["schedule"], strict=True))


def test_a_sender_that_is_late_sends_immediately_and_keeps_its_planned_times() -> None:
    app, begin = Recorder(), time.monotonic() - 60
    found = Client(app).signal(orders=100, begin=begin, rate=1, count=20, seed=1)  # type: ignore[arg-type]
    assert app.sent[-1][0] - app.sent[0][0] < 10  # planned over 20 seconds
    for number, planned in enumerate(found["schedule"]):
        assert begin + number <= planned <= begin + number + 1
    assert found["late"] >= 59


def test_the_same_seed_signals_the_same_orders_and_no_order_twice() -> None:
    apps = Recorder(), Recorder()
    for app in apps:
        Client(app).signal(orders=50, begin=time.monotonic(), rate=1e6, count=50, seed=3)  # type: ignore[arg-type]
    first, second = ([target for _, target in app.sent] for app in apps)
    assert first == second
    assert sorted(first) == [order_id(number) for number in range(50)]


@pytest.mark.parametrize(("percent", "expected"), [(50, 51), (99, 100)])
def test_percentiles_of_a_hundred_values(percent: int, expected: float) -> None:
    assert scale._percentile([float(value) for value in range(100, 0, -1)], percent) == expected


def test_a_line_marks_a_missed_target() -> None:
    assert str(Line("a", "1", "2", 1.31, most=1.3)).startswith("MISS")
    assert str(Line("a", "1", "2", 1.29, most=1.3)).startswith("ok")
    assert str(Line("a", "1", "2", 0.9, least=1)).startswith("MISS")
    assert str(Line("a", "1", "2", 9.9)).startswith("    ")

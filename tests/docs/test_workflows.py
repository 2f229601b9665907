"""CI runs what the documentation claims: every supported Python and every supported PostgreSQL."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def workflow(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows" / name).read_text("utf-8"))
    return loaded


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_every_job_has_a_timeout_and_only_the_rights_it_needs(path: Path) -> None:
    described = workflow(path.name)
    assert described["permissions"] == {"contents": "read"}
    for name, job in described["jobs"].items():
        assert "timeout-minutes" in job, name
        assert set(job.get("needs", "").split()) <= set(described["jobs"]), name


def test_ci_runs_on_every_python_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pythons = workflow("ci.yml")["jobs"]["test"]["strategy"]["matrix"]["python"]
    classifiers = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert set(classifiers) <= set(pythons)
    assert project["requires-python"] == f">={pythons[0]}"


def test_ci_runs_on_every_postgresql_of_the_documentation() -> None:
    versions = workflow("ci.yml")["jobs"]["postgres"]["strategy"]["matrix"]["postgres"]
    assert versions == [str(version) for version in range(int(versions[0]), int(versions[-1]) + 1)]
    claims = {
        claim
        for page in (ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").glob("*.md"))
        for claim in re.findall(r"PostgreSQL (\d+)(?:\+| or newer)", page.read_text("utf-8"))
    }
    assert claims == {versions[0]}


def test_ci_runs_what_a_contributor_runs() -> None:
    jobs = workflow("ci.yml")["jobs"]
    assert "make quick" in [step.get("run") for step in jobs["quick"]["steps"]]
    assert ".ci/run" in [step.get("run") for step in jobs["test"]["steps"]]
    assert "make test" in (ROOT / ".ci/run").read_text("utf-8")

"""The verbs that deploy and undeploy jobs and BPMN processes: definitions that are data in the store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hark.app.core import Core
from hark.engine.turns.reply import Reply
from hark.engine.worker.registry import LaneProgram
from hark.kernel.requests import Deploy, DeployGroup
from hark.model.errors import InvalidInput
from hark.model.names import check_name

if TYPE_CHECKING:
    from hark.programs.jobs.file import Job

Deployed = list[tuple[str, int]]
_BEFORE_XML = "\ufeff \t\r\n"
_ENDINGS = (".bpmn", ".xml")  # .bpmn20.xml too
_MARKS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")  # byte order marks of UTF-8 and UTF-16


def load_bpmn_program() -> LaneProgram:
    """Make the program that runs the lane of processes."""
    from hark.programs.bpmn.interpreter.bpmn_program import BpmnProgram

    return BpmnProgram()


class DeployVerbs(Core):
    """deploy, undeploy."""

    def deploy(
        self, source: str | bytes | os.PathLike[str] | Mapping[str, Any], *, ignore_extensions: bool = False
    ) -> Reply[list[tuple[str, int]]]:
        """Put a job or the processes of a BPMN file into the store: any worker can run them from then on, and they can
        be started by name.

        The same text again is the same version, a changed one the next version. Instances that run keep theirs. All
        processes of a file are deployed, or none.

        Args:
            source: A path, or the text itself: BPMN 2.0 XML, or a job in YAML or JSON; or a dict with the keys of a
                job, as for `load_job`. XML is BPMN, and so is a file that ends in .bpmn or .xml.
            ignore_extensions: Whether to deploy a process although it has extensions of another engine that Hark does
                not run, such as listeners and connectors. They do nothing then.

        Returns:
            A reply with a list of the deployed names and versions.

        Raises:
            InvalidDefinition: It has mistakes; `.problems` lists them, and nothing was deployed.
            InvalidInput: It is none of these.
            MissingExtra: It is YAML, and PyYAML is not installed: `pip install 'hark[jobs]'`.
            OSError: The file cannot be read.

        Example:
            [(name, version)] = await app.deploy("order.bpmn")
        """
        if isinstance(source, Mapping):
            return self._deploy_job(_load_job(source))
        if isinstance(source, str) and is_xml(source):
            return self._deploy_bpmn(_declared_first(source), ignore_extensions)
        if not isinstance(source, str | bytes | os.PathLike) or source == "":
            raise InvalidInput(f"deploy takes a path, a text, bytes or a dict, not {source!r:.100}.")
        label, name = "The job", None
        if not isinstance(source, bytes):
            if isinstance(source, str) and not _is_bpmn_path(source) and _is_job_text(source):
                return self._deploy_job(_load_job(source))
            path = Path(source)
            label, name, source = f"The job file {path}", path.stem, path.read_bytes()
            if _is_bpmn_path(path.name):
                return self._deploy_bpmn(source, ignore_extensions)
        if is_xml(source):
            return self._deploy_bpmn(source, ignore_extensions)
        return self._deploy_job(_parse_job(source, label, name))

    def undeploy(self, name: str) -> Reply[None]:
        """Let a deployed job or process not be started any more, also not by its schedule or its start events. Its
        instances finish.

        Args:
            name: The name of the job, or the id of the process.

        Raises:
            InvalidInput: The name is malformed.
            NotFound: There is no deployed definition of this name.

        Example:
            await app.undeploy("release")
        """
        return self._ask(Deploy(name=check_name(name, "definition"), remove=True), lambda version: None)

    def _deploy_job(self, job: Job) -> Reply[Deployed]:
        request, deployed = self._jobs.deployment(job)
        return self._ask(request, lambda version: [deployed(version)])

    def _deploy_bpmn(self, data: bytes | str, ignore_extensions: bool) -> Reply[Deployed]:
        from hark.app.bpmn_deployment import read_bpmn_file  # the code that reads BPMN is loaded when it is used

        _, requests = read_bpmn_file(data, self._clerk.now(), ignore_extensions=ignore_extensions)
        names = [request.name for request in requests]
        return self._ask(DeployGroup(deploys=requests), lambda versions: list(zip(names, versions, strict=True)))


def _load_job(source: Any) -> Job:
    from hark.app.job_loading import load_job  # seldom used, and a fifth of the time to import Hark

    return load_job(source)


def _parse_job(data: bytes, label: str, name: str | None) -> Job:
    from hark.programs.jobs.file.loading import parse_job_file

    return parse_job_file(data, label, name)


def _is_job_text(source: str) -> bool:
    from hark.app.job_loading import is_job_text

    return is_job_text(source)


def is_xml(data: bytes | str) -> bool:
    """Return True if a text is XML; otherwise it is a job."""
    if isinstance(data, str):
        return data.lstrip(_BEFORE_XML).startswith("<")
    for mark in _MARKS:
        data = data.removeprefix(mark)
    return data[:4096].lstrip(b" \t\r\n\0").startswith(b"<")


def _declared_first(text: str) -> str:
    """Move an XML declaration to the beginning of a text, and the line breaks that preceded it behind it.

    A text in Python code often begins with a line break. The lines of problems stay those of the text."""
    declaration, end, rest = text.lstrip(_BEFORE_XML).partition("?>")
    if not declaration.startswith("<?xml"):
        return text.lstrip("\ufeff")
    before = len(text) - len(declaration) - len(end) - len(rest)
    return declaration + end + "\n" * text.count("\n", 0, before) + rest


def _is_bpmn_path(path: str) -> bool:
    return "\n" not in path and path.lower().endswith(_ENDINGS)

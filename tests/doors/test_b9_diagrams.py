"""B9: diagrams over HTTP, with and without tokens, and `hark bpmn render`."""

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from tests.doors.support_cli import run_cli
from tests.support.bpmn_files import LISTENED, ORDER
from tests.support.http import app_on, serving
from tests.support.inspect import until
from tests.support.stores import Store

SVG = "image/svg+xml; charset=utf-8"
BROKEN = ORDER.replace('targetRef="end"', 'targetRef="ende"')


async def test_b9_a_definition_and_an_instance_are_drawn(store: Store) -> None:
    async with serving(app_on(store)) as http:
        await http.post("/definitions", content=ORDER, headers={"Content-Type": "application/xml"})
        plain = await http.get("/definitions/order/diagram.svg")
        assert (plain.status_code, plain.headers["content-type"]) == (200, SVG)
        assert "Approve it" in plain.text
        assert "style-src 'unsafe-inline'" in plain.headers["content-security-policy"]
        assert (await http.post("/instances", json={"definition": "order", "id": "o-1"})).status_code == 201

        async def waits() -> bool:
            return bool((await http.get("/instances/o-1")).json()["state"]["tokens"] == ["approve"])

        await until(waits, "a token at the user task")
        drawn = await http.get("/instances/o-1/diagram.svg")
        assert (drawn.status_code, drawn.headers["content-type"]) == (200, SVG)
        assert drawn.text != plain.text
        assert (await http.post("/instances", json={"definition": "Order", "id": "m-1"})).status_code == 201
        assert (await http.get("/instances/m-1/diagram.svg")).status_code == 422
        for nothing in ("/instances/nothing/diagram.svg", "/definitions/nothing/diagram.svg"):
            assert (await http.get(nothing)).status_code == 404


def test_b9_render_draws_every_file_that_is_xml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {"order": ORDER, "broken": BROKEN, "listened": LISTENED, "text": "hello"}.items():
        Path(f"{name}.bpmn").write_text(text, "utf-8")
    for name in ("order.bpmn", "broken.bpmn", "listened.bpmn"):
        drawn = run_cli("bpmn", "render", name)
        assert (drawn.code, drawn.err) == (0, "")
        assert ET.fromstring(drawn.out).tag == "{http://www.w3.org/2000/svg}svg"
        assert "Approve it" in drawn.out
    assert run_cli("bpmn", "render", "order.bpmn", "-o", "order.svg").out == ""
    assert Path("order.svg").read_text("utf-8") == run_cli("bpmn", "render", "order.bpmn").out
    assert run_cli("bpmn", "render", "order.bpmn", "--process", "order").code == 0
    run_cli("bpmn", "render", "order.bpmn", "--process", "other").error_line(3)
    run_cli("bpmn", "render", "text.bpmn").error_line(2)
    run_cli("bpmn", "render", "missing.bpmn").error_line(2)
    assert "cannot be written" in run_cli("bpmn", "render", "order.bpmn", "-o", "no/such/folder.svg").error_line(2)

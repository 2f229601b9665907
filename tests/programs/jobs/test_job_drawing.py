"""The SVG of a job, in light and dark, with the states of its tasks."""

from xml.etree import ElementTree

from hark.app.job_files import draw_svg, parse_job_file

SVG = "{http://www.w3.org/2000/svg}"
FILE = b"""
name: release <1>
tasks:
  - {name: build, run: make build}
  - {name: ship, run: make ship, needs: [build]}
"""


def test_a_job_is_drawn_with_the_states_of_its_tasks() -> None:
    svg = draw_svg(parse_job_file(FILE, "release.yaml").spec, {"build": "completed", "ship": "failed"})
    root = ElementTree.fromstring(svg)
    assert [child.text for child in root][:2] == ["release <1>", "A job with 2 tasks, 1 completed, 1 failed."]
    tasks = {group.findtext(f"{SVG}title"): group.attrib["class"] for group in root.iter(f"{SVG}g")}
    assert tasks == {"build: $ make build (completed)": "task completed", "ship: $ make ship (failed)": "task failed"}
    assert len([path for path in root.iter(f"{SVG}path") if path.attrib["class"] == "arrow"]) == 1
    assert "prefers-color-scheme:dark" in svg
    assert "url(" not in svg

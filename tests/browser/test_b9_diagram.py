"""The diagram of a process in a browser: its texts fit, and it follows the colors of the system."""

from pathlib import Path

from playwright.async_api import Browser

from hark.programs.bpmn.diagram_marks import Marks
from hark.programs.bpmn.drawing.bpmn_drawing import draw
from hark.programs.svg import COLORS

FILES = Path(__file__).parents[1] / "bpmn" / "files"
OVERFLOWING = """() => {
  const found = []
  for (const group of document.querySelectorAll('[data-element]')) {
    const box = group.querySelector(':scope > rect'), text = group.querySelector(':scope > text')
    if (!box || !text || !text.textContent) continue
    const outer = box.getBBox(), inner = text.getBBox()
    if (inner.x < outer.x || inner.y < outer.y - 1 || inner.x + inner.width > outer.x + outer.width
        || inner.y + inner.height > outer.y + outer.height + 1) found.push(text.textContent)
  }
  const paper = document.documentElement.viewBox.baseVal
  for (const text of document.querySelectorAll('text')) {
    const area = text.getBoundingClientRect()
    if (area.left < 0 || area.top < 0 || area.right > paper.width || area.bottom > paper.height)
      found.push(text.textContent)
  }
  return found
}"""
FILL = "() => getComputedStyle(document.querySelector('.paper')).fill"


def rgb(color: str) -> str:
    return f"rgb({', '.join(str(int(color[at : at + 2], 16)) for at in (1, 3, 5))})"


async def test_b9_texts_fit_and_the_colors_follow_the_system(browser: Browser, tmp_path: Path) -> None:
    marks = Marks(tokens={"Activity_pack": 3}, waits=["Activity_pack"], taken={"Flow_2": 3})
    for side, scheme in enumerate(("light", "dark")):
        page = await browser.new_page(color_scheme=scheme)  # type: ignore[arg-type]
        for path in (FILES / f"{name}.bpmn" for name in ("claim_bare", "order_cloud", "shop_pools", "symbols")):
            picture = tmp_path / f"{path.stem}.svg"
            picture.write_text(draw(path.read_text("utf-8"), marks=marks), "utf-8")
            await page.goto(picture.as_uri())
            assert await page.evaluate(OVERFLOWING) == [], path.name
            assert await page.evaluate(FILL) == rgb(COLORS["paper"][side])
        await page.close()

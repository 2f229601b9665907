"""D6: scripted answers, for functions with awakeables."""

from typing import Any

from hark import AwakeableRejected, FunctionContext, workflow
from hark.testing import Harness
from tests.support.stores import Store


@workflow
async def interview(ctx: FunctionContext) -> list[Any]:
    answers: list[Any] = []
    for title in ("name?", "age?", "sure?"):
        try:
            answers.append(await (await ctx.awakeable(title=title)))
        except AwakeableRejected as error:
            answers.append(str(error))
    return answers


async def test_d6_scripted_answers_resolve_awakeables(store: Store) -> None:
    async with Harness(interview, url=store.url, **store.options) as app:
        app.answer("name?", "Ann")
        app.answer("sure?", reject="not at all")
        it = await app.start(interview)
        assert await app.drain() == {"steps": 2, "await": 2}
        assert [asked.title for asked in await app.awakeables(status="PENDING")] == ["age?"]
        app.answer(lambda asked: asked.title == "age?", 42)
        assert await app.drain() == {"steps": 2, "await": 1, "done": 1}
        assert await it.result() == ["Ann", 42, "not at all"]

"""Which requests share a turn: streams of tasks delay nothing else, and calls keep their order."""

import time

import pytest

from hark.engine.turns.reply import Reply
from hark.engine.turns.request_queue import RequestQueue
from hark.engine.worker.stream_pace import StreamPace
from hark.kernel.requests import (
    AssignAwakeable,
    Cancel,
    CommitNote,
    Deliver,
    Deploy,
    DeployGroup,
    Message,
    Request,
    SettleAwakeable,
    SetVariables,
    StartInstances,
)
from hark.model.decisions import NewInstance, Settle
from hark.model.notes import NotedEvent, NoteEvents, NoteState


def chunks(task: str, size: int) -> CommitNote:
    return CommitNote(note=NoteEvents(task, 1, (NotedEvent("stream"),) * size))


def queue(*requests: Request) -> RequestQueue:
    made = RequestQueue()
    for request in requests:
        made.add(request, None)
    return made


def turns(queue: RequestQueue) -> list[list[Request]]:
    made = []
    while queue:
        made.append([item.request for item in queue.take(5000)])
    return made


def test_j8_a_turn_takes_a_part_of_the_streams_and_all_other_requests() -> None:
    streams = [chunks(f"t{n}", 300) for n in range(5)]
    signal, other = Deliver(target="x"), Deliver(target="y")
    assert turns(queue(*streams[:4], signal, streams[4], other)) == [
        [*streams[:2], signal, other],
        streams[2:4],
        [streams[4]],
    ]


def test_j8_what_a_task_notes_after_its_stream_does_not_overtake_it() -> None:
    first, second, state = chunks("a", 500), chunks("b", 1), CommitNote(note=NoteState("b", 1, "{}"))
    other = CommitNote(note=NoteState("a", 1, "{}"))
    assert turns(queue(first, second, state, other)) == [[first, other], [second, state]]


def test_j8_a_note_that_is_too_large_for_a_turn_has_one_of_its_own() -> None:
    large = [chunks("a", 2000), chunks("b", 2000)]
    assert turns(queue(*large)) == [[large[0]], [large[1]]]


def test_j8_streams_are_slowed_down_only_while_others_have_work() -> None:
    made = queue(chunks("a", 100))
    pace = StreamPace(made)
    made.take(5000)
    assert pace.delay(100) == 0
    made.add(Deliver(target="x"), None)
    made.take(5000)
    made.busy_at = time.monotonic() + 60  # others have work for as long as this test takes
    assert 0 < pace.delay(5000) < pace.delay(5000)


def _start() -> StartInstances:
    return StartInstances(items=[NewInstance("p", "{}", "x", named=True)])


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (Deploy(name="p"), Message(name="go"), False),  # the message starts what was deployed
        (DeployGroup(), Message(name="go"), False),
        (Message(name="go"), DeployGroup(), False),
        (_start(), Deploy(name="p", remove=True), False),
        (Deploy(name="p"), _start(), True),  # a turn deploys first
        (_start(), SetVariables(target="x"), False),
        (SetVariables(target="x"), Deliver(target="x"), True),
        (SetVariables(target="x"), Cancel(target="x"), False),  # a turn cancels first
        (AssignAwakeable(awakeable="a", by="ann"), SettleAwakeable(settle=Settle("a", "RESOLVED")), False),
        (SettleAwakeable(settle=Settle("a", "RESOLVED")), AssignAwakeable(awakeable="a", by="ann"), True),
    ],
)
def test_calls_whose_order_a_turn_would_change_do_not_share_it(first: Request, second: Request, together: bool) -> None:
    assert turns(queue(first, second)) == ([[first, second]] if together else [[first], [second]])


def test_s10_requests_that_are_added_together_have_the_same_age() -> None:
    """Otherwise the first of them could be answered as late, in an outage, while one behind it is carried out."""
    made = RequestQueue()
    signals = [Deliver(target="run", name=str(n)) for n in range(1000)]
    made.add_together(signals, [Reply() for _ in signals])
    items = made.take(5000)
    assert [item.request for item in items] == signals
    assert len({item.at for item in items}) == 1

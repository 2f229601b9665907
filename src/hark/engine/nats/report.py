"""Look at NATS once, for `hark doctor`: nothing is created or changed."""

from __future__ import annotations

import nats.errors

from hark.engine.nats.bucket import SignalBucket
from hark.engine.nats.connection import ApiError, Connection, ConnectionLost, JetStreamOff, connected, jetstream_off
from hark.engine.nats.election import ask_reader
from hark.model.nats import Nats, NatsReport


async def read_report(options: Nats) -> NatsReport:
    """Read the state of the server, the bucket and its reader."""
    report = NatsReport(options.address, options.bucket)
    try:
        async with connected(options) as connection:
            report.server_version = connection.server_version
            await _look(connection, report)
    except JetStreamOff:
        report.problem = jetstream_off()
    except (ConnectionLost, ApiError) as error:
        report.problem = str(error)
    return report


async def _look(connection: Connection, report: NatsReport) -> None:
    bucket = SignalBucket(connection, report.bucket)
    stream = await bucket.state()
    if stream is None:
        return
    report.settings = await bucket.problems()
    consumers = await bucket.consumers()
    report.unread = consumers[-1].unread if consumers else max(0, stream.last - stream.first + 1)
    try:
        state = await ask_reader(connection, report.bucket)
    except nats.errors.TimeoutError:
        report.is_read = report.is_silent = True
        return
    if state is not None:
        report.is_read, report.reader, report.is_stuck = True, state.process, state.is_stuck
        report.last_error, report.error_age = state.last_error, state.error_age

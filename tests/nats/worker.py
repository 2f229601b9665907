"""A worker process of the tests: `hark worker --app tests.nats.worker:app`."""

import os

from hark import Hark, Nats
from tests.nats.support import Collector

app = Hark(
    os.environ["HARK_TEST_URL"],
    schema=os.environ["HARK_TEST_SCHEMA"],
    lease=2.0,
    nats=Nats(os.environ["HARK_TEST_NATS"], wake_ups=os.environ.get("HARK_TEST_WAKE_UPS") == "1"),
)
app.register(Collector)

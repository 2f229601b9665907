"""A worker process of the tests: `hark worker --app tests.nats.worker:app`."""

import os

from hark import Hark
from tests.nats.support import Collector

app = Hark(
    os.environ["HARK_TEST_URL"],
    schema=os.environ["HARK_TEST_SCHEMA"],
    lease=2.0,
    nats=os.environ["HARK_TEST_NATS"],
)
app.register(Collector)

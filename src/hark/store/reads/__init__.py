"""The reads for people, waiting callers and metrics, by topic. All of them are sent outside the turns.

Use them as `from hark.store import reads; reads.read_instances`. They run on connections that never write, and use an
index whatever else is in the tables. A statement that a turn sends as well is in statements/.
"""

from hark.store.reads.awakeables import *
from hark.store.reads.demand import *
from hark.store.reads.events import *
from hark.store.reads.health import *
from hark.store.reads.instances import *
from hark.store.reads.jobs import *
from hark.store.reads.journals import *
from hark.store.reads.links import *
from hark.store.reads.lists import *
from hark.store.reads.live import *
from hark.store.reads.metrics import *
from hark.store.reads.runs import *
from hark.store.reads.schedules import *
from hark.store.reads.versions import *
from hark.store.reads.waits import *
from hark.store.reads.why import *

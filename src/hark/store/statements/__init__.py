"""The statements of the turns, by topic, and those of the clerk and the lease about the same rows.

What people, waiting callers and metrics read is in reads/.

Use them as `from hark.store import statements as sql; sql.lock`. One statement does its work for a whole list; none is
sent once per row. The kernel decides in Python, between the statements. "Under lock" means that the turn holds the
instance rows concerned (`lock`, invariant 3).

A topic is a file. A name belongs to one topic, and a statement's comment says which promise it keeps.
"""

from hark.store.statements.awakeables import *
from hark.store.statements.broadcasts import *
from hark.store.statements.claims import *
from hark.store.statements.events import *
from hark.store.statements.functions import *
from hark.store.statements.journal import *
from hark.store.statements.limits import *
from hark.store.statements.links import *
from hark.store.statements.messages import *
from hark.store.statements.outcomes import *
from hark.store.statements.retention import *
from hark.store.statements.runs import *
from hark.store.statements.schedules import *
from hark.store.statements.signals import *
from hark.store.statements.starts import *
from hark.store.statements.targets import *
from hark.store.statements.tokens import *
from hark.store.statements.waits import *
from hark.store.statements.workers import *

"""B2, FAULTS 63: whatever a file has become, reading and drawing it give a result or `InvalidDefinition`, nothing else.

`python -m tests.programs.bpmn.fuzz_bpmn` tries mutants for as long as you like.
"""

import pytest

from tests.programs.bpmn.fuzz_bpmn import attempt
from tests.support.bpmn_mutants import sources

NUMBERS = 300
PARTS = 3


@pytest.mark.parametrize("part", range(PARTS))
def test_b2_fault_63_a_mutant_of_a_file_is_read_or_refused(part: int) -> None:
    texts = list(sources())
    refused = sum(attempt(texts, number) for number in range(part, NUMBERS, PARTS))
    assert 0 < refused < NUMBERS // PARTS  # some are still processes

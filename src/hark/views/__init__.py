"""Read what people see: instances, events, jobs, BPMN, schedules, health, and why something waits.

Rows of the store as the values that callers get. Never imports the engine: it is given a store, and reads.
"""

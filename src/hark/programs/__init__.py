"""Run the four ways to write a workflow: read what a user wrote, and decide what one activation of it does.

No I/O, clock, threads or SQL. Imports model, and meets the kernel only in a Claim and a Decision.

machines     a class with one method per step
functions    durable functions: `@workflow` on an `async def`
jobs         a DAG of tasks, from a file or from `Dag`
bpmn         processes drawn in BPMN
expressions  the expressions of jobs and BPMN

services, effects, cancellation and awakeable_handle are what several of them share; svg is how two of them draw.
"""

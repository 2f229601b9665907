"""Run the engine of one operating-system process. Kernel and programs meet here.

turns     the clerk, which is the thread that owns the write connection: the queue, a turn and its failures, replies
worker    claims held in slots, their activations, the lease, and what steps use of the process they run in
callers   answer callers that wait for an end, a status, an open awakeable or a task
peers     what other processes on the same store did: dead workers, messages between them; and retention
commands  run shell commands and agents, each under a guard
tasks     what the programs of tasks read of the store, and tasks that workers outside fetch
observe   metrics, traces, and the log of failures
nats      the option `nats`: signals over NATS beside SQL
"""

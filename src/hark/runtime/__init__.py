"""The runtime of a process: the clerk runs turns, the worker runs steps. Kernel and programs meet here.

clerk             the thread that owns the write connection; beside it request_queue and turn_order (which requests
                  share a turn), turn_runner (a turn and its failures), patient_reads, work_left, other_processes,
                  worker_watch (which workers are dead), retention, thread_loop, database_clock
worker            starts and stops slots (what it holds), activations (what it runs) and lease; attached_worker is
                  what the clerk holds of it; beside it services, listeners, shared_task, watchdog, registry
reply             the result of a call; waiting answers callers that wait for an instance
views, why        rows as values for callers; like health and metrics they only read
caller_errors     the errors that the runtime itself raises in callers
"""

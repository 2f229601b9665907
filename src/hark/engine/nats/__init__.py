"""NATS, as an option: other programs put signals into a KV bucket, and see what Hark sends.

SQL stays the only place where anything must not be lost: what is read here is acknowledged after it is committed, and
what is sent here was committed before.

bridge        NatsBridge: the thread with the connection, for as long as the app is open
connection    one connection to a server; the only use of the NATS client, apart from its types and errors
bucket        the stream behind the bucket, and its consumers
election      which process reads
reader        from the bucket into SQL
incoming      what a value means
outgoing      what waits to be sent
senders       from there to the bucket, to the subjects of streams, and to other processes
cleaning      what was read is removed
keys          how runs, names and tasks are written
failures      why NATS cannot be used, and what to do
problem_log   what the log says of that
counters      what the metrics say
report        what `hark doctor` says

Imported by apps that have the option `nats` only.
"""

"""Run turns: the clerk, its queue, one turn and its failures, and the replies to callers."""

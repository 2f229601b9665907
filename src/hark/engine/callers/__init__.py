"""Answer callers that wait: for an end, a status, an open awakeable, or a task to fetch."""

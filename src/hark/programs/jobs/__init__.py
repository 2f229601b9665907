"""Jobs: their files (file/), the interpreter of a DAG of tasks, and what runs its tasks (tasks/)."""

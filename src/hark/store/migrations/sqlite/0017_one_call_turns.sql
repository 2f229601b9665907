-- Nothing to do: SQLite has no round trips to save. The number exists because both databases have the same migrations.
DROP INDEX IF EXISTS one_call_turns;

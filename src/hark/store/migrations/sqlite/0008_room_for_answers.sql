-- Nothing to do: SQLite updates in place. The number exists because both databases have the same migrations.
DROP INDEX IF EXISTS answers_in_place;

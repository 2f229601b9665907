-- A line of the journal tells which call of the function it answers: `seq` is the order of knowing,
-- `entry` the order of asking.
ALTER TABLE journal ADD COLUMN entry integer NOT NULL DEFAULT 0;

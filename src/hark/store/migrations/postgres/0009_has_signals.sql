-- The column says whether the instance has ever received a signal; its old name did not say that.
ALTER TABLE instances RENAME COLUMN mail TO has_signals;

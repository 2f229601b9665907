-- An answer updates the row of its awakeable: with room on the page the update touches no index (HOT).
ALTER TABLE awakeables SET (fillfactor = 60);

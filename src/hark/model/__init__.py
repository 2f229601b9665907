"""Values, outcomes, decisions and errors: what all layers share. Imports no other part of Hark."""

"""Values, outcomes and errors. Imports nothing of ours."""

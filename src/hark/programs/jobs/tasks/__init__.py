"""Tasks of jobs: what runs a handler, an approval, a map, and what decides about an outcome."""

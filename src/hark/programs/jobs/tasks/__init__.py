"""Tasks of jobs: run a handler, an approval or a map, and decide about an outcome."""

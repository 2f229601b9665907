"""What tests stand on: a real PostgreSQL, and stores to point an app at."""

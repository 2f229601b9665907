"""Ways in from outside: command line, HTTP, console. Import app and model."""

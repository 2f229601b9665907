"""The ways to write a definition: machines and durable functions. Imports programs and model."""

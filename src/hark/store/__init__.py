"""The store's protocol and its implementations. Imports model."""

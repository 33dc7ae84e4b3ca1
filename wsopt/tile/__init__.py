"""The tile room."""

"""The emit room."""

"""The interpret room."""

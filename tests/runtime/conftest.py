"""Helpers of this folder are imported by name."""

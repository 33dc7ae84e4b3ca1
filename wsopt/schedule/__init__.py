"""Schedules as plain data, their budgets, the certificate, and the form that the checker has accepted."""

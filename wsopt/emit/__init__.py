"""From a verified schedule to the source of kernel.py: a plan, instructions, templates."""

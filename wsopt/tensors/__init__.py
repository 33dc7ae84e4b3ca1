"""Tensors along a kernel's axes and scalar statements, which front end, tile programs and emitters share."""

"""What front end, tile programs and emitters share: tensors seen along a kernel's axes, and scalar statements."""

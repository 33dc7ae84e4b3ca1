"""The calibrate room: measures the present GPU with microbenchmark kernels, and writes a machine file from it.

`catalog` names the probes, `kernels/` holds their Gluon source, `run` and `worker` measure in processes of
their own, `fits` makes figures of the raw measurements, `machine_file` writes them, `compare` holds two runs
against each other. Importing it needs neither torch nor triton.
"""

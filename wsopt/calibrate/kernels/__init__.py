"""The microbenchmark kernels: Gluon source, a file a subject, each kernel in one loop of a run-time length.

What a loop costs is the difference of two lengths, so what stands around it (clock reads, set-up, the last
results on their way) cancels. Three roles of a warpgroup each run the same code; a length of zero keeps one out.
"""

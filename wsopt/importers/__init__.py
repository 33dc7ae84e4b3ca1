"""Reads models of other formats, ONNX and torch.export's, as graphs of ours."""

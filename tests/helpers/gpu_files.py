"""Where the files of the gpu tests lie."""

from pathlib import Path

FIXTURES = Path(__file__).parent / "gpu_fixtures"

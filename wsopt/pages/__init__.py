"""Pages for a browser, and traces for Perfetto: what a schedule does, beside what was measured of it."""
